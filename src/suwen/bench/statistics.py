"""Whether two systems differ, and how much repeated seeds do: paired t-test, paired bootstrap, mean and deviation.

The numbers compared are per-query values of one metric (see :mod:`suwen.bench.metrics`), in one order on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

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
    """The chance that Student's t with these degrees of freedom lies farther from 0 than `t`.

    It is I_x(degrees / 2, 1 / 2) at x = degrees / (degrees + t^2), I being the regularised incomplete beta function.
    """
    if degrees <= 0 or math.isnan(t):
        raise StatisticsError(f"No p value for t = {t} with {degrees} degrees of freedom; both need real data.")
    if math.isinf(t):
        return 0.0
    squared = t * t / degrees
    # log x and log(1 - x) come from the ratio itself: x alone would lose the small t of a large sample.
    log_x = -math.log1p(squared)
    log_rest = math.log(squared) + log_x if squared > 0 else -math.inf
    return _incomplete_beta(degrees / 2, 0.5, log_x, log_rest)


def _incomplete_beta(a: float, b: float, log_x: float, log_rest: float) -> float:
    """I_x(a, b), given log x and log(1 - x)."""
    if log_rest == -math.inf:
        return 1.0
    if log_x == -math.inf:
        return 0.0
    x = math.exp(log_x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * log_x + b * log_rest)
    # The fraction converges fast on this side of the mean only; on the other, take the complement.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, math.exp(log_rest)) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    # It takes about sqrt(max(a, b)) steps; 10,000 are enough for samples of 10^8.
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away_from_zero(1.0 + term * d, tiny)
            c = _away_from_zero(1.0 + term / c, tiny)
            step = c * d
            value *= step
        if abs(step - 1.0) < 1e-15:
            return value
    raise StatisticsError(f"The p value did not converge (a={a}, b={b}, x={x}); compare by the bootstrap interval.")


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


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
