"""KL distillation against a plain numpy version."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.distil_kl import DistilKL
from suwen.training.losses.info_nce import LossError


def oracle(student, teacher, temperature, teacher_temperature, mask) -> float:
    losses = []
    for s, t, left_out in zip(student, teacher, mask, strict=True):
        s, t = s[~left_out] / temperature, t[~left_out] / teacher_temperature
        if not len(s):
            losses.append(0.0)
            continue
        p, q = np.exp(t - t.max()), np.exp(s - s.max())
        p, q = p / p.sum(), q / q.sum()
        losses.append(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0))
    return float(np.mean(losses))


@given(
    st.integers(1, 5), st.integers(1, 9), st.sampled_from([0.05, 0.3, 1.0]), st.sampled_from([None, 0.2, 2.0]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_it_is_the_divergence_over_the_candidates_left(rows, columns, temperature, teacher_temperature, seed) -> None:
    random = np.random.default_rng(seed)
    student, teacher = random.uniform(-1, 1, size=(2, rows, columns))
    loss = DistilKL(temperature, teacher_temperature)
    for mask in (np.zeros((rows, columns), bool), random.random((rows, columns)) < 0.4):
        expected = oracle(student, teacher, temperature, teacher_temperature or temperature, mask)
        found = loss(torch.from_numpy(student), torch.from_numpy(teacher), torch.from_numpy(mask)).item()
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert loss(torch.from_numpy(student), torch.from_numpy(teacher)).item() >= -1e-12


def test_it_points_from_the_teacher_to_the_student() -> None:
    flat, sharp = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 0.0]])
    assert DistilKL(1.0)(flat, sharp).item() != pytest.approx(DistilKL(1.0)(sharp, flat).item(), rel=1e-2)


def test_gradients_reach_the_student_only_and_skip_masked_candidates() -> None:
    torch.manual_seed(0)
    student = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[False, True, False, False], [True, True, True, True]])
    DistilKL(0.5)(student, teacher, mask).backward()
    assert teacher.grad is None
    assert torch.isfinite(student.grad).all() and not student.grad[mask].any() and student.grad[~mask].all()
    assert torch.autograd.gradcheck(lambda s: DistilKL(0.5)(s, teacher, mask), [student])


def test_half_precision_is_compared_in_fp32() -> None:
    student, teacher = torch.tensor([[0.5, 0.25]]).bfloat16(), torch.tensor([[0.25, 0.5]]).bfloat16()
    mask = torch.zeros(1, 2, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = DistilKL(0.02)(student, teacher, mask)
    expected = oracle(np.array([[0.5, 0.25]]), np.array([[0.25, 0.5]]), 0.02, 0.02, mask.numpy())
    assert found.dtype == torch.float32 and found.item() == pytest.approx(expected, rel=1e-5)


def test_wrong_inputs_name_the_fix() -> None:
    with pytest.raises(LossError, match="score the same candidates"):
        DistilKL()(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(LossError, match="mask is"):
        DistilKL()(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(LossError, match="one candidate"):
        DistilKL()(torch.zeros(2, 0), torch.zeros(2, 0))
    with pytest.raises(LossError, match="teacher_temperature is 0"):
        DistilKL(teacher_temperature=0.0)
