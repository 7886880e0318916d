"""KL distillation against a plain numpy version."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.distil_kl import DistilKL
from suwen.training.losses.info_nce import LossError


def oracle(student, teacher, temperature) -> float:
    losses = []
    for s, t in zip(student / temperature, teacher / temperature, strict=True):
        p, q = np.exp(t - t.max()), np.exp(s - s.max())
        p, q = p / p.sum(), q / q.sum()
        losses.append(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0))
    return float(np.mean(losses))


@given(st.integers(1, 5), st.integers(1, 9), st.sampled_from([0.05, 0.3, 1.0]), st.integers(0, 2**32 - 1))
def test_it_is_the_divergence_over_the_candidates(rows, columns, temperature, seed) -> None:
    random = np.random.default_rng(seed)
    student, teacher = random.uniform(-1, 1, size=(2, rows, columns))
    value = DistilKL(temperature)(torch.from_numpy(student), torch.from_numpy(teacher)).item()
    assert value == pytest.approx(oracle(student, teacher, temperature), rel=1e-9, abs=1e-12)
    assert value >= -1e-12


def test_it_points_from_the_teacher_to_the_student() -> None:
    flat, sharp = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 0.0]])
    assert DistilKL(1.0)(flat, sharp).item() != pytest.approx(DistilKL(1.0)(sharp, flat).item(), rel=1e-2)


def test_gradients_reach_the_student_only() -> None:
    torch.manual_seed(0)
    student = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    DistilKL(0.5)(student, teacher).backward()
    assert teacher.grad is None
    assert torch.isfinite(student.grad).all() and student.grad.all()
    assert torch.autograd.gradcheck(lambda s: DistilKL(0.5)(s, teacher), [student])


def test_half_precision_is_compared_in_fp32() -> None:
    student, teacher = torch.tensor([[0.5, 0.25]]).bfloat16(), torch.tensor([[0.25, 0.5]]).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = DistilKL(0.02)(student, teacher)
    expected = oracle(np.array([[0.5, 0.25]]), np.array([[0.25, 0.5]]), 0.02)
    assert value.dtype == torch.float32 and value.item() == pytest.approx(expected, rel=1e-5)


def test_wrong_inputs_name_the_fix() -> None:
    with pytest.raises(LossError, match="score the same candidates"):
        DistilKL()(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(LossError, match="one candidate"):
        DistilKL()(torch.zeros(2, 0), torch.zeros(2, 0))
    with pytest.raises(LossError, match="temperature is 0"):
        DistilKL(temperature=0.0)
