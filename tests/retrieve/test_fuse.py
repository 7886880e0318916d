"""Reciprocal rank fusion against its formula, by hand and over random rankings."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.retrieve.fuse import CONSTANT, reciprocal_rank_fusion

RANKING = st.lists(st.integers(1, 30), unique=True, max_size=15)


def test_by_hand() -> None:
    fused = reciprocal_rank_fusion([(np.array([7, 3]), 1.0), (np.array([3, 9]), 2.0)], k=5)
    assert fused.rows.tolist() == [3, 9, 7]
    np.testing.assert_allclose(fused.scores, [1 / 62 + 2 / 61, 2 / 62, 1 / 61], rtol=1e-6)


def test_nothing_to_fuse() -> None:
    assert reciprocal_rank_fusion([], 5).rows.tolist() == []
    assert reciprocal_rank_fusion([(np.empty(0, np.int64), 1.0)], 5).rows.tolist() == []


@settings(deadline=None, derandomize=True, database=None)
@given(RANKING, RANKING, st.floats(0.1, 9), st.floats(0.1, 9), st.integers(1, 40), st.integers(1, 100))
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
