"""Fusion by scores and by ranks, against their formulas: by hand and over random rankings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.index.engine import Ranking, Rows, Vectors
from suwen.retrieve.fuse import (
    CONSTANT,
    DEPTH,
    FEW,
    GROWTH,
    MOVED,
    NEARNESS,
    POWER,
    STEP,
    TYPICAL,
    WEIGHTS,
    WORDS,
    by_nearness,
    fuse_hybrid,
    reciprocal_rank_fusion,
    score_fusion,
    values,
    words_read,
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


def fused_by(
    dense: dict[int, float], lexical: dict[int, float], most: float, k: int = 40, weight: float = 1.0
) -> Ranking:
    legs = {"dense": ranking(dense), "lexical": ranking(lexical)._replace(most=most)}
    return score_fusion(legs, {"dense": weight, "lexical": 1.0}, k)


def test_scores_by_hand() -> None:
    fused = fused_by({7: 0.9, 3: 0.8, 5: 0.4}, {3: TYPICAL / 2, 9: TYPICAL / 4}, TYPICAL, weight=3.0)
    assert fused.rows.tolist() == [3, 7, 9, 5]
    half, quarter = 0.5**POWER, 0.25**POWER
    # What a leg did not return counts as its last: of vectors every passage has a place, of words it has none.
    wanted = [0.75 * 0.9, 0.75 * 0.8 + 0.25 * half, 0.75 * 0.4 + 0.25 * quarter, 0.75 * 0.4]
    np.testing.assert_allclose(sorted(fused.scores), sorted(wanted), atol=1e-5)
    assert fused_by({7: 0.9, 3: 0.8}, {3: TYPICAL}, TYPICAL, k=1).rows.tolist() == [3]


def test_the_best_of_a_bad_lot_counts_little() -> None:
    dense = {1: 0.8, 2: 0.7, 3: 0.3}
    assert fused_by(dense, {3: 1.0}, 60.0).rows[0] == 1, "one question word out of many"
    assert fused_by(dense, {3: 55.0}, 60.0).rows[0] == 3, "nearly all of the query"


def test_without_the_most_a_list_is_measured_by_its_best() -> None:
    assert values("lexical", ranking({3: 12.0, 9: 6.0}))[0].tolist() == pytest.approx([1.0, 0.5**POWER], abs=1e-5)


def test_a_share_of_a_long_query_is_worth_more_than_of_a_short_one() -> None:
    short, long = (values("lexical", ranking({3: most / 4})._replace(most=most))[0][0] for most in (50.0, 800.0))
    assert long / short == pytest.approx(16**GROWTH, abs=1e-3)


def test_inner_products_are_counted_in_their_unit() -> None:
    assert values("dense", ranking({3: 12.0, 9: 6.0}), 12.0)[0].tolist() == [1.0, 0.5]


def test_beside_vectors_no_more_words_count_than_the_first_forty() -> None:
    worded = {row: 150.0 - row / 2 for row in range(1, DEPTH + 1)}
    whole, cut = (ranking(dict(list(worded.items())[:count]))._replace(most=TYPICAL) for count in (DEPTH, WORDS))
    last = ((150 - WORDS / 2) / TYPICAL) ** POWER
    assert values("lexical", whole)[1] == values("lexical", cut)[1] == pytest.approx(last, abs=1e-5)
    assert values("lexical", ranking({3: 12.0})._replace(most=12.0))[1] == 0.0, "there is no more of this list"
    dense = ranking({row: 0.5 + row / 1000 for row in range(1, DEPTH + 1)})
    read = [by_row(score_fusion({"dense": dense, "lexical": words}, WEIGHTS, DEPTH)) for words in (whole, cut)]
    assert read[0] == read[1], "reading words deeper changes nothing"
    alone = score_fusion({"lexical": whole}, WEIGHTS, DEPTH).rows
    assert alone.tolist() == whole.rows.tolist(), "words alone count all the way"


def test_how_deep_words_are_read() -> None:
    assert words_read(DEPTH, WEIGHTS, "scores") == words_read(10, WEIGHTS, "scores") == WORDS
    assert words_read(2000, WEIGHTS, "scores") == 2000
    assert words_read(DEPTH, WEIGHTS, "ranks") == words_read(DEPTH, {"lexical": 1.0}, "scores") == DEPTH


def test_no_scores_to_fuse() -> None:
    assert score_fusion({}, {}, 5).rows.tolist() == []
    assert fused_by({}, {}, 1.0).rows.tolist() == []
    assert fused_by({2: 0.5, 1: 0.7}, {}, 1.0).rows.tolist() == [1, 2]


def test_sums_that_differ_in_their_last_bits_are_equal() -> None:
    lexical = ranking({8: 21.0, 5: 14.000001, 3: 14.0, 1: 2.0})._replace(most=30.0)
    assert score_fusion({"lexical": lexical}, {"lexical": 1.0}, 9).rows.tolist() == [8, 3, 5, 1]


@check
@given(SCORED, SCORED, WEIGHT, WEIGHT)
def test_the_order_of_the_legs_does_not_matter(
    first: dict[int, float], second: dict[int, float], a: float, b: float
) -> None:
    legs = {"dense": ranking(first), "lexical": ranking(second)._replace(most=40.0)}
    weights = {"dense": a, "lexical": b}
    one, other = score_fusion(legs, weights, 40), score_fusion(dict(reversed(legs.items())), weights, 40)
    assert one.rows.tolist() == other.rows.tolist() and one.scores.tolist() == other.scores.tolist()


@check
@given(SCORED, SCORED, WEIGHT, WEIGHT, st.integers(1, 20), st.sampled_from(["scores", "ranks"]))
def test_what_both_legs_have_first_stays_first(
    first: dict[int, float], second: dict[int, float], a: float, b: float, k: int, fusion: str
) -> None:
    first[99] = max(first.values(), default=0) + 1
    second[99] = max(second.values(), default=0) + 1
    legs = {"dense": ranking(first), "lexical": ranking(second)._replace(most=25.0)}
    fused = fuse_hybrid(legs, k, {"dense": a, "lexical": b}, fusion)  # type: ignore[arg-type]
    assert fused.rows[0] == 99 or fused.scores[0] == pytest.approx(fused.scores[fused.rows.tolist().index(99)])


@check
@given(SCORED, SCORED, st.integers(1, 40))
def test_no_row_twice_and_none_lost(first: dict[int, float], second: dict[int, float], k: int) -> None:
    fused = fuse_hybrid({"dense": ranking(first), "lexical": ranking(second)}, k)
    assert len(set(fused.rows.tolist())) == len(fused.rows) == min(k, len(first | second))
    assert fused.scores.tolist() == sorted(fused.scores.tolist(), reverse=True)


def test_the_hybrid_of_this_package() -> None:
    legs = {"dense": ranking({7: 0.9, 3: 0.8, 5: 0.4}), "lexical": ranking({3: 12.0, 9: 6.0})}
    by_hand = score_fusion(legs, WEIGHTS, 9)
    assert by_row(fuse_hybrid(legs, 9)) == by_row(by_hand)
    ranks = reciprocal_rank_fusion([(legs["dense"].rows, 3.0), (legs["lexical"].rows, 1.0)], 9)
    assert by_row(fuse_hybrid(legs, 9, {"dense": 3.0, "lexical": 1.0}, "ranks")) == by_row(ranks)
    assert fuse_hybrid(legs, 9, {"lexical": 0.5}).rows.tolist() == [3, 9]
    assert DEPTH == 200


# -- by what is near --------------------------------------------------------------------------------------------------


def plainly_near(scores: list[float], vectors: list[list[float]]) -> list[int]:
    """By the definition: a score, and the mean cosine to the first few, trusted by their scores, less that to all."""

    def cosine(one: list[float], other: list[float]) -> float:
        product = sum(a * b for a, b in zip(one, other, strict=True))
        return product / ((sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5 or 1.0)

    trust = [math.exp((score - scores[0]) / STEP) for score in scores[:FEW]]
    total = sum(trust)
    worth = []
    for score, vector in zip(scores, vectors, strict=True):
        first = sum(t / total * cosine(vector, other) for t, other in zip(trust, vectors, strict=False))
        worth.append(score + NEARNESS * (first - sum(cosine(vector, other) for other in vectors) / len(vectors)))
    return sorted(range(len(scores)), key=lambda place: (-round(worth[place], 5), place))


@check
@given(st.integers(1, 60), st.integers(0, 1000), st.floats(0.001, 0.2))
def test_nearness_against_its_definition(count: int, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.uniform(0.5, 0.5 + spread, count))[::-1].round(5)
    vectors = (rng.normal(size=(count, 8)) * rng.uniform(0.1, 9, (count, 1))).astype(np.float32)
    order = by_nearness(scores, vectors)
    assert sorted(order.tolist()) == list(range(count))
    wanted = plainly_near(scores.tolist(), vectors.tolist())
    apart = [place for place, (one, other) in enumerate(zip(order.tolist(), wanted, strict=True)) if one != other]
    assert len(apart) <= 2, "sums differ in their last digits alone"


def near_and_far() -> tuple[dict[str, Ranking], dict[int, list[float]]]:
    """One passage clearly first, the second like nothing, the third like the first."""
    dense = ranking({1: 0.9, 2: 0.62, 3: 0.6, **{row: 0.5 - row / 100 for row in range(4, 60)}})
    vectors = {row: [1.0, 0.0] if row in (1, 3) else [0.0, 1.0] for row in range(1, 61)}
    return {"dense": dense, "lexical": ranking({1: 60.0, 2: 10.0, 3: 10.0})._replace(most=200.0)}, vectors


def test_what_is_like_the_first_hits_moves_up_and_scores_stay_with_their_places() -> None:
    legs, known = near_and_far()
    asked: list[list[int]] = []

    def vectors(rows: Rows) -> Vectors:
        asked.append(rows.tolist())
        return np.array([known[row] for row in rows.tolist()], np.float32)

    plain, moved = fuse_hybrid(legs, 99), fuse_hybrid(legs, 99, vectors=vectors)
    assert plain.rows[:3].tolist() == [1, 2, 3] and moved.rows[:3].tolist() == [1, 3, 2]
    assert moved.scores.tolist() == plain.scores.tolist()
    assert asked == [plain.rows[:MOVED].tolist()] and moved.rows[MOVED:].tolist() == plain.rows[MOVED:].tolist()


def test_without_two_legs_nothing_is_moved() -> None:
    legs, _ = near_and_far()

    def nobody(rows: Rows) -> Vectors:
        raise AssertionError("no vectors are asked for")

    for weights, fusion in (({"dense": 1.0}, "scores"), ({"lexical": 1.0}, "scores"), (WEIGHTS, "ranks")):
        assert len(fuse_hybrid(legs, 99, weights, fusion, vectors=nobody).rows)  # type: ignore[arg-type]
    assert fuse_hybrid({"dense": ranking({}), "lexical": ranking({})}, 9, vectors=nobody).rows.tolist() == []
    assert fuse_hybrid({"dense": ranking({3: 0.5}), "lexical": ranking({})}, 9, vectors=nobody).rows.tolist() == [3]


def test_a_rare_name_stays_among_the_first_three_whatever_is_near() -> None:
    legs, known = near_and_far()
    legs["lexical"] = ranking({1: 60.0, 60: 9.0})._replace(most=200.0, rare=(60,))
    known |= {row: [1.0, 0.0] for row in range(1, 60)}
    fused = fuse_hybrid(legs, 99, vectors=lambda rows: np.array([known[row] for row in rows.tolist()], np.float32))
    assert 60 in fused.rows[:3]


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


def test_a_row_with_a_rare_name_is_among_the_first_three() -> None:
    dense = ranking({row: 0.9 - row / 100 for row in range(1, 9)})
    lexical = ranking({9: 40.0, 2: 39.0, 3: 38.5, 4: 38.0})._replace(most=200.0)
    legs = {"dense": dense, "lexical": lexical}
    assert 9 not in fuse_hybrid(legs, 3).rows
    assert 9 in fuse_hybrid({**legs, "lexical": lexical._replace(rare=(9,))}, 3).rows


def test_those_that_hold_most_of_the_rare_names_come_first_of_the_lifted() -> None:
    dense = ranking({row: 0.9 - row / 100 for row in range(1, 9)})
    lexical = ranking({10: 41.0, 9: 40.0, 2: 39.0, 3: 38.5, 4: 38.0})._replace(most=200.0, rare=(10, 9))
    fused = fuse_hybrid({"dense": dense, "lexical": lexical}, 5).rows.tolist()
    assert fused.index(10) < fused.index(9) and 9 in fused[:4], "they tied, and lay by row"


def test_what_holds_a_bare_name_comes_first_as_typed_before_otherwise() -> None:
    dense = ranking({row: 0.9 - row / 100 for row in range(1, 9)})
    lexical = ranking({10: 41.0, 9: 40.0, 2: 39.0, 3: 38.5, 4: 38.0})._replace(most=200.0)
    plain = fuse_hybrid({"dense": dense, "lexical": lexical}, 10)
    fused = fuse_hybrid({"dense": dense, "lexical": lexical._replace(exact={4: 1, 9: 2})}, 10)
    assert fused.rows[:2].tolist() == [9, 4]
    np.testing.assert_array_equal(fused.scores, plain.scores)
