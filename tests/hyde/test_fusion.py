"""Fusion against its formula written out, and the weight that is chosen without labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.hyde import HydeError
from suwen.hyde.fusion import choose_weight, fuse, joined


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@given(st.integers(1, 5), st.lists(st.integers(0, 4), max_size=12), st.floats(0.1, 8), st.integers(0, 99))
def test_it_is_the_weighted_mean_of_a_query_and_its_own_documents(
    count: int, drawn: list[int], weight: float, seed: int
) -> None:
    owners = [owner for owner in drawn if owner < count]
    dice = np.random.default_rng(seed)
    queries = unit(dice.normal(size=(count, 6)))
    documents = unit(dice.normal(size=(len(owners), 6))) if owners else np.zeros((0, 6), np.float32)
    fused = fuse(queries, documents, owners, weight=weight)
    for number in range(count):
        own = [documents[at] for at, owner in enumerate(owners) if owner == number]
        wanted = np.average([queries[number], *own], axis=0, weights=[weight, *[1.0] * len(own)])
        assert np.allclose(fused[number], unit(wanted), atol=1e-5)


def test_documents_alone_and_a_query_without_any() -> None:
    queries, documents = np.eye(3, dtype=np.float32)[:2], np.eye(3, dtype=np.float32)[2:]
    assert fuse(queries, documents, [1], fusion="documents").tolist() == [[1, 0, 0], [0, 0, 1]]
    assert fuse(queries, documents, [1], weight=np.inf).tolist() == queries.tolist()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(HydeError, match="owners"):
        fuse(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), [0])
    with pytest.raises(HydeError, match="joined"):
        fuse(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), [0, 1], fusion="concatenation")
    assert joined("头晕", ["甲", "乙"]) == "头晕 甲 乙"


@pytest.mark.parametrize(("noise_of_query", "noise_of_documents"), [(0.1, 3.0), (3.0, 0.1)])
def test_the_weight_goes_to_whom_is_nearer_to_the_target(noise_of_query: float, noise_of_documents: float) -> None:
    dice = np.random.default_rng(5)
    targets, pool = unit(dice.normal(size=(200, 16))), unit(dice.normal(size=(2000, 16)))
    queries = unit(targets + noise_of_query * dice.normal(size=targets.shape) / 4)
    documents = unit(targets + noise_of_documents * dice.normal(size=targets.shape) / 4)
    best, scores = choose_weight(queries, documents, range(200), np.arange(200), np.concatenate([targets, pool]))
    assert best >= 5 if noise_of_query < noise_of_documents else best <= 0.5
    assert scores[best] == max(scores.values())


def test_a_duplicate_of_the_target_takes_no_rank_from_it() -> None:
    one = np.eye(4, dtype=np.float32)[:1]
    assert choose_weight(one, one, [0], np.array([1]), np.repeat(one, 3, 0))[1][1.0] == 1.0
