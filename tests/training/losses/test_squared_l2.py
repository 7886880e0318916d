"""Squared-L2 alignment against a plain numpy version."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.info_nce import LossError
from suwen.training.losses.squared_l2 import SquaredL2


def oracle(student: np.ndarray, teacher: np.ndarray) -> float:
    return float(
        np.mean([sum((a - b) ** 2 for a, b in zip(s, t, strict=True)) for s, t in zip(student, teacher, strict=True)])
    )


@given(st.integers(1, 7), st.integers(1, 33), st.integers(0, 2**32 - 1))
def test_it_is_summed_over_dimensions_and_averaged_over_the_batch(rows, width, seed) -> None:
    student, teacher = np.random.default_rng(seed).normal(size=(2, rows, width))
    s, t = torch.from_numpy(student), torch.from_numpy(teacher)
    found = SquaredL2()(s, t).item()
    assert found == pytest.approx(oracle(student, teacher), rel=1e-12)
    assert found == pytest.approx(width * torch.nn.functional.mse_loss(s, t).item(), rel=1e-9)


def test_for_unit_vectors_it_is_two_less_twice_the_cosine() -> None:
    torch.manual_seed(0)
    s, t = torch.nn.functional.normalize(torch.randn(2, 5, 16), dim=-1)
    assert SquaredL2()(s, t).item() == pytest.approx((2 - 2 * (s * t).sum(-1)).mean().item(), rel=1e-5)


def test_the_gradient_is_twice_the_difference_over_the_batch() -> None:
    student, teacher = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    SquaredL2()(student, teacher).backward()
    assert torch.allclose(student.grad, (student.detach() - teacher) / 2)


def test_half_precision_is_compared_in_fp32() -> None:
    student, teacher = torch.full((1, 4096), 0.015625).bfloat16(), torch.zeros(1, 4096).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = SquaredL2()(student, teacher)
    assert found.dtype == torch.float32 and found.item() == 1.0


@pytest.mark.parametrize(
    ("student", "teacher", "fix"),
    [
        ((2, 384), (2, 512), "add a projection"),
        ((2, 8), (3, 8), "same texts"),
        ((0, 8), (0, 8), "one a row"),
        ((8,), (8,), "one a row"),
    ],
)
def test_wrong_shapes_name_the_fix(student, teacher, fix) -> None:
    with pytest.raises(LossError, match=fix):
        SquaredL2()(torch.zeros(student), torch.zeros(teacher))
