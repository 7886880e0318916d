"""Stage I: the loss is the one of the paper, and the student lands at the teacher's vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.info_nce import InfoNCE
from suwen.training.losses.squared_l2 import SquaredL2
from suwen.training.tasks.align_task import AlignLosses, AlignTask, Part
from suwen.training.tasks.towers import FrozenTower

COUNT, WIDTH = 10, 6


class Table(torch.nn.Module):
    """A small real tower: a trained table of vectors, in one piece, or in pieces of so many rows."""

    def __init__(self, piece: int = COUNT) -> None:
        super().__init__()
        self.rows = torch.nn.Parameter(torch.randn(COUNT, WIDTH, generator=torch.Generator().manual_seed(0)))
        self.piece, self.encoded = piece, []

    def vectors(self, rows):
        self.encoded.append(len(rows))
        return torch.nn.functional.normalize(self.rows[torch.from_numpy(rows)], dim=-1)

    def pieces(self, rows):
        parts = [rows[start : start + self.piece] for start in range(0, len(rows), self.piece)]
        return [lambda part=part: self.vectors(part) for part in parts]


def teacher() -> np.ndarray:
    vectors = np.random.default_rng(1).normal(size=(COUNT, WIDTH))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def make(losses: AlignLosses, texts: np.ndarray | None = None, batch: int = 5) -> tuple[Table, AlignTask]:
    student = Table()
    places = np.arange(COUNT)
    part = Part("query", student, FrozenTower(teacher(), "cpu"), places, places if texts is None else texts, 1.0)
    return student, AlignTask(student, [part], batch, losses, seed=0)


def oracle(student: np.ndarray, taught: np.ndarray, texts: np.ndarray, temperature: float) -> tuple[float, float]:
    contrastive = []
    for row in range(len(student)):
        scores = student[row] @ taught.T / temperature
        allowed = [column for column in range(len(taught)) if column == row or texts[column] != texts[row]]
        contrastive.append(-scores[row] + np.log(np.exp(scores[allowed]).sum()))
    return float(np.mean(contrastive)), float(((student - taught) ** 2).sum(1).mean())


@pytest.mark.parametrize("texts", [np.arange(COUNT), np.arange(COUNT) // 2])
def test_the_loss_is_the_papers(texts):
    student, task = make(AlignLosses(2.0, 3.0, temperature=0.1), texts)
    rows = task._orders[0].rows(0)
    with torch.no_grad():
        encoded = student.vectors(rows).double().numpy()
    contrastive, squared = oracle(encoded, teacher()[rows].astype(np.float64), texts[rows], 0.1)
    found = task.step(0)
    assert float(found["loss"]) == pytest.approx(2 * contrastive + 3 * squared, rel=1e-5)
    assert float(found["contrastive"]) == pytest.approx(contrastive, rel=1e-5)


@pytest.mark.parametrize(
    "losses",
    [AlignLosses(), AlignLosses(1.0, 0.0), AlignLosses(0.0, 1.0), AlignLosses(0.0, 0.0, 1.0), AlignLosses(0, 0, 0, 1)],
)
def test_each_loss_alone_brings_the_student_nearer(losses):
    student, task = make(losses)
    before = float((student.vectors(np.arange(COUNT)).detach().numpy() * teacher()).sum(1).mean())
    optimiser = torch.optim.Adam(student.parameters(), lr=0.05)
    for step in range(80):
        optimiser.zero_grad()
        task.step(step)
        optimiser.step()
    after = float((student.vectors(np.arange(COUNT)).detach().numpy() * teacher()).sum(1).mean())
    assert after > before + 0.3


def test_ranking_is_the_divergence_over_the_documents_near_the_batch_and_leaves_other_parts_alone():
    student, rng = Table(), np.random.default_rng(4)
    bank = rng.normal(size=(60, WIDTH)).astype(np.float32)
    near = rng.integers(60, size=(COUNT, 3))
    places, targets = np.arange(COUNT), FrozenTower(teacher(), "cpu")
    parts = [
        Part("document", student, targets, places, places, 0.4),
        Part("query", student, targets, places, places, 0.6, near),
    ]
    losses = AlignLosses(0.0, 0.0, ranking=2.0, temperature=0.5)
    task = AlignTask(student, parts, 10, losses, seed=0, bank=FrozenTower(bank, "cpu"))
    expected, rows = [], task._orders[1].rows(0)
    documents = bank[sorted({int(place) for row in rows for place in near[row]})]
    assert len(rows) < len(documents) < len(bank)
    for row in rows:
        with torch.no_grad():
            own = student.vectors(np.array([row]))[0].double().numpy()
        mine, its = (np.exp(documents @ vector / 0.5) for vector in (own, teacher()[row].astype(np.float64)))
        mine, its = mine / mine.sum(), its / its.sum()
        expected.append((its * np.log(its / mine)).sum())
    found = task.step(0)
    assert float(found["ranking"]) == pytest.approx(np.mean(expected), rel=1e-5)
    assert float(found["loss"]) == pytest.approx(2 * np.mean(expected), rel=1e-5)
    moved = set(np.flatnonzero(student.rows.grad.abs().sum(dim=1).numpy()))
    assert moved <= set(task._orders[1].rows(0)), "a text in document form has no order to learn"


def test_the_order_is_learnt_over_the_documents_of_all_processes(monkeypatch):
    rng, places = np.random.default_rng(4), np.arange(COUNT)
    bank, near = rng.normal(size=(60, WIDTH)).astype(np.float32), rng.integers(60, size=(COUNT, 3))

    def loss() -> float:
        student, targets = Table(), FrozenTower(teacher(), "cpu")
        part = Part("query", student, targets, places, places, 1.0, near)
        losses = AlignLosses(0.0, 0.0, ranking=1.0)
        return float(AlignTask(student, [part], 6, losses, seed=0, bank=FrozenTower(bank, "cpu")).step(0)["loss"])

    whole, halves = loss(), []
    for rank in range(2):
        monkeypatch.setattr("suwen.training.tasks.align_task.world", lambda rank=rank: (rank, 2))
        half = lambda rows, rank=rank: np.split(rows, 2)[rank]  # noqa: E731
        monkeypatch.setattr("suwen.training.tasks.align_task.own_share", half)
        halves.append(loss())
    assert halves[0] != pytest.approx(whole, rel=1e-3)
    assert np.mean(halves) == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 128.0])
def test_in_pieces_it_is_the_same_loss_and_the_same_gradients(scale):
    rng, places = np.random.default_rng(4), np.arange(COUNT)
    bank, near = rng.normal(size=(60, WIDTH)).astype(np.float32), rng.integers(60, size=(COUNT, 3))

    def run(student: Table) -> dict[str, torch.Tensor]:
        targets = FrozenTower(teacher(), "cpu")
        parts = [
            Part("query", student, targets, places, places, 0.6, near),
            Part("document", student, targets, places, places, 0.4),
        ]
        losses = AlignLosses(1.0, 0.5, 0.25, 0.125, ranking=1.0)
        task = AlignTask(student, parts, 10, losses, seed=0, bank=FrozenTower(bank, "cpu"))
        return task.backward(3, scale=lambda loss: scale * loss)

    whole, pieces = Table(), Table(piece=2)
    told, same = run(whole), run(pieces)
    assert whole.encoded == [6, 4] and max(pieces.encoded) == 2
    assert set(told) == {"loss", "contrastive", "squared_l2", "distil", "leaf", "ranking"}
    for name, value in told.items():
        torch.testing.assert_close(same[name], value)
    torch.testing.assert_close(pieces.rows.grad, whole.rows.grad)
    assert float(whole.rows.grad.abs().sum()) > 0


@given(st.tuples(*[st.tuples(st.floats(0.01, 10), st.floats(-5, 5))] * 3))
def test_the_loss_is_the_weighted_sum_with_its_parts(named) -> None:
    names = ("contrastive", "squared_l2", "leaf")
    weights, values = ([pair[side] for pair in named] for side in (0, 1))
    losses = {
        name: lambda value=value: torch.tensor(value, dtype=torch.float64)
        for name, value in zip(names, values, strict=True)
    }
    total, parts = AlignLosses(**dict(zip(names, weights, strict=True))).weighted(losses)
    assert total.item() == pytest.approx(np.dot(weights, values), rel=1e-9, abs=1e-9)
    assert {name: part.item() for name, part in parts.items()} == dict(zip(names, values, strict=True))


def test_the_stage_one_objective_sends_both_gradients() -> None:
    torch.manual_seed(0)
    student, goal = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)
    contrastive, distance = InfoNCE(0.5)(student, goal, torch.arange(4)), SquaredL2()(student, goal)
    expected = torch.autograd.grad(2 * contrastive + 0.5 * distance, student, retain_graph=True)[0]
    losses = {"contrastive": lambda: contrastive, "squared_l2": lambda: distance}
    total, parts = AlignLosses(2.0, 0.5).weighted(losses)
    assert torch.allclose(torch.autograd.grad(total, student)[0], expected)
    assert not any(part.requires_grad for part in parts.values())


def test_weight_0_is_not_computed_and_hands_on_no_nan() -> None:
    calls = []
    losses = {"contrastive": lambda: torch.tensor(1.0), "leaf": lambda: calls.append(1)}
    total, parts = AlignLosses(3.0, 0.0).weighted(losses)
    assert total.item() == 3.0 and list(parts) == ["contrastive"] and calls == []


def test_two_forms_share_a_batch_and_one_text_is_not_its_own_negative():
    student = Table()
    places = np.arange(COUNT)
    targets = FrozenTower(teacher(), "cpu")
    parts = [
        Part("query", student, targets, places, places, 0.6),
        Part("document", student, targets, places, places, 0.4),
    ]
    task = AlignTask(student, parts, 10, AlignLosses(), seed=0)
    assert [order.batch for order in task._orders] == [6, 4]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("suwen.training.tasks.align_task.world", lambda: (0, 4))
        shared = AlignTask(student, parts, 10, AlignLosses(), seed=0)
    assert [order.batch for order in shared._orders] == [8, 4], "four processes take as many each"
    assert torch.isfinite(torch.as_tensor(task.step(0)["loss"]))
    assert "query texts" in task.describe(0) and "document texts" in task.describe(0)
