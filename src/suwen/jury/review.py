"""What experts' labels show: how far experts and jury agree, and the labels that come of both.

The labels are in ``review_store``, the web page is in ``review_page``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from suwen.html_kit import interval, number, percent
from suwen.jury.agreement import Interval, cohen_kappa
from suwen.jury.consensus import Rule, consensus
from suwen.jury.current_votes import CurrentVotes, LeftOut
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import read_pool
from suwen.jury.review_store import Review, Reviews, import_csv, import_labels, import_store, settled
from suwen.jury.sampling import FALSE_NEGATIVE, WRITTEN, Sampled, pair_name, read_sample
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Verdict, write_verdicts
from suwen.jury.votes import Votes

__all__ = [
    "Decided", "Rate", "Review", "ReviewReport", "Reviews", "apply_reviews", "decide_folder", "import_csv",
    "import_labels", "import_store", "review_report", "review_rows", "settled", "wilson",
]  # fmt: skip
_Z = 1.959963984540054
_UNKNOWN = Interval(math.nan, math.nan, math.nan)
#: The names in a review that a verdict's pair may have.
Names = Callable[[Verdict], Iterable[str]]


def wilson(agreed: float, of: float) -> Interval:
    """A share with Wilson's 95% interval; NaN of nothing.

    >>> [round(value, 4) for value in wilson(93, 100)]
    [0.93, 0.8625, 0.9657]
    """
    if of <= 0:
        return _UNKNOWN
    share = agreed / of
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z / (1 + _Z**2 / of) * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    return Interval(share, max(middle - half, 0.0), min(middle + half, 1.0))


class Rate(NamedTuple):
    """How often experts and jury agree, and Cohen's kappa of it: what is left of that beyond chance.

    Kappa is NaN where the jury gave all of these pairs one label: there is nothing to agree about beyond chance.
    """

    agreed: int
    of: int
    share: Interval
    kappa: float = math.nan


@dataclass(frozen=True)
class ReviewReport:
    """What experts make of a jury's own labels, as they were when the sample was drawn.

    Attributes:
        sampled: Pairs in the sample.
        labelled: Pairs with an expert's label that is not ``unsure``, nor a tie between experts.
        overall: Agreement over the labelled pairs on which the jury decided.
        weighted: The same for the whole set of verdicts: each stratum counts by its size, with Wilson's interval at
            the effective sample size.
        weighted_kappa: Cohen's kappa for the whole set of verdicts.
        strata: Agreement in each stratum that has labels.
        reviewers: Each reviewer's own agreement with the jury.
        undecided: What experts said of pairs the jury left undecided.
        unsure: Pairs on which experts are unsure or tied.
        between: Cohen's kappa of two reviewers, over pairs both decided; and the number of those.
        false_negatives: Agreement on positives that an audited benchmark does not have; None where none was sampled.
        positives: The share of positives among all verdicts as experts would have it, the jury's undecided pairs
            included: each stratum's share counts by its size.
        jury_positives: The same share by the jury's own labels.
        rule: The rule and the judges of the labels; empty where the sample does not say.
        now: The rule and the judges of the verdicts as they are now; empty where that is not known.
        written: Whether the sample is of rows that a model wrote: agreement is then that they are right.
    """

    sampled: int
    labelled: int
    overall: Rate
    weighted: Interval
    weighted_kappa: float
    strata: dict[str, Rate]
    reviewers: dict[str, Rate]
    undecided: dict[str, int]
    unsure: int
    between: dict[tuple[str, str], tuple[float, int]]
    false_negatives: Rate | None = None
    positives: Interval = _UNKNOWN
    jury_positives: float = math.nan
    rule: str = ""
    now: str = ""
    written: bool = False

    @property
    def outdated(self) -> bool:
        """Whether the verdicts come by another rule, or of other judges, than the labels that experts were held to."""
        return bool(self.rule and self.now) and self.rule != self.now

    def summary(self) -> str:
        """How many pairs are labelled, and by which rule the jury's labels came about."""
        if self.written:
            return f"{self.labelled} of {self.sampled} sampled rows judged, {self.unsure} unsure or tied."
        rest = ", ".join(f"{count} {label}" for label, count in sorted(self.undecided.items())) or "none labelled"
        said = (
            f"{self.labelled} of {self.sampled} sampled pairs labelled, {self.unsure} unsure or tied. "
            f"Pairs the jury left undecided: {rest}."
        )
        rule = f" The jury's labels are its own: {self.rule}." if self.rule else ""
        old = (
            f" OLD: the verdicts are now by {self.now}; draw a sample of those to measure them."
            if self.outdated
            else ""
        )
        return said + rule + old


def review_rows(report: ReviewReport) -> list[tuple[str, list[str]]]:
    """A report as the rows of a table: pairs; how many agreed, their share, its interval; of a jury's, kappa."""
    if report.written:
        rates = {"rows judged": report.overall, **{f"reviewer {name}": rate for name, rate in report.reviewers.items()}}
        return [(name, _cells(rate)[:3]) for name, rate in rates.items()]
    weighted = ["", percent(report.weighted.value), interval(report.weighted.low, report.weighted.high, ".1%").strip()]
    rows = [
        ("all labelled pairs", _cells(report.overall)),
        ("weighted to all verdicts", [*weighted, number(report.weighted_kappa)]),
    ]
    if report.false_negatives is not None:
        rows.append((f"{FALSE_NEGATIVE}s", _cells(report.false_negatives)))
    if not math.isnan(report.positives.value):
        known = f"positives, as experts would have it (the jury: {percent(report.jury_positives)})"
        bounds = interval(report.positives.low, report.positives.high, ".1%").strip()
        rows.append((known, ["", percent(report.positives.value), bounds, ""]))
    rows += [(f"reviewer {name}", _cells(rate)) for name, rate in report.reviewers.items()]
    return rows + [(name, _cells(rate)) for name, rate in report.strata.items()]


def _cells(rate: Rate) -> list[str]:
    share = rate.share
    rates = [percent(share.value), interval(share.low, share.high, ".1%").strip()]
    return [f"{rate.agreed} of {rate.of}", *rates, number(rate.kappa)]


#: A pair's label by the jury and by the experts.
Both = tuple[str, str]


def review_report(sample: Sequence[Sampled], reviews: Reviews, now: str = "") -> ReviewReport:
    """Measure how far experts agree with the jury's own labels, and with each other.

    Args:
        sample: What was drawn, with the jury's labels at that time.
        reviews: What experts said.
        now: The rule and judges of the verdicts as they are now, see :attr:`Verdict.rule`.
    """
    pairs = {one.pair: one for one in sample}
    said = {pair: by for pair, by in reviews.latest().items() if pair in pairs}
    labels = {pair: label for pair, label in reviews.settled().items() if pair in pairs}
    strata: dict[str, list[Both]] = {}
    sizes: dict[str, int] = {}
    lacking: list[Both] = []
    rest: Counter[str] = Counter()
    for pair, label in labels.items():
        one = pairs[pair]
        if label and one.stratum.label == "undecided":
            rest[label] += 1
        elif label:
            strata.setdefault(str(one.stratum), []).append((one.stratum.label, label))
            sizes[str(one.stratum)] = one.population
            lacking += [(one.stratum.label, label)] if one.stratum.audited == FALSE_NEGATIVE else []
    return ReviewReport(
        len(sample),
        sum(label is not None for label in labels.values()),
        _rate([one for both in strata.values() for one in both]),
        *_weighted(strata, sizes),
        {name: _rate(both) for name, both in sorted(strata.items())},
        _reviewers(said, pairs),
        dict(rest),
        sum(label is None for label in labels.values()),
        _between(said),
        _rate(lacking) if any(one.stratum.audited == FALSE_NEGATIVE for one in sample) else None,
        *_positives([(pairs[pair], label) for pair, label in labels.items() if label]),
        next((one.rule for one in sample if one.rule), ""),
        now,
        any(one.stratum.disagreement == WRITTEN for one in sample),
    )


def _rate(both: Sequence[Both]) -> Rate:
    agreed = sum(jury == expert for jury, expert in both)
    kappa = cohen_kappa([jury for jury, _ in both], [expert for _, expert in both])
    one_sided = len({jury for jury, _ in both}) < 2
    return Rate(agreed, len(both), wilson(agreed, len(both)), math.nan if one_sided else kappa)


def _weighted(strata: Mapping[str, Sequence[Both]], sizes: Mapping[str, int]) -> tuple[Interval, float]:
    total = sum(sizes.values())
    if not total:
        return wilson(0, 0), math.nan
    weights = {name: sizes[name] / total / len(both) for name, both in strata.items()}
    share = sum(weights[name] * (jury == expert) for name, both in strata.items() for jury, expert in both)
    effective = 1 / sum(weights[name] ** 2 * len(both) for name, both in strata.items())
    every = [(*one, weights[name]) for name, both in strata.items() for one in both]
    kappa = cohen_kappa([one[0] for one in every], [one[1] for one in every], [one[2] for one in every])
    return wilson(share * effective, effective), kappa


def _positives(labelled: Sequence[tuple[Sampled, str]]) -> tuple[Interval, float]:
    """The share of positives among all verdicts of the strata that have labels: by the experts, and by the jury.

    The jury's errors are not the same on both sides, so its own share is off by more than its agreement tells; the
    experts' share in each stratum, weighted by the stratum's size, is not (a stratified estimate).
    """
    strata: dict[str, list[bool]] = {}
    sizes: dict[str, int] = {}
    ours = 0
    for one, label in labelled:
        name = str(one.stratum)
        if name not in sizes:
            sizes[name] = one.population
            ours += one.population * (one.stratum.label == "positive")
        strata.setdefault(name, []).append(label == "positive")
    total = sum(sizes.values())
    if not total:
        return wilson(0, 0), math.nan
    share = sum(sizes[name] / total * sum(said) / len(said) for name, said in strata.items())
    effective = 1 / sum((sizes[name] / total) ** 2 / len(said) for name, said in strata.items())
    return wilson(share * effective, effective), ours / total


def _reviewers(said: Mapping[str, Mapping[str, Review]], pairs: Mapping[str, Sampled]) -> dict[str, Rate]:
    both: dict[str, list[Both]] = {}
    for pair, by in said.items():
        jury = pairs[pair].stratum.label
        for name, review in by.items():
            if review.label != "unsure" and jury != "undecided":
                both.setdefault(name, []).append((jury, review.label))
    return {name: _rate(one) for name, one in sorted(both.items())}


def _between(said: Mapping[str, Mapping[str, Review]]) -> dict[tuple[str, str], tuple[float, int]]:
    names = sorted({name for by in said.values() for name in by})
    kappas = {}
    for left, right in combinations(names, 2):
        both = [(by[left].label, by[right].label) for by in said.values() if left in by and right in by]
        both = [pair for pair in both if "unsure" not in pair]
        if both:
            kappas[left, right] = (cohen_kappa([a for a, _ in both], [b for _, b in both]), len(both))
    return kappas


def apply_reviews(verdicts: Iterable[Verdict], reviews: Reviews, names: Names | None = None) -> Iterator[Verdict]:
    """Verdicts with the experts' labels in place of the jury's where there is one; every word goes into the history.

    Args:
        verdicts: The jury's.
        reviews: The experts' labels.
        names: Under which names a verdict's pair may have been reviewed; that of its ids unless given.
    """
    history: dict[str, list[dict[str, Any]]] = {}
    for review in reviews:
        event = {"by": f"expert:{review.reviewer}", "label": review.label, "note": review.note}
        history.setdefault(review.pair, []).append(event | {"source": review.source, "at": review.at})
    labels = reviews.settled()
    for verdict in verdicts:
        known = names(verdict) if names else (pair_name(verdict.query_id, verdict.passage_id),)
        pair = next((name for name in known if name in history), None)
        if pair is None:
            yield verdict
            continue
        final = labels.get(pair) or verdict.label
        summed = {"by": "experts", "label": final, "before": verdict.label}
        yield replace(verdict, label=final, history=(*verdict.history, *history[pair], summed))


def _names(folder: JuryFolder, texts: Texts) -> Names:
    """The names of pairs whose texts are as the experts saw them."""
    queries = {pooled.id: pooled.text for pooled in read_pool(folder.pool)}
    sample = read_sample(folder.sample) if folder.sample.is_file() else []
    sampled = {(one.query_id, one.passage_id): one for one in sample}

    def names(verdict: Verdict) -> Iterator[str]:
        ids = (verdict.query_id, verdict.passage_id)
        now = (queries[verdict.query_id], texts.get([verdict.passage_id])[verdict.passage_id])
        yield pair_name(*ids, *now)
        # Samples of 0.2.0 name a pair by its ids alone; what was shown then is in the sample.
        one = sampled.get(ids)
        if one is not None and (one.query, one.passage) == now:
            yield one.pair

    return names


class Decided(NamedTuple):
    """What a consensus came to: how many verdicts of each label, whose votes were counted, and what was not."""

    labels: Counter[str]
    jury: list[str]
    left: LeftOut
    unused_reviews: int = 0

    def lines(self) -> list[str]:
        """What was left out, in words."""
        unused = f"{self.unused_reviews:,} pairs that experts labelled are not among these as they saw them: left out"
        return [*self.left.lines(), *([unused] if self.unused_reviews else [])]


def decide_folder(
    folder: JuryFolder,
    rule: Rule,
    jury: Sequence[str] | None = None,
    *,
    reviewed: bool = False,
    include: bool = False,
    to: Path | None = None,
) -> Decided:
    """Turn the votes of a jury's folder on its texts as they are into a file of verdicts.

    Args:
        folder: The jury's folder.
        rule: How votes become a label.
        jury: The judges that count; all that have finished unless given.
        reviewed: Whether experts' labels take the jury's place.
        include: Whether judges count who have not finished.
        to: The file, if not the folder's own.
    """
    labels: Counter[str] = Counter()
    used: set[tuple[str, str]] = set()

    def counted(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
        for verdict in verdicts:
            labels[verdict.label] += 1
            if verdict.history[-1].get("by") == "experts":
                used.add((verdict.query_id, verdict.passage_id))
            yield verdict

    with ExitStack() as stack:
        every = stack.enter_context(Votes(folder.votes, create=False))
        texts = stack.enter_context(Texts(folder.texts))
        votes = CurrentVotes(every, folder.pool, texts)
        names, left = votes.jury(jury, include=include)
        verdicts = consensus(votes, rule, names)
        unused = 0
        if reviewed:
            reviews = stack.enter_context(Reviews(folder.reviews))
            verdicts = apply_reviews(verdicts, reviews, _names(folder, texts))
            unused = len(reviews.latest().keys() | reviews.adjudicated().keys())
        write_verdicts(to or folder.verdicts, counted(verdicts))
    return Decided(labels, names, left, unused - len(used))
