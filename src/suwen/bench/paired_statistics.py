"""Whether two systems differ, and how much repeated seeds do: paired t-test, paired bootstrap, mean and deviation.

The numbers compared are per-query values of one metric (see ``retrieval_metrics``), in one order on both sides. Whether
two tasks rank many systems alike is told by rank correlation, over the systems' scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.errors import SuwenError

Floats = npt.NDArray[np.float64]

# A block of 2^20 draws is 8 MB of indices and 8 MB of values: large enough that the loop costs nothing.
_DRAWS_PER_BLOCK = 1 << 20


class StatisticsError(SuwenError):
    """Samples that cannot be compared: of different length, too few, or not finite."""


class TTest(NamedTuple):
    """A two-sided paired t-test of `left - right`."""

    difference: float
    t: float
    degrees: int
    p: float


class Interval(NamedTuple):
    """A mean difference `left - right` and its bootstrap interval."""

    difference: float
    low: float
    high: float
    confidence: float


class Spread(NamedTuple):
    """Mean and sample deviation of one number over repeated seeds; one seed has no deviation."""

    mean: float
    deviation: float | None
    seeds: int


def _differences(left: npt.ArrayLike, right: npt.ArrayLike) -> Floats:
    one, other = np.asarray(left, np.float64), np.asarray(right, np.float64)
    if one.ndim != 1 or one.shape != other.shape:
        raise StatisticsError(
            f"Paired samples need one value per query on both sides; their shapes are {one.shape} and {other.shape}. "
            "Score both systems on the same queries."
        )
    if len(one) < 2:
        raise StatisticsError(f"A paired comparison needs at least two queries; there are {len(one)}.")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise StatisticsError("A value to compare is NaN or infinite; score the run again and look at its errors.")
    return one - other


def paired_t_test(left: npt.ArrayLike, right: npt.ArrayLike) -> TTest:
    """Test whether two systems have the same mean over the same queries.

    Where every difference is the same there is no deviation to divide by: t is 0 and p 1 if the systems are equal on
    each query, else t is infinite and p 0.

    Raises:
        StatisticsError: If the samples differ in length, hold fewer than two values, or are not finite.
    """
    differences = _differences(left, right)
    degrees = len(differences) - 1
    if np.ptp(differences) == 0:
        mean = float(differences[0])
        t = math.copysign(math.inf, mean) if mean else 0.0
    else:
        mean = float(differences.mean())
        t = mean / (float(differences.std(ddof=1)) / math.sqrt(len(differences)))
    return TTest(mean, t, degrees, float(2 * _scipy_stats().t.sf(abs(t), degrees)))


def critical_t(p: float, degrees: float) -> float:
    """The t that chance exceeds, on either side, with probability `p`: how many standard errors an interval reaches."""
    return float(_scipy_stats().t.isf(p / 2, degrees))


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as problem:
        raise StatisticsError("a test of significance needs scipy: pip install 'suwen[eval]'") from problem
    return stats


def paired_bootstrap(
    left: npt.ArrayLike, right: npt.ArrayLike, *, confidence: float = 0.95, samples: int = 10_000, seed: int = 0
) -> Interval:
    """The percentile bootstrap interval of the mean difference of two systems over the same queries.

    Queries are drawn with replacement, both systems' values together. Memory does not grow with `samples` x queries.

    Args:
        left: One value per query.
        right: One value per query, in the same order.
        confidence: How often the interval should hold the true difference, between 0 and 1.
        samples: How many resamples to draw.
        seed: The same seed gives the same interval.

    Raises:
        StatisticsError: For unpaired or unusable samples, a confidence outside (0, 1), or no resamples.
    """
    return mean_bootstrap([(left, right)], confidence=confidence, samples=samples, seed=seed)


def mean_bootstrap(
    tasks: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    confidence: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """The same of the mean of several tasks, each as heavy as the others: queries are drawn within each task.

    >>> found = mean_bootstrap([([1.0, 1.0], [0.0, 0.0]), ([0.5, 0.5, 0.5], [0.0, 0.0, 0.0])])
    >>> found.difference, found.low, found.high
    (0.75, 0.75, 0.75)
    """
    if not 0 < confidence < 1:
        raise StatisticsError(f"The confidence is {confidence}; give a share between 0 and 1, such as 0.95.")
    if samples < 1:
        raise StatisticsError(f"The bootstrap was given {samples} resamples; 10,000 are usual.")
    differences = [_differences(*sides) for sides in tasks]

    def mean_of_means(*drawn: Floats, axis: int) -> Any:
        return np.mean([one.mean(axis=axis) for one in drawn], axis=0)

    drawn = _scipy_stats().bootstrap(
        differences,
        mean_of_means,
        vectorized=True,
        n_resamples=samples,
        batch=max(1, _DRAWS_PER_BLOCK // max(map(len, differences))),
        confidence_level=confidence,
        method="percentile",
        random_state=np.random.default_rng(seed),
    )
    low, high = drawn.confidence_interval
    return Interval(float(np.mean([one.mean() for one in differences])), float(low), float(high), confidence)


def rank_agreement(scores: Mapping[str, Mapping[str, float]]) -> Iterator[dict[str, Any]]:
    """How alike every two columns rank the systems that both have: Spearman's rho and Kendall's tau-b, with their p.

    Columns that share fewer than three systems, or give all of them one score, have no correlation and are left out.

    >>> names = ("one", "two", "three", "four")
    >>> scores = {"old": dict(zip(names, (1, 2, 3, 4))), "new": dict(zip(names, (1, 3, 2, 4)))}
    >>> [(round(one["spearman"], 3), round(one["kendall"], 3)) for one in rank_agreement(scores)]
    [(0.8, 0.667)]
    """
    for first, second in combinations(scores, 2):
        shared = [system for system in scores[first] if system in scores[second]]
        sides = [[scores[name][system] for system in shared] for name in (first, second)]
        if len(shared) > 2 and min(len(set(side)) for side in sides) > 1:
            rho, tau = _scipy_stats().spearmanr(*sides), _scipy_stats().kendalltau(*sides)
            yield {
                "first": first,
                "second": second,
                "systems": len(shared),
                "spearman": float(rho.statistic),
                "spearman_p": float(rho.pvalue),
                "kendall": float(tau.statistic),
                "kendall_p": float(tau.pvalue),
            }


def over_seeds(values: Sequence[float] | Floats) -> Spread:
    """Mean and sample deviation (n - 1) of a result over repeated seeds.

    Raises:
        StatisticsError: If there is no value, or one is not finite.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise StatisticsError(f"Repeated seeds need a list of results; this has shape {array.shape}.")
    if not np.isfinite(array).all():
        raise StatisticsError("The result of a seed is NaN or infinite; leave that seed out or run it again.")
    return Spread(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None, len(array))
