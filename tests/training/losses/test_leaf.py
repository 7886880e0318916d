"""L2-only alignment against a plain numpy version."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.info_nce import LossError
from suwen.training.losses.leaf import Leaf


@given(st.integers(1, 7), st.integers(1, 33), st.integers(0, 2**32 - 1))
def test_it_is_the_mean_distance_not_its_square(rows, width, seed) -> None:
    student, teacher = np.random.default_rng(seed).normal(size=(2, rows, width))
    expected = np.mean([np.sqrt(sum((s - t) ** 2)) for s, t in zip(student, teacher, strict=True)])
    found = Leaf()(torch.from_numpy(student), torch.from_numpy(teacher)).item()
    assert found == pytest.approx(expected, rel=1e-12)


def test_every_text_pulls_with_the_same_force_and_a_met_one_with_none() -> None:
    teacher = torch.zeros(3, 2)
    student = torch.tensor([[1e-3, 0.0], [30.0, 40.0], [0.0, 0.0]], requires_grad=True)
    Leaf()(student, teacher).backward()
    assert torch.linalg.vector_norm(student.grad, dim=-1).tolist() == pytest.approx([1 / 3, 1 / 3, 0.0])


def test_half_precision_is_compared_in_fp32() -> None:
    student, teacher = torch.full((1, 4096), 0.015625).bfloat16(), torch.zeros(1, 4096).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = Leaf()(student, teacher)
    assert found.dtype == torch.float32 and found.item() == 1.0


def test_different_dimensions_ask_for_a_projection() -> None:
    with pytest.raises(LossError, match="384 dimensions and the teacher 512: add a projection"):
        Leaf()(torch.zeros(1, 384), torch.zeros(1, 512))
