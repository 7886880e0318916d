import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from suwen.bench import paired_statistics as statistics
from suwen.bench.paired_statistics import (
    StatisticsError,
    over_seeds,
    paired_bootstrap,
    paired_t_test,
    rank_agreement,
)
from suwen.bench.retrieval_metrics import spearman

VALUES = st.floats(min_value=-1e3, max_value=1e3).map(lambda value: round(value, 6))


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=60))
def test_t_test_is_scipys(pairs):
    left, right = np.array(pairs).T
    ours = paired_t_test(left, right)
    if np.ptp(left - right) == 0:
        assert ours.p == (1.0 if np.array_equal(left, right) else 0.0)
        return
    oracle = stats.ttest_rel(left, right)
    assert ours.degrees == oracle.df
    assert ours.t == pytest.approx(oracle.statistic, rel=1e-9, abs=1e-12)
    assert ours.p == pytest.approx(oracle.pvalue, rel=1e-8, abs=1e-300)


def test_t_test_by_hand():
    # Differences 1, 2, 3: mean 2, deviation 1, t = 2 / (1 / sqrt(3)); with 2 degrees p = 1 - t / sqrt(t^2 + 2).
    found = paired_t_test([2, 4, 6], [1, 2, 3])
    assert found.difference == 2 and found.degrees == 2
    assert found.t == pytest.approx(2 * math.sqrt(3))
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_equal_differences_have_no_deviation():
    assert paired_t_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])[1:] == (0.0, 2, 1.0)
    assert paired_t_test([1, 2, 3], [2, 3, 4])[1:] == (-math.inf, 2, 0.0)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ([1, 2], [1, 2, 3], "same queries"),
        ([1], [2], "at least two"),
        ([1, math.nan], [1, 2], "NaN"),
        ([[1, 2]], [[1, 2]], "one value per query"),
    ],
)
def test_unpaired_samples_are_refused(left, right, message):
    with pytest.raises(StatisticsError, match=message):
        paired_t_test(left, right)
    with pytest.raises(StatisticsError, match=message):
        paired_bootstrap(left, right)


def test_bootstrap_is_that_of_drawing_by_hand_but_for_chance():
    rng = np.random.default_rng(3)
    left, right = rng.random(200), rng.random(200) * 0.8
    ours = paired_bootstrap(left, right, confidence=0.9, samples=20_000, seed=1)
    drawn = (left - right)[np.random.default_rng(2).integers(200, size=(20_000, 200))].mean(axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95])
    assert ours.difference == pytest.approx((left - right).mean())
    assert abs(ours.low - low) < 0.03 * (high - low) and abs(ours.high - high) < 0.03 * (high - low)


def test_bootstrap_is_the_seeds_and_pairs_queries():
    rng = np.random.default_rng(4)
    left = rng.random(50)
    right = left - 0.25
    # Paired: the difference is the same on every query, so no resample can move it.
    found = paired_bootstrap(left, right, samples=100)
    assert found.low == pytest.approx(0.25) and found.high == pytest.approx(0.25)
    noisy = rng.random(50)
    assert paired_bootstrap(left, noisy, seed=5) == paired_bootstrap(left, noisy, seed=5)
    assert paired_bootstrap(left, noisy, seed=5) != paired_bootstrap(left, noisy, seed=6)


def test_bootstrap_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(8)
    held = 0
    for seed in range(200):
        sample = rng.normal(0.3, 1, 80)
        found = paired_bootstrap(sample, np.zeros(80), confidence=0.9, samples=500, seed=seed)
        held += found.low <= 0.3 <= found.high
    assert 165 <= held <= 195


@pytest.mark.parametrize("draws", [1, 7, 1 << 12])
def test_bootstrap_memory_is_bounded_and_blocks_do_not_matter(monkeypatch, draws):
    rng = np.random.default_rng(9)
    left, right = rng.random(300), rng.random(300)
    whole = paired_bootstrap(left, right, samples=400)
    monkeypatch.setattr(statistics, "_DRAWS_PER_BLOCK", draws)
    tracemalloc.start()
    assert paired_bootstrap(left, right, samples=400) == whole
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 * 300 * 8 / 4


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"confidence": 0.0}, {"samples": 0}])
def test_bootstrap_refuses_wrong_settings(wrong):
    with pytest.raises(StatisticsError):
        paired_bootstrap([1, 2], [2, 1], **wrong)


def test_over_seeds():
    found = over_seeds([70.0, 71.0, 72.0])
    assert found == (71.0, 1.0, 3)
    assert over_seeds([70.5]) == (70.5, None, 1)
    for wrong in ([], [1.0, math.inf]):
        with pytest.raises(StatisticsError):
            over_seeds(wrong)


def tau_b(left, right):
    """Kendall's tau-b, pair by pair."""
    signs = [(np.sign(left[i] - left[j]), np.sign(right[i] - right[j])) for i in range(len(left)) for j in range(i)]
    untied = [sum(one != 0 for one in side) for side in zip(*signs, strict=True)]
    return sum(one * other for one, other in signs) / math.sqrt(untied[0] * untied[1])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=20))
def test_rank_agreement_is_what_other_ways_to_count_give(pairs):
    left, right = ([float(value) for value in side] for side in zip(*pairs, strict=True))
    scores = {name: dict(enumerate(side)) for name, side in (("old", left), ("new", right))}
    found = list(rank_agreement(scores))
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert found == []
        return
    (one,) = found
    assert (one["first"], one["second"], one["systems"]) == ("old", "new", len(pairs))
    assert one["spearman"] == pytest.approx(spearman(left, right), abs=1e-12)
    assert one["kendall"] == pytest.approx(tau_b(left, right), abs=1e-12)


def test_rank_agreement_is_over_what_both_columns_have():
    scores = {"a": {"x": 1, "y": 2, "z": 3}, "b": {"z": 1, "y": 2, "x": 3, "w": 9}, "c": {"x": 1, "w": 2}}
    (one,) = rank_agreement(scores)
    assert (one["first"], one["second"], one["systems"]) == ("a", "b", 3)
    assert (one["spearman"], one["kendall"]) == pytest.approx((-1, -1))
