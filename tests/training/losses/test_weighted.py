"""The weighted sum: its value, its gradient, and what weight 0 means."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.info_nce import InfoNCE, LossError
from suwen.training.losses.squared_l2 import SquaredL2
from suwen.training.losses.weighted import Weighted


@given(st.dictionaries(st.text("abcd", min_size=1), st.tuples(st.floats(0.01, 10), st.floats(-5, 5)), min_size=1))
def test_it_is_the_weighted_sum_with_its_parts(named) -> None:
    losses = {name: torch.tensor(value, dtype=torch.float64) for name, (_, value) in named.items()}
    found = Weighted({name: weight for name, (weight, _) in named.items()})(losses)
    expected = np.dot([weight for weight, _ in named.values()], [value for _, value in named.values()])
    assert found.total.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert {name: part.item() for name, part in found.parts.items()} == {name: v for name, (_, v) in named.items()}


def test_the_stage_one_objective_sends_both_gradients() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)
    contrastive, distance = InfoNCE(0.5)(student, teacher, torch.arange(4)), SquaredL2()(student, teacher)
    expected = torch.autograd.grad(2 * contrastive + 0.5 * distance, student, retain_graph=True)[0]
    found = Weighted({"contrastive": 2.0, "squared_l2": 0.5})({"contrastive": contrastive, "squared_l2": distance})
    assert torch.allclose(torch.autograd.grad(found.total, student)[0], expected)
    assert not any(part.requires_grad for part in found.parts.values())


def test_weight_0_is_not_computed_and_hands_on_no_nan() -> None:
    calls = []
    losses = {"kept": torch.tensor(1.0), "nan": torch.tensor(float("nan")), "dear": lambda: calls.append(1)}
    found = Weighted({"kept": 3.0, "nan": 0.0, "dear": 0.0, "absent": 0.0})(losses)
    assert found.total.item() == 3.0 and list(found.parts) == ["kept"] and calls == []


def test_names_must_agree() -> None:
    weighted = Weighted({"contrastive": 1.0, "squared_l2": 1.0})
    with pytest.raises(LossError, match=r"without a weight: \['mse'\]; weights without a loss: \['squared_l2'\]"):
        weighted({"contrastive": torch.tensor(1.0), "mse": torch.tensor(1.0)})


@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": -1.0}, {"a": float("nan")}])
def test_weights_that_train_nothing_are_refused(weights) -> None:
    with pytest.raises(LossError):
        Weighted(weights)
