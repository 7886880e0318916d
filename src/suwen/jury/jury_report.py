"""The report of a jury as a page: funnel, agreement, grades, position effects, disagreements. Decides nothing."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from suwen.durable import write_json, write_text
from suwen.html_kit import (
    Cell,
    PlainRow,
    details,
    document,
    heading,
    interval,
    number,
    paragraph,
    percent,
    quotes,
    table,
)
from suwen.jury.agreement import Agreement, agreement, ratings
from suwen.jury.consensus import Funnel, Rule, consensus, funnel
from suwen.jury.current_votes import CurrentVotes, LeftOut, checked_jury
from suwen.jury.judge_batches import draw
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import read_pool
from suwen.jury.positions import PositionEffect, position_effects
from suwen.jury.review import ReviewReport, Reviews, review_report, review_rows
from suwen.jury.sampling import read_sample
from suwen.jury.texts import Texts
from suwen.jury.verdicts import GRADES, VALUES, Verdict, rule_in_words
from suwen.jury.votes import Votes
from suwen.llm.reply_cache import Cache, LedgerRow

_EXAMPLES = 12
_WORST_QUERIES = 20
_LONGEST = 600
_SECTIONS = (
    ("funnel", "Funnel"),
    ("agreement", "Agreement"),
    ("grades", "Grades"),
    ("positions", "Position effects"),
    ("review", "Expert review"),
    ("examples", "Disagreements"),
    ("provenance", "Provenance"),
)


@dataclass(frozen=True)
class JuryReport:
    """The numbers of a report."""

    rule: str
    judges: dict[str, dict[str, str]]
    funnel: Funnel
    agreement: Agreement
    positions: list[PositionEffect]
    review: ReviewReport | None
    ledger: list[LedgerRow]
    left: LeftOut = field(default_factory=LeftOut)


def jury_report(
    pool: Path,
    votes: Votes | CurrentVotes,
    rule: Rule | None = None,
    jury: Sequence[str] | None = None,
    *,
    review: ReviewReport | None = None,
    ledger: Sequence[LedgerRow] = (),
    left: LeftOut | None = None,
) -> JuryReport:
    """Measure everything a report shows.

    Args:
        pool: The pool that was judged.
        votes: The votes.
        rule: How votes become labels.
        jury: The judges that count; all unless given.
        review: What experts said.
        ledger: What it cost.
        left: What is not counted.
    """
    rule = rule or Rule()
    names = checked_jury(votes, jury)
    return JuryReport(
        str(rule),
        {name: about for name, about in votes.roll().items() if name in names},
        funnel(pool, consensus(votes, rule, names), names),
        agreement(ratings(votes, names), rule.worst),
        position_effects(votes, names, rule.positive),
        review,
        list(ledger),
        left or LeftOut(),
    )


def report_folder(
    folder: JuryFolder,
    rule: Rule,
    jury: Sequence[str] | None = None,
    title: str = "Jury report",
    *,
    include: bool = False,
) -> JuryReport:
    """Write the page of a jury's folder, with the experts' review and the ledger where there are any.

    Args:
        folder: The jury's folder.
        rule: How votes become labels.
        jury: The judges that count; all that have finished unless given.
        title: The page's title.
        include: Whether judges count who have not finished.
    """
    ledger: list[LedgerRow] = []
    if folder.replies.is_file():
        with Cache(folder.replies) as cache:
            ledger = cache.ledger()
    with Votes(folder.votes, create=False) as every, Texts(folder.texts) as texts:
        votes = CurrentVotes(every, folder.pool, texts)
        names, left = votes.jury(jury, include=include)
        review = folder_review(folder, rule_in_words(str(rule), names))
        report = jury_report(folder.pool, votes, rule, names, review=review, ledger=ledger, left=left)
        write_report(folder.report, report, folder.pool, texts, consensus(votes, rule, names), title)
    return report


def folder_review(folder: JuryFolder, now: str = "") -> ReviewReport | None:
    """What experts said of a folder's sample; None where there is none, or no label. ``now``: of the verdicts."""
    if not folder.reviews.is_file() or not folder.sample.is_file():
        return None
    with Reviews(folder.reviews) as reviews:
        return review_report(read_sample(folder.sample), reviews, now)


def disagreements(verdicts: Iterable[Verdict], most: int = _EXAMPLES) -> list[Verdict]:
    """Undecided pairs whose judges are furthest apart, at most one of a query."""
    best: dict[str, tuple[int, int, Verdict]] = {}
    for verdict in verdicts:
        values = [VALUES[vote.grade] for vote in verdict.main if vote.grade is not None]
        if verdict.label != "undecided" or len(values) < 2:
            continue
        entry = (max(values) - min(values), draw(verdict.query_id, verdict.passage_id), verdict)
        if entry[:2] > best.get(verdict.query_id, (0, -1))[:2] and entry[0]:
            best[verdict.query_id] = entry
    return [verdict for *_, verdict in heapq.nlargest(most, best.values(), key=lambda entry: entry[:2])]


def write_report(
    path: Path, report: JuryReport, pool: Path, texts: Texts, verdicts: Iterable[Verdict], title: str = "Jury report"
) -> None:
    """Write the page, and its numbers beside it as JSON.

    Args:
        path: The page; the numbers go beside it, with the ending ``.json``.
        report: The numbers.
        pool: Where the queries' texts are.
        texts: The passages' texts.
        verdicts: Where the examples come from.
        title: The page's title.
    """
    chosen = disagreements(verdicts)
    wanted = {verdict.query_id for verdict in chosen} | {
        one.query_id for one in report.agreement.queries[:_WORST_QUERIES]
    }
    queries = {pooled.id: pooled.text for pooled in read_pool(pool) if pooled.id in wanted}
    parts = {
        "funnel": _funnel(report.funnel) + "".join(paragraph(f"{line}.", "notice") for line in report.left.lines()),
        "agreement": _agreement(report.agreement, queries),
        "grades": _grades(report.agreement),
        "positions": _positions(report.positions),
        "review": _review(report.review) if report.review else "",
        "examples": examples(chosen, queries, texts, "The judges are nowhere on two sides."),
        "provenance": _provenance(report),
    }
    links = [(anchor, name) for anchor, name in _SECTIONS if parts[anchor]]
    body = [heading(name, anchor) + parts[anchor] for anchor, name in links]
    pairs = f"{report.funnel.pooled:,} pairs of {report.funnel.queries:,} queries"
    lead = f"{len(report.judges)} judges on {pairs}; {report.rule}."
    write_text(path, document(title, lead, links, body))
    write_json(path.with_suffix(".json"), plain(report))


def _funnel(counts: Funnel) -> str:
    rows = [
        ("pooled", counts.pooled, "pairs that a retriever found"),
        ("judged", counts.judged, "every judge has voted, abstentions counted"),
        ("positive", counts.positive, "labelled positive"),
        ("negative", counts.negative, "labelled negative"),
        ("undecided: split", counts.split, "the judges disagree; set aside with their votes"),
        ("undecided: abstained", counts.abstained, "a judge gave no usable grade; set aside"),
        ("undecided: not judged", counts.unjudged, "a vote is missing: run the judging again"),
    ]
    cells: list[PlainRow] = [
        (
            name,
            [
                Cell(f"{count:,}", bar=count / max(counts.pooled, 1)),
                percent(count / max(counts.pooled, 1)),
                Cell(what, True),
            ],
        )
        for name, count, what in rows
    ]
    said = (
        f"{counts.with_positive:,} of {counts.queries:,} queries have at least one positive; "
        f"{counts.positive / max(counts.queries, 1):.2f} positives a query. The last five rows add up to the first."
    )
    return table("From the pool to the labels", ("pairs", "count", "share", ""), cells) + paragraph(said)


def _agreement(measured: Agreement, queries: dict[str, str]) -> str:
    names = measured.judges
    kappas = [
        (what, [number(one.value) + interval(one.low, one.high)])
        for what, one in (("positive against negative", measured.sides), ("the five grades", measured.grades))
    ]
    alphas = [
        (what, [number(one.value) + interval(one.low, one.high)])
        for what, one in (
            ("positive against negative", measured.alpha_sides),
            ("the five grades, in order", measured.alpha_grades),
        )
    ]
    worst = [
        (queries.get(one.query_id, one.query_id)[:80], [str(one.complete), percent(one.unanimous), number(one.kappa)])
        for one in measured.queries[:_WORST_QUERIES]
    ]
    said = (
        f"Over the {measured.complete:,} of {measured.pairs:,} pairs that every judge graded; "
        "95% bootstrap intervals over queries."
    )
    return (
        table("Fleiss' kappa", ("over", "kappa [95%]"), kappas)
        + paragraph(said, "soft")
        + table("Krippendorff's alpha, over all pairs with two grades or more", ("over", "alpha [95%]"), alphas)
        + table(
            "Cohen's kappa of two judges, positive against negative",
            ("judge", *names),
            _matrix(names, measured.pairwise),
        )
        + table(
            "Cohen's kappa of two judges on the five grades, with quadratic weights",
            ("judge", *names),
            _matrix(names, measured.weighted),
        )
        + table("Queries with the least agreement", ("query", "pairs graded by all", "unanimous", "kappa"), worst)
    )


def _matrix(names: Sequence[str], pairwise: dict[tuple[str, str], float]) -> list[tuple[str, list[str]]]:
    both_ways = pairwise | {(right, left): kappa for (left, right), kappa in pairwise.items()}
    return [(row, ["" if row == column else number(both_ways[row, column]) for column in names]) for row in names]


def _grades(measured: Agreement) -> str:
    rows: list[PlainRow] = []
    for one in measured.severity:
        shares: list[Cell | str] = [Cell(percent(share), bar=share) for share in one.shares]
        numbers = [f"{one.abstained:,}", number(one.mean, ".2f"), percent(one.positive), number(one.difference, "+.2f")]
        rows.append((one.judge, [f"{one.graded:,}", *shares, *numbers]))
    top = ("judge", "graded", *GRADES, "abstained", "mean", "positive", "less the others")
    said = (
        "Mean: S is 4, D is 0. The last column is a judge's mean less that of the others on the same pairs: below 0, "
        "it is severe."
    )
    return table("What each judge gives", top, rows) + paragraph(said, "soft")


def _positions(effects: Sequence[PositionEffect]) -> str:
    rows = [
        (
            one.judge,
            [
                f"{one.twice:,}",
                percent(one.same_grade),
                percent(one.same_side),
                number(one.kappa),
                number(one.first_half, ".2f"),
                number(one.second_half, ".2f"),
            ],
        )
        for one in effects
    ]
    top = ("judge", "judged twice", "same grade", "same side", "kappa", "mean, first half", "mean, second half")
    twice = table("The same batches in the opposite order", top, rows) if any(one.twice for one in effects) else ""
    places = sorted({place for one in effects for place in one.means})
    graded = [(one.judge, [one.means.get(place, (math.nan, 0))[0] for place in places]) for one in effects]
    means = [(judge, [Cell(number(mean, ".2f"), bar=mean / 4) for mean in own]) for judge, own in graded]
    said = "Orders are random, so with many votes a slope along a row is the judge's doing." + (
        "" if twice else " No query was judged twice: run the judging with --again 0.1 to compare two orders."
    )
    return (
        twice + table("Mean grade by place in the batch", ("judge", *map(str, places)), means) + paragraph(said, "soft")
    )


def _review(review: ReviewReport) -> str:
    between = "; ".join(
        f"{a} and {b}: kappa {number(kappa)} over {of}" for (a, b), (kappa, of) in review.between.items()
    )
    old = " (OLD: by another rule than this report)" if review.outdated else ""
    caption = f"Agreement of experts with the jury's own labels, Wilson's 95% intervals{old}"
    return (
        table(caption, ("pairs", "agreed", "rate", "interval", "kappa"), review_rows(review))
        + paragraph(review.summary(), "notice" if review.outdated else "")
        + (paragraph(f"Between reviewers: {between}.") if between else "")
    )


def examples(chosen: Sequence[Verdict], queries: dict[str, str], texts: Texts, otherwise: str = "None.") -> str:
    """Pairs with every vote on them, to open; ``otherwise`` where there are none."""
    if not chosen:
        return paragraph(otherwise)
    return "".join(_example(verdict, queries.get(verdict.query_id, verdict.query_id), texts) for verdict in chosen)


def _example(verdict: Verdict, query: str, texts: Texts) -> str:
    passage = texts.get([verdict.passage_id])[verdict.passage_id]
    shown = passage if len(passage) <= _LONGEST else passage[:_LONGEST] + " …"
    rows: list[PlainRow] = [
        (vote.judge, [vote.grade or f"({vote.abstained})", Cell(vote.reason, True)]) for vote in verdict.main
    ]
    votes = table("Votes", ("judge", "grade", "reason"), rows)
    grades = " ".join(vote.grade or "–" for vote in verdict.main)
    return details(grades, query[:120], quotes([("query", query), ("passage", shown)]) + votes)


def _provenance(report: JuryReport) -> str:
    judges = [(name, [about["model"], about["served"], about["prompt"]]) for name, about in report.judges.items()]
    body = table("The judges", ("judge", "model", "served as", "prompt, language, version"), judges)
    if report.ledger:
        rows = [
            (
                row.model,
                [
                    f"{row.calls:,}",
                    f"{row.tokens_in:,}",
                    f"{row.tokens_out:,}",
                    f"{row.cost:.4g}",
                    f"{row.seconds:,.0f}",
                    f"{row.unknown:,} ({row.unknown_cost:.4g})" if row.unknown else "0",
                ],
            )
            for row in report.ledger
        ]
        top = ("model", "calls", "tokens in", "tokens out", "cost", "seconds", "cut off (cost at most)")
        body += table("The ledger", top, rows)
    return body + paragraph(f"Rule: {report.rule}. Every vote is kept with its model, prompt, reply and place.", "soft")


def plain(value: Any) -> Any:
    """Records as JSON can carry them: NaN as null, keys as texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain({one.name: getattr(value, one.name) for one in fields(value)})
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else " / ".join(key) if isinstance(key, tuple) else str(key): plain(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
