"""Experts' labels: their store, their CSV files, how far they agree with the jury, and the labels that come of it.

Labels are only ever added: who changed their mind has both in the history. The web page is in ``review_page``.
"""

from __future__ import annotations

import csv
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from suwen.corpora.files import open_text
from suwen.html_kit import interval, percent
from suwen.jury.agreement import Interval, cohen_kappa
from suwen.jury.consensus import Rule, consensus
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.sampling import Sampled, pair_name
from suwen.jury.verdicts import JuryProblem, Label, Verdict, write_verdicts
from suwen.jury.votes import Votes
from suwen.sqlite_file import SqliteFile

Opinion = Literal["positive", "negative", "unsure"]
OPINIONS: tuple[Opinion, ...] = get_args(Opinion)
#: What a CSV may say: the words themselves and others for them.
_WORDS: Mapping[str, Opinion] = {
    "positive": "positive", "negative": "negative", "unsure": "unsure",
    "1": "positive", "+": "positive", "yes": "positive", "相关": "positive", "是": "positive",
    "0": "negative", "-": "negative", "no": "negative", "不相关": "negative", "否": "negative",
    "?": "unsure", "？": "unsure", "不确定": "unsure",
}  # fmt: skip
_Z = 1.959963984540054


class Review(NamedTuple):
    """One expert's word on one pair."""

    pair: str
    reviewer: str
    label: Opinion
    note: str
    source: str
    at: float


class Reviews(SqliteFile):
    """The store of experts' labels, one SQLite file; each label is on the disk when ``add`` returns."""

    holds = "reviews"
    made_by = "name the reviews.db of the other page"
    problem = JuryProblem
    tables = (
        """CREATE TABLE IF NOT EXISTS labels (
    id INTEGER PRIMARY KEY, pair TEXT NOT NULL, reviewer TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL,
    source TEXT NOT NULL, at REAL NOT NULL)""",
    )

    def add(
        self, pair: str, reviewer: str, label: str, note: str = "", source: str = "page", at: float | None = None
    ) -> bool:
        """Keep a label; False where it is what this reviewer said last. ``at`` is now unless given."""
        if label not in OPINIONS or not reviewer.strip():
            raise JuryProblem(
                f"{label!r} by {reviewer!r} is no label: name a reviewer and one of {', '.join(OPINIONS)}"
            )
        with self.writing() as base:
            last = base.execute(
                "SELECT label, note FROM labels WHERE pair = ? AND reviewer = ? ORDER BY id DESC LIMIT 1",
                (pair, reviewer),
            ).fetchone()
            if last == (label, note):
                return False
            row = (pair, reviewer, label, note, source, time.time() if at is None else at)
            base.execute("INSERT INTO labels VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)
            return True

    def __iter__(self) -> Iterator[Review]:
        """Every label ever given, oldest first."""
        return map(Review._make, self.rows("SELECT pair, reviewer, label, note, source, at FROM labels ORDER BY id"))

    def latest(self) -> dict[str, dict[str, Review]]:
        """What each reviewer said last of each pair: ``{pair: {reviewer: review}}``."""
        by_pair: dict[str, dict[str, Review]] = {}
        for review in self:
            by_pair.setdefault(review.pair, {})[review.reviewer] = review
        return by_pair

    def by(self, reviewer: str) -> dict[str, Review]:
        """What one reviewer said last of each pair."""
        return {review.pair: review for review in self if review.reviewer == reviewer}


def import_csv(path: Path, reviews: Reviews, sample: Sequence[Sampled], reviewer: str | None = None) -> int:
    """Take labels from a CSV with the columns ``pair`` and ``label``, and perhaps ``note`` and ``reviewer``.

    Rows without a label are left for later; a file may be imported again when it has more. Nothing is taken from a
    file with an error.

    Args:
        path: The file.
        reviews: Where the labels go.
        sample: What may be labelled.
        reviewer: Who labelled, unless a column says so.

    Returns:
        How many labels were new.
    """
    known = {one.pair for one in sample}
    taken: list[tuple[str, str, Opinion, str]] = []
    with open_text(path) as file:
        rows = csv.DictReader(file)
        if missing := {"pair", "label"} - set(rows.fieldnames or ()):
            raise JuryProblem(
                f"{path}: the column {min(missing)!r} is missing: take the CSV of `suwen jury review sample`"
            )
        for row in rows:
            said = (row["label"] or "").strip().lower()
            if not said:
                continue
            place = f"{path}:{rows.line_num}"
            who = (row.get("reviewer") or reviewer or "").strip()
            if row["pair"] not in known:
                raise JuryProblem(f"{place}: the pair {row['pair']!r} is not in the sample: is it of another one?")
            if not who:
                raise JuryProblem(f"{place}: who labelled this? Add a column reviewer, or say so with --reviewer")
            if said not in _WORDS:
                raise JuryProblem(f"{place}: {said!r} is no label: write positive, negative or unsure (or 1, 0, ?)")
            taken.append((row["pair"], who, _WORDS[said], (row.get("note") or "").strip()))
    return sum(reviews.add(*one, source="csv") for one in taken)


def import_store(path: Path, reviews: Reviews, sample: Sequence[Sampled]) -> int:
    """Take the labels of another labelling page's store, such as one served elsewhere; gives how many were new."""
    known = {one.pair for one in sample}
    with Reviews(path, create=False) as other:
        said = list(other)
    if strange := [review.pair for review in said if review.pair not in known]:
        raise JuryProblem(f"{path}: the pair {strange[0]!r} is not in the sample: is it of another one?")
    # A label that is in the history already is not taken again, even when the reviewer has since changed their mind.
    here = {review[:4] + review[5:] for review in reviews}
    new = [review for review in said if review[:4] + review[5:] not in here]
    return sum(reviews.add(*review[:4], source=review.source, at=review.at) for review in new)


def import_labels(path: Path, reviews: Reviews, sample: Sequence[Sampled], reviewer: str | None = None) -> int:
    """Take labels from another page's store (``.db``) or from a CSV; gives how many were new."""
    return import_store(path, reviews, sample) if path.suffix == ".db" else import_csv(path, reviews, sample, reviewer)


def wilson(agreed: float, of: float) -> Interval:
    """A share with Wilson's 95% interval; NaN of nothing.

    >>> [round(value, 4) for value in wilson(93, 100)]
    [0.93, 0.8625, 0.9657]
    """
    if of <= 0:
        return Interval(math.nan, math.nan, math.nan)
    share = agreed / of
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z / (1 + _Z**2 / of) * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    return Interval(share, max(middle - half, 0.0), min(middle + half, 1.0))


class Rate(NamedTuple):
    """How often experts and jury agree."""

    agreed: int
    of: int
    share: Interval


@dataclass(frozen=True)
class ReviewReport:
    """What experts make of a jury's labels.

    Attributes:
        sampled: Pairs in the sample.
        labelled: Pairs with an expert's label that is not ``unsure``, nor a tie between experts.
        overall: Agreement over the labelled pairs on which the jury decided.
        weighted: The same for the whole set of verdicts: each stratum counts by its size, with Wilson's interval at
            the effective sample size.
        strata: Agreement in each stratum that has labels.
        reviewers: Each reviewer's own agreement with the jury.
        undecided: What experts said of pairs the jury left undecided.
        unsure: Pairs on which experts are unsure or tied.
        between: Cohen's kappa of two reviewers, over pairs both decided; and the number of those.
    """

    sampled: int
    labelled: int
    overall: Rate
    weighted: Interval
    strata: dict[str, Rate]
    reviewers: dict[str, Rate]
    undecided: dict[str, int]
    unsure: int
    between: dict[tuple[str, str], tuple[float, int]]

    def summary(self) -> str:
        """How many pairs are labelled, in a sentence or two."""
        rest = ", ".join(f"{count} {label}" for label, count in sorted(self.undecided.items())) or "none labelled"
        return (
            f"{self.labelled} of {self.sampled} sampled pairs labelled, {self.unsure} unsure or tied. "
            f"Pairs the jury left undecided: {rest}."
        )


def review_rows(report: ReviewReport) -> list[tuple[str, list[str]]]:
    """A report as the rows of a table: pairs; how many agreed, their share, its interval."""
    weighted = ["", percent(report.weighted.value), interval(report.weighted.low, report.weighted.high, ".1%").strip()]
    rows = [("all labelled pairs", _cells(report.overall)), ("weighted to all verdicts", weighted)]
    rows += [(f"reviewer {name}", _cells(rate)) for name, rate in report.reviewers.items()]
    return rows + [(name, _cells(rate)) for name, rate in report.strata.items()]


def _cells(rate: Rate) -> list[str]:
    share = rate.share
    return [f"{rate.agreed} of {rate.of}", percent(share.value), interval(share.low, share.high, ".1%").strip()]


def settled(said: Iterable[Opinion]) -> Label | None:
    """The experts' label: the side with more of them; None where they are unsure or tied."""
    counts = Counter(said)
    if counts["positive"] == counts["negative"]:
        return None
    return "positive" if counts["positive"] > counts["negative"] else "negative"


def review_report(sample: Sequence[Sampled], reviews: Reviews) -> ReviewReport:
    """Measure how far experts agree with the jury, and with each other."""
    pairs = {one.pair: one for one in sample}
    said = {pair: by for pair, by in reviews.latest().items() if pair in pairs}
    labels = {pair: settled(review.label for review in by.values()) for pair, by in said.items()}
    decided = {pair: label for pair, label in labels.items() if label and pairs[pair].stratum.label != "undecided"}
    strata: dict[str, list[bool]] = {}
    sizes: dict[str, int] = {}
    for pair, label in decided.items():
        stratum = str(pairs[pair].stratum)
        strata.setdefault(stratum, []).append(label == pairs[pair].stratum.label)
        sizes[stratum] = pairs[pair].population
    rest: Counter[str] = Counter(
        label for pair, label in labels.items() if label and pairs[pair].stratum.label == "undecided"
    )
    return ReviewReport(
        len(sample),
        sum(label is not None for label in labels.values()),
        _rate([one for agreed in strata.values() for one in agreed]),
        _weighted(strata, sizes),
        {name: _rate(agreed) for name, agreed in sorted(strata.items())},
        _reviewers(said, pairs),
        dict(rest),
        sum(label is None for label in labels.values()),
        _between(said),
    )


def _rate(agreed: Sequence[bool]) -> Rate:
    return Rate(sum(agreed), len(agreed), wilson(sum(agreed), len(agreed)))


def _weighted(strata: Mapping[str, Sequence[bool]], sizes: Mapping[str, int]) -> Interval:
    total = sum(sizes.values())
    if not total:
        return wilson(0, 0)
    share = sum(sizes[name] / total * sum(agreed) / len(agreed) for name, agreed in strata.items())
    effective = 1 / sum((sizes[name] / total) ** 2 / len(agreed) for name, agreed in strata.items())
    return wilson(share * effective, effective)


def _reviewers(said: Mapping[str, Mapping[str, Review]], pairs: Mapping[str, Sampled]) -> dict[str, Rate]:
    rates: dict[str, list[bool]] = {}
    for pair, by in said.items():
        jury = pairs[pair].stratum.label
        for name, review in by.items():
            if review.label != "unsure" and jury != "undecided":
                rates.setdefault(name, []).append(review.label == jury)
    return {name: _rate(agreed) for name, agreed in sorted(rates.items())}


def _between(said: Mapping[str, Mapping[str, Review]]) -> dict[tuple[str, str], tuple[float, int]]:
    names = sorted({name for by in said.values() for name in by})
    kappas = {}
    for left, right in combinations(names, 2):
        both = [(by[left].label, by[right].label) for by in said.values() if left in by and right in by]
        both = [pair for pair in both if "unsure" not in pair]
        if both:
            kappas[left, right] = (cohen_kappa([a for a, _ in both], [b for _, b in both]), len(both))
    return kappas


def apply_reviews(verdicts: Iterable[Verdict], reviews: Reviews) -> Iterator[Verdict]:
    """Verdicts with the experts' labels in place of the jury's where there is one; every word goes into the history."""
    history: dict[str, list[dict[str, Any]]] = {}
    for review in reviews:
        event = {"by": f"expert:{review.reviewer}", "label": review.label, "note": review.note}
        history.setdefault(review.pair, []).append(event | {"source": review.source, "at": review.at})
    latest = reviews.latest()
    for verdict in verdicts:
        pair = pair_name(verdict.query_id, verdict.passage_id)
        if pair not in history:
            yield verdict
            continue
        final = settled(review.label for review in latest[pair].values()) or verdict.label
        summed = {"by": "experts", "label": final, "before": verdict.label}
        yield replace(verdict, label=final, history=(*verdict.history, *history[pair], summed))


def decide_folder(
    folder: JuryFolder, rule: Rule, jury: Sequence[str] | None = None, *, reviewed: bool = False, to: Path | None = None
) -> Counter[str]:
    """Turn the votes of a jury's folder into a file of verdicts; gives the number of each label.

    Args:
        folder: The jury's folder.
        rule: How votes become a label.
        jury: The judges that count; all that have voted unless given.
        reviewed: Whether experts' labels take the jury's place.
        to: The file, if not the folder's own.
    """
    labels: Counter[str] = Counter()

    def counted(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
        for verdict in verdicts:
            labels[verdict.label] += 1
            yield verdict

    with ExitStack() as stack:
        verdicts = consensus(stack.enter_context(Votes(folder.votes, create=False)), rule, jury)
        if reviewed:
            verdicts = apply_reviews(verdicts, stack.enter_context(Reviews(folder.reviews)))
        write_verdicts(to or folder.verdicts, counted(verdicts))
    return labels
