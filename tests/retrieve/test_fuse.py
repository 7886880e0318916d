"""Fusion by scores and by ranks, against their formulas: by hand and over random rankings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.index.engine import Ranking
from suwen.retrieve.fuse import (
    CONSTANT,
    DEPTH,
    FLOORS,
    WEIGHTS,
    Leg,
    fuse_hybrid,
    reciprocal_rank_fusion,
    relative,
    score_fusion,
)

RANKING = st.lists(st.integers(1, 30), unique=True, max_size=15)
# Whole numbers: scaled by a power of two or moved by a whole number they are exact, so that ties stay ties.
SCORED = st.dictionaries(st.integers(1, 30), st.integers(-20, 20), max_size=15)
WEIGHT = st.floats(0.1, 9)
check = settings(deadline=None, derandomize=True, database=None)


def ranking(scores: dict[int, float]) -> Ranking:
    rows = sorted(scores, key=lambda row: (-scores[row], row))
    return Ranking(np.array(rows, np.int64), np.array([scores[row] for row in rows], np.float32))


def by_row(fused: Ranking) -> dict[int, float]:
    return dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True))


# -- by scores --------------------------------------------------------------------------------------------------------


def test_scores_by_hand() -> None:
    dense, lexical = ranking({7: 0.9, 3: 0.8, 5: 0.4}), ranking({3: 12.0, 9: 6.0})
    fused = score_fusion([Leg(dense, 3.0), Leg(lexical, 1.0, floor=0.0)], k=9)
    assert fused.rows.tolist() == [3, 7, 9, 5]
    np.testing.assert_allclose(fused.scores, [0.75 * 0.8 + 0.25, 0.75, 0.25 * 0.5, 0], atol=1e-5)
    assert score_fusion([Leg(dense, 3.0), Leg(lexical, 1.0, floor=0.0)], k=2).rows.tolist() == [3, 7]


def test_without_a_floor_the_last_of_a_short_list_counts_nothing() -> None:
    assert relative(ranking({3: 12.0, 9: 6.0}))[0].tolist() == [1.0, 0.0]
    assert relative(ranking({3: 12.0, 9: 6.0}), floor=0.0)[0].tolist() == [1.0, 0.5]


def test_the_place_of_zero_and_what_lies_below_it() -> None:
    long = ranking({row: 10.0 - row for row in range(1, 6)})
    values, missing = relative(long, floor=0.0, depth=3)
    assert values.tolist() == [1.0, 0.5, 0.0, -0.5, -1.0]
    assert missing == -1.0
    # Whatever was read below it, the first places keep their values: a page does not change with the next one.
    assert relative(ranking({row: 10.0 - row for row in range(1, 4)}), floor=0.0, depth=3)[0].tolist() == [1, 0.5, 0]


@pytest.mark.parametrize("floor", [None, 0.0, 5.0])
def test_one_hit_and_equal_hits_are_all_best(floor: float | None) -> None:
    for scores in ({4: 5.0}, {4: 5.0, 8: 5.0}):
        values, missing = relative(ranking(scores), floor)
        assert set(values.tolist()) == {1.0} and missing == 0.0


def test_no_scores_to_fuse() -> None:
    empty = ranking({})
    assert score_fusion([], 5).rows.tolist() == []
    assert score_fusion([Leg(empty), Leg(empty, floor=0.0)], 5).rows.tolist() == []
    assert score_fusion([Leg(ranking({2: 0.5, 1: 0.7})), Leg(empty, floor=0.0)], 5).rows.tolist() == [1, 2]


def test_sums_that_differ_in_their_last_bits_are_equal() -> None:
    lexical = ranking({8: 21.0, 5: 14.000001, 3: 14.0, 1: 2.0})
    assert score_fusion([Leg(lexical, floor=0.0)], 9).rows.tolist() == [8, 3, 5, 1]


@check
@given(SCORED, SCORED, WEIGHT, WEIGHT, st.sampled_from([None, 0.0]), st.integers(1, 20), st.integers(1, 40))
def test_the_formula_of_scores(
    first: dict[int, float], second: dict[int, float], a: float, b: float, floor: float | None, depth: int, k: int
) -> None:
    fused = score_fusion([Leg(ranking(first), a), Leg(ranking(second), b, floor)], k, depth)
    wanted = dict.fromkeys(first | second, 0.0)
    for scores, weight, lowest in ((first, a, None), (second, b, floor)):
        ordered = sorted(scores.values(), reverse=True)
        if not ordered:
            continue
        zero = lowest if lowest is not None and len(ordered) < depth else ordered[:depth][-1]
        span = ordered[0] - zero
        last = min((ordered[-1] - zero) / span, 0) if span > 0 else 0
        for row in wanted:
            flat = 1 if row in scores and scores[row] == ordered[0] else 0
            value = ((scores[row] - zero) / span if row in scores else last) if span > 0 else flat
            wanted[row] += weight / (a + b) * value
    best = sorted(wanted.values(), reverse=True)[:k]
    np.testing.assert_allclose(fused.scores, best, atol=2e-5 * max(1, *map(abs, best), 1))
    for row, score in by_row(fused).items():
        assert score == pytest.approx(wanted[row], rel=1e-4, abs=2e-5)


@check
@given(SCORED, SCORED, WEIGHT, WEIGHT)
def test_the_order_of_the_legs_does_not_matter(
    first: dict[int, float], second: dict[int, float], a: float, b: float
) -> None:
    legs = [Leg(ranking(first), a), Leg(ranking(second), b, 0.0)]
    one, other = score_fusion(legs, 40), score_fusion(legs[::-1], 40)
    assert one.rows.tolist() == other.rows.tolist() and one.scores.tolist() == other.scores.tolist()


@check
@given(SCORED, SCORED, st.integers(-6, 6), st.integers(-50, 50), st.integers(-6, 6), st.integers(-6, 6))
def test_the_scale_of_a_leg_does_not_matter(
    first: dict[int, float], second: dict[int, float], power: int, shift: int, lexical: int, weights: int
) -> None:
    fused = score_fusion([Leg(ranking(first)), Leg(ranking(second), 1.0, 0.0)], 40)
    moved = ranking({row: score * 2.0**power + shift for row, score in first.items()})
    grown = ranking({row: score * 2.0**lexical for row, score in second.items()})
    other = score_fusion([Leg(moved, 2.0**weights), Leg(grown, 2.0**weights, 0.0)], 40)
    assert by_row(other) == pytest.approx(by_row(fused), abs=3e-5)


@check
@given(SCORED, SCORED, WEIGHT, WEIGHT, st.integers(1, 20), st.sampled_from(["scores", "ranks"]))
def test_what_both_legs_have_first_stays_first(
    first: dict[int, float], second: dict[int, float], a: float, b: float, k: int, fusion: str
) -> None:
    first[99] = max(first.values(), default=0) + 1
    second[99] = max(second.values(), default=0) + 1
    legs = {"dense": ranking(first), "lexical": ranking(second)}
    fused = fuse_hybrid(legs, k, {"dense": a, "lexical": b}, fusion)  # type: ignore[arg-type]
    assert fused.rows[0] == 99
    assert fusion == "ranks" or fused.scores[0] == pytest.approx(1.0)


@check
@given(SCORED, SCORED, st.integers(1, 40))
def test_no_row_twice_and_none_lost(first: dict[int, float], second: dict[int, float], k: int) -> None:
    fused = fuse_hybrid({"dense": ranking(first), "lexical": ranking(second)}, k)
    assert len(set(fused.rows.tolist())) == len(fused.rows) == min(k, len(first | second))
    assert fused.scores.tolist() == sorted(fused.scores.tolist(), reverse=True)


def test_the_hybrid_of_this_package() -> None:
    legs = {"dense": ranking({7: 0.9, 3: 0.8, 5: 0.4}), "lexical": ranking({3: 12.0, 9: 6.0})}
    assert (dict(WEIGHTS), dict(FLOORS)) == ({"dense": 2.0, "lexical": 1.0}, {"dense": None, "lexical": 0.0})
    by_hand = score_fusion([Leg(legs["dense"], 2.0), Leg(legs["lexical"], 1.0, floor=0.0)], 9)
    assert by_row(fuse_hybrid(legs, 9)) == by_row(by_hand)
    ranks = reciprocal_rank_fusion([(legs["dense"].rows, 3.0), (legs["lexical"].rows, 1.0)], 9)
    assert by_row(fuse_hybrid(legs, 9, {"dense": 3.0, "lexical": 1.0}, "ranks")) == by_row(ranks)
    assert fuse_hybrid(legs, 9, {"lexical": 0.5}).rows.tolist() == [3, 9]
    assert DEPTH == 200


# -- by ranks ---------------------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    fused = reciprocal_rank_fusion([(np.array([7, 3]), 1.0), (np.array([3, 9]), 2.0)], k=5)
    assert fused.rows.tolist() == [3, 9, 7]
    np.testing.assert_allclose(fused.scores, [1 / 62 + 2 / 61, 2 / 62, 1 / 61], rtol=1e-6)


def test_nothing_to_fuse() -> None:
    assert reciprocal_rank_fusion([], 5).rows.tolist() == []
    assert reciprocal_rank_fusion([(np.empty(0, np.int64), 1.0)], 5).rows.tolist() == []


@check
@given(RANKING, RANKING, WEIGHT, WEIGHT, st.integers(1, 40), st.integers(1, 100))
def test_the_formula(first: list[int], second: list[int], a: float, b: float, k: int, constant: int) -> None:
    legs = [(np.array(first, np.int64), a), (np.array(second, np.int64), b)]
    fused = reciprocal_rank_fusion(legs, k, constant)
    scores = dict.fromkeys(first + second, 0.0)
    for ranking, weight in ((first, a), (second, b)):
        for rank, row in enumerate(ranking, start=1):
            scores[row] += weight / (constant + rank)
    wanted = sorted(scores, key=lambda row: (-scores[row], row))[:k]
    np.testing.assert_allclose(fused.scores, [scores[row] for row in wanted], rtol=1e-5)
    assert sorted(fused.rows.tolist()) == sorted(wanted) or len(set(np.round(list(scores.values()), 9))) < len(scores)
    assert len(fused.rows) == min(k, len(scores))


def test_the_constant_is_the_papers() -> None:
    assert CONSTANT == 60
