"""Queries fused with hypothetical documents in a step: as a search fuses them, with gradients through both."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.hyde.fusion import fuse
from suwen.training.tasks.fused_queries import fused


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@given(st.lists(st.integers(0, 3), max_size=9), st.floats(0.2, 6), st.integers(0, 50))
def test_it_is_the_fusion_of_a_search(owners: list[int], weight: float, seed: int) -> None:
    dice = np.random.default_rng(seed)
    queries = unit(dice.normal(size=(4, 6)))
    documents = unit(dice.normal(size=(len(owners), 6))) if owners else np.zeros((0, 6), np.float32)
    own = np.array(owners, np.int64)
    made = fused(torch.from_numpy(queries), torch.from_numpy(documents), own, weight).numpy()
    assert np.allclose(made, fuse(queries, documents, owners, weight=weight), atol=1e-5)


def test_both_learn() -> None:
    queries, documents = torch.eye(2, 3, requires_grad=True), torch.eye(3, requires_grad=True)
    fused(queries, documents[2:], np.array([0]), 2.0)[0, 1].backward()
    assert queries.grad is not None and documents.grad is not None
    assert queries.grad[0].abs().sum() > 0 and documents.grad[2].abs().sum() > 0
    assert queries.grad[1].abs().sum() == 0 and documents.grad[:2].abs().sum() == 0
