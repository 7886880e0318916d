"""The audit of an existing benchmark: its own positives held against a jury's verdicts. Asks nobody.

After the CARE paper's appendix E: retrieve the top of each query, judge it again, and count. Counts are of the pairs in
the pool; an original positive that was not retrieved is listed apart and counts as neither right nor wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from suwen.durable import write_json, write_text
from suwen.html_kit import document, heading, interval, paragraph, percent, table
from suwen.jury.consensus import Rule, consensus
from suwen.jury.current_votes import CurrentVotes
from suwen.jury.judge_batches import draw
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.jury_report import examples, folder_review, plain
from suwen.jury.pooling import read_pool
from suwen.jury.review import Rate
from suwen.jury.texts import Texts
from suwen.jury.verdicts import JuryProblem, Verdict, rule_in_words, write_verdicts
from suwen.jury.votes import Votes

Qrels = Mapping[str, Mapping[str, int]]


class QueryAudit(NamedTuple):
    """One query's counts, over its pooled passages.

    Attributes:
        query_id: The query.
        original: Positives of the benchmark.
        judged: Positives of the jury.
        false_positives: Positives of the benchmark that the jury finds negative.
        false_negatives: Positives of the jury that the benchmark does not have.
        undecided: Positives of the benchmark on which the jury is undecided.
        missed: Positives of the benchmark that are not in the pool.
    """

    query_id: str
    original: int = 0
    judged: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    undecided: int = 0
    missed: int = 0


@dataclass(frozen=True)
class Audit:
    """What an audit audited.

    Attributes:
        benchmark: Its name.
        rule: How votes became labels.
        queries: The counts of each query.
        false_positives: Examples, at most one of a query.
        false_negatives: Likewise.
        checked: How often experts agree that false negatives are positives; None where none were checked.
    """

    benchmark: str
    rule: str
    queries: list[QueryAudit]
    false_positives: list[Verdict]
    false_negatives: list[Verdict]
    checked: Rate | None = None

    def mean(self, count: str) -> float:
        """The mean of one count over all queries."""
        return sum(float(getattr(query, count)) for query in self.queries) / len(self.queries)


def audit(
    benchmark: str,
    qrels: Qrels,
    pool: Path,
    votes: Votes | CurrentVotes,
    rule: Rule | None = None,
    jury: Sequence[str] | None = None,
    *,
    most: int = 10,
) -> Audit:
    """Hold a benchmark's judgements against a jury's.

    Args:
        benchmark: Its name.
        qrels: Its judgements; a grade above 0 is positive.
        pool: What was retrieved.
        votes: The votes on it.
        rule: How votes become labels.
        jury: The judges that count; all that have voted unless given.
        most: Examples of each kind.
    """
    rule = rule or Rule()
    counts = _pooled(pool, qrels)
    wrong: list[Verdict] = []
    lacking: list[Verdict] = []
    for verdict in consensus(votes, rule, jury):
        if verdict.query_id not in counts:
            continue
        original = qrels[verdict.query_id].get(verdict.passage_id, 0) > 0
        positive, negative = verdict.label == "positive", verdict.label == "negative"
        before = counts[verdict.query_id]
        counts[verdict.query_id] = before._replace(
            judged=before.judged + positive,
            false_positives=before.false_positives + (original and negative),
            false_negatives=before.false_negatives + (positive and not original),
            undecided=before.undecided + (original and verdict.label == "undecided"),
        )
        if original and negative:
            wrong.append(verdict)
        elif positive and not original:
            lacking.append(verdict)
    return Audit(benchmark, str(rule), list(counts.values()), _chosen(wrong, most), _chosen(lacking, most))


def _pooled(pool: Path, qrels: Qrels) -> dict[str, QueryAudit]:
    counts: dict[str, QueryAudit] = {}
    for pooled in read_pool(pool):
        if pooled.id not in qrels:
            continue
        there = {candidate.passage_id for candidate in pooled.candidates}
        positives = {id_ for id_, grade in qrels[pooled.id].items() if grade > 0}
        counts[pooled.id] = QueryAudit(pooled.id, original=len(positives & there), missed=len(positives - there))
    if not counts:
        raise JuryProblem("no query of the pool is judged in the benchmark: take its own queries, and the right split")
    return counts


def _chosen(verdicts: Iterable[Verdict], most: int) -> list[Verdict]:
    """Examples drawn by a fixed draw, one of a query: the first ones of a file are often of one kind."""
    by_query: dict[str, Verdict] = {}
    for verdict in sorted(verdicts, key=lambda one: draw(one.query_id, one.passage_id)):
        by_query.setdefault(verdict.query_id, verdict)
    return list(by_query.values())[:most]


_COUNTS = (
    ("original", "original positives"),
    ("judged", "judged positives"),
    ("false_positives", "false positives"),
    ("false_negatives", "false negatives"),
    ("undecided", "original, undecided"),
    ("missed", "original, not retrieved"),
)


def means(audited: Audit) -> dict[str, float]:
    """The means over all queries, by what they are called."""
    return {called: audited.mean(name) for name, called in _COUNTS}


def write_audit(path: Path, audited: Audit, pool: Path, texts: Texts) -> None:
    """Write the page of an audit, and its numbers beside it as JSON."""
    wanted = {verdict.query_id for verdict in (*audited.false_positives, *audited.false_negatives)}
    worst = sorted(audited.queries, key=lambda one: (-one.false_negatives - one.false_positives, one.query_id))[:20]
    wanted |= {one.query_id for one in worst}
    queries = {pooled.id: pooled.text for pooled in read_pool(pool) if pooled.id in wanted}
    corrected = [
        (queries.get(one.query_id, one.query_id)[:80], [str(getattr(one, name)) for name, _ in _COUNTS])
        for one in worst
    ]
    links = [
        ("counts", "Counts"),
        ("positives", "False positives"),
        ("negatives", "False negatives"),
        ("queries", "Queries"),
    ]
    body = [
        heading("Counts", "counts") + _table(audited),
        heading("False positives", "positives")
        + paragraph("The benchmark calls these positive; the jury finds that they do not answer.", "soft")
        + examples(audited.false_positives, queries, texts),
        heading("False negatives", "negatives")
        + paragraph("The benchmark does not have these; the jury finds that they answer.", "soft")
        + examples(audited.false_negatives, queries, texts),
        heading("Queries", "queries")
        + table("Queries with the most to correct", ("query", *(name for _, name in _COUNTS)), corrected),
    ]
    lead = f"{audited.benchmark}: {len(audited.queries):,} queries, judged again; {audited.rule}."
    write_text(path, document("Audit of a benchmark", lead, links, body))
    numbers = {"means": means(audited)} | plain(replace(audited, false_positives=[], false_negatives=[]))
    numbers["false_positives"] = [one.as_dict() for one in audited.false_positives]
    numbers["false_negatives"] = [one.as_dict() for one in audited.false_negatives]
    write_json(path.with_suffix(".json"), numbers)


def audit_folder(
    folder: JuryFolder, benchmark: str, qrels: Qrels, rule: Rule, jury: Sequence[str] | None = None
) -> Audit:
    """Hold a benchmark's judgements against the votes of a jury's folder, and write the page. See :func:`audit`.

    The folder's verdicts are written, too, with what the benchmark says of each pair: a sample of them has the false
    negatives as a stratum.
    """
    with Votes(folder.votes, create=False) as every, Texts(folder.texts) as texts:
        votes = CurrentVotes(every, folder.pool, texts)
        names, _ = votes.jury(jury, include=True)
        review = folder_review(folder, rule_in_words(str(rule), names))
        audited = audit(benchmark, qrels, folder.pool, votes, rule, names)
        audited = replace(audited, checked=review.false_negatives if review else None)
        write_verdicts(folder.verdicts, _known(consensus(votes, rule, names), qrels))
        write_audit(folder.audit, audited, folder.pool, texts)
    return audited


def _known(verdicts: Iterable[Verdict], qrels: Qrels) -> Iterator[Verdict]:
    """Verdicts with what the benchmark says of them in the history."""
    for verdict in verdicts:
        positive = qrels.get(verdict.query_id, {}).get(verdict.passage_id, 0) > 0
        yield replace(verdict, history=({"by": "benchmark", "positive": positive}, *verdict.history))


def _table(audited: Audit) -> str:
    rows = [(audited.benchmark, [f"{audited.mean(name):.2f}" for name, _ in _COUNTS])]
    lacking, total = sum(one.false_negatives > 0 for one in audited.queries), len(audited.queries)
    said = (
        f"{lacking:,} of {total:,} queries ({percent(lacking / total)}) have positives the benchmark does not know. "
        + _checked(audited.checked)
    )
    return table("Mean per query, over the retrieved passages", ("benchmark", *(name for _, name in _COUNTS)), rows) + (
        paragraph(said, "notice")
    )


def _checked(rate: Rate | None) -> str:
    if rate is None or not rate.of:
        return (
            "The jury's labels stand in for the truth here: have experts check a sample of them, with "
            "`suwen jury review sample WORK --false-negatives`."
        )
    share = f"{percent(rate.share.value)}{interval(rate.share.low, rate.share.high, '.1%')}"
    return f"Experts find {rate.agreed:,} of {rate.of:,} sampled false negatives to be answers: {share}."
