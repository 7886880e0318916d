"""Lists of candidates: the right one is to score highest, shorter lists count for what they have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suwen.training.tasks.list_task import ListLosses, ListTask


class Lookup:
    """A tower whose scores are parameters, one for each candidate."""

    def __init__(self, count: int) -> None:
        self.module = torch.nn.Embedding(count, 1)
        torch.nn.init.zeros_(self.module.weight)

    def vectors(self, rows: np.ndarray) -> torch.Tensor:
        return self.module(torch.from_numpy(rows))

    def pieces(self, rows: np.ndarray) -> list:
        return [lambda: self.vectors(rows)]


def task(losses: ListLosses, taught: list[float] | None = None) -> tuple[ListTask, Lookup]:
    tower = Lookup(5)
    return ListTask(tower, [2, 3], tower.module, losses, batch=2, seed=0, taught=taught), tower  # type: ignore[arg-type]


def test_the_loss_at_the_start_is_that_of_chance_in_lists_of_their_own_length() -> None:
    made, tower = task(ListLosses())
    assert float(made.step(0)["loss"]) == pytest.approx((np.log(2) + np.log(3)) / 2, abs=1e-5)
    gradient = tower.module.weight.grad
    assert gradient is not None
    # Of each list the first is pulled up, the others are pushed down, and nothing else moves.
    assert gradient[:, 0].tolist() == pytest.approx([-0.25, 0.25, -1 / 3, 1 / 6, 1 / 6], abs=1e-5)


def test_a_teacher_is_followed_where_labels_count_nothing() -> None:
    taught = [0.0, 2.0, 3.0, 1.0, 0.0]
    made, tower = task(ListLosses(labels=0.0, distil=1.0), taught)
    optimiser = torch.optim.Adam(tower.module.parameters(), lr=0.2)
    for number in range(200):
        optimiser.zero_grad()
        made.step(number)
        optimiser.step()
    learnt = tower.module.weight.detach()[:, 0].tolist()
    assert learnt[1] - learnt[0] == pytest.approx(2.0, abs=0.05)
    assert [learnt[2] - learnt[3], learnt[3] - learnt[4]] == pytest.approx([2.0, 1.0], abs=0.05)
