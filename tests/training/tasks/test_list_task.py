"""Lists of candidates: the right one is to score highest, shorter lists count for what they have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suwen.training.tasks.list_task import FASTER, ListLosses, ListTask


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


def test_some_candidates_are_drawn_anew_in_every_step_and_the_right_one_is_among_them() -> None:
    tower = Lookup(9)
    made = ListTask(tower, [2, 7], tower.module, ListLosses(), batch=2, seed=0, drawn=3)  # type: ignore[arg-type]
    seen = set()
    for number in range(60):
        rows = np.array([0, 1])
        places, columns = made._places(rows, number)
        assert places.tolist()[:3] == [0, 1, 2] and len(places) == 5 and columns.tolist() == [[0, 1, -1], [2, 3, 4]]
        assert len(set(places.tolist())) == 5 and set(places[3:]) <= set(range(3, 9))
        assert np.array_equal(made._places(rows, number)[0], places), "a step that is done again draws the same"
        assert np.array_equal(made._places(rows[::-1], number)[0][:3], places[2:]), "whatever stands beside it"
        seen |= set(places.tolist())
    assert seen == set(range(9))
    assert float(made.step(0)["loss"]) == pytest.approx((np.log(2) + np.log(3)) / 2, abs=1e-5)


def test_a_head_learns_faster_and_once() -> None:
    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    both = torch.nn.Sequential(body, head)
    made = ListTask(Lookup(4), [2, 2], both, ListLosses(), batch=1, seed=0, head=head)  # type: ignore[arg-type]
    rates = {id(one): group["factor"] for group in made.groups() for one in group["params"]}
    assert [rates[id(one)] for one in both.parameters()] == [1.0, 1.0, FASTER, FASTER]
    assert sum(len(group["params"]) for group in made.groups()) == 4
