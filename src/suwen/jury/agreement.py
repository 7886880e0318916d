"""How far judges agree: Fleiss' and Cohen's kappa with intervals, severity, and each query by itself. Pure arrays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.jury.verdicts import GRADES, VALUES, JuryProblem, Vote

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_DRAWS = 2000
_NONE = -1
_PART = 100_000


class Interval(NamedTuple):
    """An estimate with its 95% interval; NaN where it is not defined."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratings:
    """The votes of one round as a table.

    Attributes:
        judges: The columns.
        pairs: The rows: query and passage.
        query: The number of each row's query.
        grades: Numbers of grades, 4 for S to 0 for D; -1 where there is no grade.
        absent: Where a vote is an abstention, not merely missing.
    """

    judges: tuple[str, ...]
    pairs: list[tuple[str, str]]
    query: Ints
    grades: npt.NDArray[np.int8]
    absent: npt.NDArray[np.bool_]

    @property
    def complete(self) -> npt.NDArray[np.bool_]:
        """The rows that every judge graded."""
        return np.asarray((self.grades != _NONE).all(axis=1), np.bool_)


def ratings(votes: Iterable[Vote], judges: Sequence[str]) -> Ratings:
    """Lay votes of the first round out as a table; those of other judges are left out.

    Args:
        votes: In the order of the store: those of one pair follow each other.
        judges: The columns.
    """
    column = {name: number for number, name in enumerate(judges)}
    pairs: list[tuple[str, str]] = []
    # Flat and one byte a vote: a million pairs of three judges are a few megabytes.
    grades, absent = array("b"), array("b")
    for vote in votes:
        if vote.round != 0 or vote.judge not in column:
            continue
        if not pairs or pairs[-1] != (vote.query_id, vote.passage_id):
            pairs.append((vote.query_id, vote.passage_id))
            grades.extend([_NONE] * len(judges))
            absent.extend([0] * len(judges))
        place = column[vote.judge] - len(judges)
        if vote.grade is None:
            absent[place] = 1
        else:
            grades[place] = VALUES[vote.grade]
    numbers: dict[str, int] = {}
    query = np.array([numbers.setdefault(id_, len(numbers)) for id_, _ in pairs], np.int64)
    shape = (len(pairs), len(judges))
    table = np.array(grades, np.int8).reshape(shape)
    return Ratings(tuple(judges), pairs, query, table, np.array(absent, np.bool_).reshape(shape))


def sides(table: Ratings, worst: str = "A") -> Ratings:
    """The same table with grades as two sides: 1 at the cut or better, 0 below it."""
    graded = table.grades != _NONE
    two = np.where(graded, (table.grades >= VALUES[worst]).astype(np.int8), np.int8(_NONE))
    return replace(table, grades=two)


def counted(grades: npt.NDArray[np.int8], categories: int) -> Ints:
    """How many judges chose each category, row by row."""
    return np.stack([(grades == value).sum(axis=1) for value in range(categories)], axis=1).astype(np.int64)


def fleiss_kappa(counts: npt.ArrayLike) -> float:
    r"""Fleiss' kappa of a table of counts, one row an item, one column a category.

    :math:`\kappa = (\bar P - \bar P_e) / (1 - \bar P_e)`, where :math:`\bar P` is the mean share of agreeing pairs of
    judges in an item and :math:`\bar P_e` the sum of the squared shares of the categories (Fleiss 1971). NaN where all
    votes are in one category: there is nothing to agree about beyond chance.

    >>> round(fleiss_kappa([[3, 0], [0, 3], [2, 1], [3, 0]]), 4)
    0.625
    """
    table = np.asarray(counts, np.float64)
    if table.ndim != 2 or not len(table):
        return math.nan
    judges = table.sum(axis=1)
    if judges[0] < 2 or (judges != judges[0]).any():
        raise JuryProblem("Fleiss' kappa needs the same number of judges, at least 2, for every item")
    return float(_kappas(_sums(table).sum(axis=0, keepdims=True))[0])


def _sums(table: Floats) -> Floats:
    """What kappa is made of, for one item each: agreement, one for the item, and the share of each category."""
    judges = table.sum(axis=1, keepdims=True)
    agreed = ((table**2).sum(axis=1, keepdims=True) - judges) / (judges * (judges - 1))
    return np.hstack([agreed, np.ones_like(agreed), table / judges])


def _kappas(totals: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        agreed = totals[:, 0] / totals[:, 1]
        chance = ((totals[:, 2:] / totals[:, 1:2]) ** 2).sum(axis=1)
        kappas: Floats = np.where(chance < 1 - 1e-12, (agreed - chance) / (1 - chance), np.nan)
    return kappas


def fleiss_interval(counts: Ints, query: Ints, *, draws: int = _DRAWS, seed: int = 0) -> Interval:
    """Fleiss' kappa with a percentile bootstrap interval over queries; NaN of nothing, or of a single judge.

    Whole queries are drawn: pairs of one query are alike, and drawing pairs would make the interval too narrow.
    """
    if not len(counts) or counts[0].sum() < 2:
        return Interval(math.nan, math.nan, math.nan)
    value = fleiss_kappa(counts)
    sums = _sums(counts.astype(np.float64))
    _, number = np.unique(query, return_inverse=True)
    groups = np.zeros((number.max() + 1, sums.shape[1]))
    np.add.at(groups, number, sums)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=draws)
    drawn = _kappas(weights.astype(np.float64) @ groups)
    drawn = drawn[~np.isnan(drawn)]
    if not len(drawn):
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(value, float(low), float(high))


def cohen_kappa(left: npt.ArrayLike, right: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """Cohen's kappa of two judges on the same items; NaN where both always say the same one thing.

    Args:
        left: What one says.
        right: What the other says.
        weights: What each item counts, for a sample that stands for more; all the same unless given.

    >>> cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0])
    0.5
    """
    a, b = np.asarray(left), np.asarray(right)
    if not len(a):
        return math.nan
    counts = np.ones(len(a)) if weights is None else np.asarray(weights, np.float64)
    agreed = float(np.average(a == b, weights=counts))
    shares = [np.average([a == value, b == value], axis=1, weights=counts) for value in np.union1d(a, b)]
    chance = float(np.prod(shares, axis=1).sum())
    return (agreed - chance) / (1 - chance) if chance < 1 - 1e-12 else math.nan


def weighted_kappa(left: npt.ArrayLike, right: npt.ArrayLike) -> float:
    """Cohen's kappa of two judges' numbers with quadratic weights: two grades apart is four times as bad as one.

    NaN where both always say the same one thing.

    >>> round(weighted_kappa([4, 3, 1, 0], [4, 4, 0, 0]), 4)
    0.9231
    """
    a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
    if not len(a):
        return math.nan
    # The mean square of the difference where either says what it says at random.
    chance = float((a**2).mean() + (b**2).mean() - 2 * a.mean() * b.mean())
    return 1 - float(((a - b) ** 2).mean()) / chance if chance > 1e-12 else math.nan


def _coincidences(grades: npt.NDArray[np.int8], categories: int) -> Floats:
    """How often each two values meet in each item, over the number of other values it has: items with one have none."""
    counts = counted(grades, categories).astype(np.float64)
    size = counts.sum(axis=1)[:, None, None]
    meets = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(categories)
    return np.where(size > 1, meets / np.maximum(size - 1, 1), 0.0)


def _meetings(grades: npt.NDArray[np.int8], group: Ints, categories: int) -> Floats:
    """The coincidences of each group of items, added up; a part at a time, since an item takes 25 numbers."""
    groups = np.zeros((int(group.max()) + 1, categories, categories))
    for start in range(0, len(grades), _PART):
        part = slice(start, start + _PART)
        np.add.at(groups, group[part], _coincidences(grades[part], categories))
    return groups


def _alphas(totals: Floats, *, ordered: bool) -> Floats:
    """Krippendorff's alpha of coincidence matrices, one for each along the first axis."""
    sizes = totals.sum(axis=2)
    number = totals.shape[1]
    apart = np.broadcast_to(1 - np.eye(number), totals.shape)
    if ordered:
        below = np.concatenate([np.zeros((len(sizes), 1)), np.cumsum(sizes, axis=1)], axis=1)
        # The values from one grade to another, with half of either end.
        middle = below[:, :-1] + sizes / 2
        apart = (middle[:, :, None] - middle[:, None, :]) ** 2
    observed = (totals * apart).sum(axis=(1, 2))
    expected = (sizes[:, :, None] * sizes[:, None, :] * apart).sum(axis=(1, 2)) / np.maximum(sizes.sum(axis=1) - 1, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        alphas: Floats = np.where(expected > 1e-12, 1 - observed / expected, np.nan)
    return alphas


def alpha_interval(
    grades: npt.NDArray[np.int8],
    query: Ints,
    categories: int,
    *,
    ordered: bool = False,
    draws: int = _DRAWS,
    seed: int = 0,
) -> Interval:
    r"""Krippendorff's alpha with a percentile bootstrap interval over whole queries; NaN of nothing.

    :math:`\alpha = 1 - D_o / D_e`, observed over expected disagreement among the values of an item; unlike Fleiss'
    kappa it takes items that not every judge graded (Krippendorff, Content Analysis, chapter 12).

    Args:
        grades: One row an item, one column a judge, numbers from 0, -1 where there is none.
        query: The query of each row.
        categories: How many values there are.
        ordered: Whether the values are in an order, so that those far apart disagree more (the ordinal form).
        draws: How many times queries are drawn.
        seed: Of the draws.
    """
    if not len(grades):
        return Interval(math.nan, math.nan, math.nan)
    _, group = np.unique(query, return_inverse=True)
    groups = _meetings(grades, group, categories)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=draws)
    drawn = _alphas(np.tensordot(weights.astype(np.float64), groups, 1), ordered=ordered)
    drawn, value = drawn[~np.isnan(drawn)], float(_alphas(groups.sum(axis=0, keepdims=True), ordered=ordered)[0])
    low, high = np.quantile(drawn, (0.025, 0.975)) if len(drawn) else (math.nan, math.nan)
    return Interval(value, float(low), float(high))


class Severity(NamedTuple):
    """How one judge grades.

    Attributes:
        judge: Its name.
        graded: Pairs it graded.
        abstained: Pairs it abstained on.
        shares: The share of each grade, S to D.
        mean: The mean grade, 4 for S to 0 for D.
        positive: The share at the cut or better.
        difference: Its mean less that of the other judges, on the pairs all of them graded; below 0 is severe.
    """

    judge: str
    graded: int
    abstained: int
    shares: tuple[float, ...]
    mean: float
    positive: float
    difference: float


def severity(table: Ratings, worst: str = "A") -> list[Severity]:
    """How each judge grades, alone and beside the others."""
    both = table.grades[table.complete].astype(np.float64)
    severities = []
    for number, judge in enumerate(table.judges):
        own = table.grades[:, number]
        own = own[own != _NONE]
        others = np.delete(both, number, axis=1)
        apart = float((both[:, number] - others.mean(axis=1)).mean()) if others.size else math.nan
        shares = tuple(float((own == VALUES[grade]).mean()) if own.size else math.nan for grade in GRADES)
        mean, positive = (float(own.mean()), float((own >= VALUES[worst]).mean())) if own.size else (math.nan,) * 2
        absent = int(table.absent[:, number].sum())
        severities.append(Severity(judge, len(own), absent, shares, mean, positive, apart))
    return severities


class QueryAgreement(NamedTuple):
    """How far the judges agree on one query: on the two sides, over the pairs all of them graded."""

    query_id: str
    pairs: int
    complete: int
    unanimous: float
    kappa: float


@dataclass(frozen=True)
class Agreement:
    """Everything about one jury's agreement.

    Attributes:
        judges: Their names.
        pairs: Pairs with a vote.
        complete: Pairs that all judges graded; the kappas are over these.
        sides: Fleiss' kappa of positive against negative.
        grades: Fleiss' kappa of the five grades.
        pairwise: Cohen's kappa of two judges on the two sides, over what both graded.
        severity: How each judge grades.
        queries: Each query, least agreement first.
        alpha_sides: Krippendorff's alpha of positive against negative, over every pair with two grades or more.
        alpha_grades: The same of the five grades, in their order.
        weighted: Cohen's kappa with quadratic weights of two judges on the five grades.
    """

    judges: tuple[str, ...]
    pairs: int
    complete: int
    sides: Interval
    grades: Interval
    pairwise: dict[tuple[str, str], float]
    severity: list[Severity]
    queries: list[QueryAgreement]
    alpha_sides: Interval
    alpha_grades: Interval
    weighted: dict[tuple[str, str], float]


def agreement(table: Ratings, worst: str = "A", *, draws: int = _DRAWS, seed: int = 0) -> Agreement:
    """Measure the agreement of a jury of at least one judge; kappas of a single judge are NaN."""
    two = sides(table, worst)
    whole = table.complete
    both, five = (
        fleiss_interval(counted(grades[whole], categories), table.query[whole], draws=draws, seed=seed)
        for grades, categories in ((two.grades, 2), (table.grades, 5))
    )
    pairwise, weighted = {}, {}
    for left, right in combinations(range(len(table.judges)), 2):
        graded = (two.grades[:, left] != _NONE) & (two.grades[:, right] != _NONE)
        names = (table.judges[left], table.judges[right])
        pairwise[names] = cohen_kappa(two.grades[graded, left], two.grades[graded, right])
        weighted[names] = weighted_kappa(table.grades[graded, left], table.grades[graded, right])
    return Agreement(
        table.judges,
        len(table.pairs),
        int(whole.sum()),
        both,
        five,
        pairwise,
        severity(table, worst),
        _queries(two),
        alpha_interval(two.grades, table.query, 2, draws=draws, seed=seed),
        alpha_interval(table.grades, table.query, 5, ordered=True, draws=draws, seed=seed),
        weighted,
    )


def _queries(two: Ratings) -> list[QueryAgreement]:
    measured = []
    edges = np.flatnonzero(np.diff(two.query)) + 1
    for rows in np.split(np.arange(len(two.pairs)), edges) if two.pairs else []:
        grades = two.grades[rows]
        whole = grades[(grades != _NONE).all(axis=1)]
        same = float((whole == whole[:, :1]).all(axis=1).mean()) if len(whole) else math.nan
        kappa = fleiss_kappa(counted(whole, 2)) if len(whole) and len(two.judges) > 1 else math.nan
        measured.append(QueryAgreement(two.pairs[rows[0]][0], len(rows), len(whole), same, kappa))
    return sorted(measured, key=lambda one: (np.nan_to_num(one.unanimous, nan=2.0), one.query_id))
