"""A stratified sample of verdicts for experts: drawn, written as a key file and as a blind CSV. Holds no labels.

The key file (JSON lines) knows each pair's jury label and stratum and stays with whoever runs the review. What experts
see, as CSV or on the page, shows the query and the passage alone, in an order of no meaning.
"""

from __future__ import annotations

import csv
import heapq
import io
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.tabular import records
from suwen.durable import write_lines, write_text
from suwen.jury.judge_batches import draw
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import read_pool
from suwen.jury.texts import Texts
from suwen.jury.verdicts import VALUES, JuryProblem, Label, Verdict, read_verdicts
from suwen.text.segment import bigrams

#: Columns of the CSV; an expert fills the label, and the note if there is something to say.
COLUMNS = ("pair", "query", "passage", "label", "note")
#: A cell that begins with one of these is a formula to a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


#: A positive of the jury that the audited benchmark does not have.
FALSE_NEGATIVE = "audited false negative"
#: In place of a disagreement, of rows that a model wrote: no jury had a say, and people say whether they are right.
WRITTEN = "written"


class Stratum(NamedTuple):
    """What a pair has in common with others: the jury's label, how far the judges were apart, how hard it looks.

    ``audited`` says what an audit found, :data:`FALSE_NEGATIVE` or nothing.
    """

    label: Label
    disagreement: str
    difficulty: str
    audited: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


class Sampled(NamedTuple):
    """One pair of a sample, with its key.

    Attributes:
        pair: Its name in the review; says nothing of the label.
        query_id: The query.
        passage_id: The passage.
        query: The query's text.
        passage: The passage's text.
        stratum: Where it was drawn from; begins with the jury's label.
        population: How many pairs its stratum has.
        rule: How the jury's label came about: rule and judges; empty in samples of 0.2.0.
    """

    pair: str
    query_id: str
    passage_id: str
    query: str
    passage: str
    stratum: Stratum
    population: int
    rule: str = ""


def pair_name(query_id: str, passage_id: str, *texts: str) -> str:
    """A pair's name in a review: of its ids and, but in samples of 0.2.0, its texts: no label goes to other texts."""
    return f"{draw(query_id, passage_id, *texts):016x}"


def disagreement(verdict: Verdict) -> str:
    """How far apart the judges were: ``same grade``, ``one apart``, ``far apart``, or ``abstained``."""
    grades = [vote.grade for vote in verdict.main]
    if not grades or None in grades:
        return "abstained"
    values = [VALUES[grade] for grade in grades if grade is not None]
    return ("same grade", "one apart", "far apart")[min(max(values) - min(values), 2)]


def difficulty(query: str, passage: str) -> str:
    """How many of the query's words the passage has: ``words shared``, ``some shared``, ``few shared``.

    A positive that shares few words, and a negative that shares most, is hard; so it is a stratum beside the label.
    """
    wanted = set(bigrams(query))
    share = len(wanted & set(bigrams(passage))) / len(wanted) if wanted else 0.0
    return "words shared" if share >= 0.6 else "some shared" if share >= 0.3 else "few shared"


def draw_sample(
    verdicts: Iterable[Verdict],
    pool: Path,
    texts: Texts,
    size: int,
    *,
    least: int = 5,
    seed: int = 0,
    only: str = "",
) -> list[Sampled]:
    """Draw pairs from every stratum: in proportion to its size, but at least ``least`` where it has them.

    A pair's label is the jury's own, also where experts have changed it since.

    Args:
        verdicts: In the order of ``consensus``: those of one query follow each other.
        pool: Where the queries' texts are.
        texts: The passages' texts.
        size: How many pairs in all; more where the strata's least come to more.
        least: The fewest of a stratum.
        seed: Of the draw.
        only: Draw only from pairs of which the audit says this, such as :data:`FALSE_NEGATIVE`.
    """
    if size < 1:
        raise JuryProblem(f"a sample of {size} pairs shows nothing: give at least 1")
    queries = {pooled.id: pooled.text for pooled in read_pool(pool)}
    drawn: dict[Stratum, list[tuple[int, str, str]]] = {}
    population: dict[Stratum, int] = {}
    rule = ""
    for query_id, of_query in groupby(verdicts, key=lambda verdict: verdict.query_id):
        if query_id not in queries:
            raise JuryProblem(f"query {query_id!r} has verdicts and is not in {pool}: take the pool it was judged from")
        together = list(of_query)
        known = texts.get([verdict.passage_id for verdict in together])
        for verdict in together:
            rule = rule or verdict.rule
            hard = difficulty(queries[query_id], known[verdict.passage_id])
            stratum = Stratum(verdict.jury_label, disagreement(verdict), hard, _audited(verdict))
            if only and stratum.audited != only:
                continue
            population[stratum] = population.get(stratum, 0) + 1
            # The smallest draws are a random sample; a heap keeps no more of them than can be needed.
            entry = (-draw(seed, query_id, verdict.passage_id), query_id, verdict.passage_id)
            heap = drawn.setdefault(stratum, [])
            (heapq.heappush if len(heap) < max(size, least) else heapq.heappushpop)(heap, entry)
    if not drawn:
        first = "`suwen jury audit`" if only else "`suwen jury consensus`"
        raise JuryProblem(f"there are no {f'{only}s' if only else 'verdicts'} to sample from: run {first} first")
    counts = allocate(population, size, least)
    sample = []
    for stratum, heap in drawn.items():
        for _, query_id, passage_id in sorted(heap, reverse=True)[: counts[stratum]]:
            passage = texts.get([passage_id])[passage_id]
            name = pair_name(query_id, passage_id, queries[query_id], passage)
            row = (name, query_id, passage_id, queries[query_id], passage)
            sample.append(Sampled(*row, stratum, population[stratum], rule))
    # An order of no meaning, and the same whatever becomes of the texts.
    return sorted(sample, key=lambda one: pair_name(one.query_id, one.passage_id))


def _audited(verdict: Verdict) -> str:
    known = next((event for event in reversed(verdict.history) if event.get("by") == "benchmark"), None)
    lacking = known is not None and verdict.jury_label == "positive" and not known["positive"]
    return FALSE_NEGATIVE if lacking else ""


def allocate(population: Mapping[Stratum, int], size: int, least: int) -> dict[Stratum, int]:
    """How many to draw of each stratum: proportional by largest remainders, but at least ``least`` or all there are."""
    total = sum(population.values())
    exact = {stratum: size * count / total for stratum, count in population.items()}
    counts = {stratum: int(share) for stratum, share in exact.items()}
    by_remainder = sorted(exact, key=lambda stratum: (counts[stratum] - exact[stratum], stratum))
    for stratum in by_remainder[: max(min(size, total) - sum(counts.values()), 0)]:
        counts[stratum] += 1
    return {stratum: min(max(count, least), population[stratum]) for stratum, count in counts.items()}


def write_sample(path: Path, sample: Iterable[Sampled]) -> None:
    """Write the key file."""
    write_lines(path, (one._asdict() | {"stratum": list(one.stratum)} for one in sample))


def read_sample(path: Path) -> list[Sampled]:
    """Read the key file."""
    if not path.is_file():
        raise JuryProblem(f"there is no sample at {path}: draw one with `suwen jury review sample`")
    return [_sampled(record, place) for place, record in records(path, "jsonl")]


def _sampled(record: Mapping[str, Any], place: str) -> Sampled:
    try:
        return Sampled(**{**record, "stratum": Stratum(*record["stratum"])})
    except (KeyError, TypeError) as problem:
        raise JuryProblem(f"{place}: this is no sampled pair ({problem!r}): draw again") from None


def write_csv(path: Path, sample: Iterable[Sampled]) -> None:
    """Write the blind CSV: no jury label, no stratum, in an order of no meaning; opens in any spreadsheet."""
    ordered = sorted(sample, key=lambda one: one.pair)
    sheet = io.StringIO()
    csv.writer(sheet).writerows(
        [COLUMNS, *((one.pair, as_cell(one.query), as_cell(one.passage), "", "") for one in ordered)]
    )
    # The mark at the beginning says to a spreadsheet that this is UTF-8.
    write_text(path, "\ufeff" + sheet.getvalue())


def as_cell(text: str) -> str:
    """A text as a cell of a spreadsheet, which must not take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def sample_folder(
    folder: JuryFolder, size: int, *, least: int = 5, seed: int = 0, again: bool = False, only: str = ""
) -> list[Sampled]:
    """Draw a sample of a jury's verdicts into its folder: the key, and the blind CSV for experts.

    Args:
        folder: The jury's folder.
        size: How many pairs.
        least: The fewest of a stratum.
        seed: Of the draw.
        again: Whether to draw another in the place of one that is there.
        only: See :func:`draw_sample`.
    """
    if folder.sample.is_file() and not again:
        raise JuryProblem(f"{folder.sample} is there: labels refer to it. Pass --again to draw another in its place")
    with Texts(folder.texts) as texts:
        verdicts = read_verdicts(folder.verdicts)
        drawn = draw_sample(verdicts, folder.pool, texts, size, least=least, seed=seed, only=only)
    write_sample(folder.sample, drawn)
    write_csv(folder.sheet, drawn)
    return drawn
