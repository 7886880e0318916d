"""Whether two systems differ, and how much repeated seeds do: paired t-test, paired bootstrap, mean and deviation.

The numbers compared are per-query values of one metric (see :mod:`suwen.bench.metrics`), in one order on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    count = len(differences)
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        mean = float(differences[0])
        t = math.copysign(math.inf, mean) if mean else 0.0
        return TTest(mean, t, count - 1, 0.0 if mean else 1.0)
    t = mean / (float(differences.std(ddof=1)) / math.sqrt(count))
    return TTest(mean, t, count - 1, two_sided_p(t, count - 1))


def two_sided_p(t: float, degrees: float) -> float:
    """The chance that Student's t with these degrees of freedom lies farther from 0 than `t`."""
    if degrees <= 0 or math.isnan(t):
        raise StatisticsError(f"No p value for t = {t} with {degrees} degrees of freedom; both need real data.")
    return float(2 * _students_t().sf(abs(t), degrees))


def critical_t(p: float, degrees: float) -> float:
    """The t whose :func:`two_sided_p` is `p`: an interval of confidence 1 - p reaches so many standard errors."""
    return float(_students_t().isf(p / 2, degrees))


def _students_t() -> Any:
    try:
        from scipy import stats
    except ImportError as problem:
        raise StatisticsError("a test of significance needs scipy: pip install 'suwen[eval]'") from problem
    return stats.t


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
    if not 0 < confidence < 1:
        raise StatisticsError(f"The confidence is {confidence}; give a share between 0 and 1, such as 0.95.")
    if samples < 1:
        raise StatisticsError(f"The bootstrap was given {samples} resamples; 10,000 are usual.")
    differences = _differences(left, right)
    count = len(differences)
    generator = np.random.default_rng(seed)
    means = np.empty(samples)
    block = max(1, _DRAWS_PER_BLOCK // count)
    for start in range(0, samples, block):
        drawn = generator.integers(count, size=(min(block, samples - start), count))
        means[start : start + len(drawn)] = differences[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(differences.mean()), float(low), float(high), confidence)


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
