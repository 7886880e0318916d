"""The best weights by what is not trained on: kept, put back at the end, known again after a stop, and given up for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from small_task import SmallTask, events, train

from suwen.training.loop.best_kept import Watch
from suwen.training.loop.training_loop import TrainingStopped


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Scored:
    """Scores that were thought of before, and the weights at each look."""

    def __init__(self, task: SmallTask, scores: list[float]) -> None:
        self.task, self.scores, self.seen = task, scores, list[dict[str, bytes]]()

    def __call__(self) -> float:
        self.seen.append(self.task.weights())
        return self.scores[len(self.seen) - 1]


def test_a_training_ends_with_the_best_weights(tmp_path: Path) -> None:
    task = SmallTask()
    scored = Scored(task, [1.0, 3.0, 2.0, 2.9])
    train(task, tmp_path / "run", watch=Watch(scored, every=6))
    # After steps 6, 12 and 18, and once more at the end.
    assert len(scored.seen) == 4 and task.weights() == scored.seen[1]
    assert task.weights() != scored.seen[3]
    looked = [line for line in events(tmp_path / "run") if line["event"] == "looked"]
    assert [(line["step"], line["best_step"]) for line in looked] == [(6, 6), (12, 12), (18, 12), (20, 12)]
    assert [line["score"] for line in looked] == [1.0, 3.0, 2.0, 2.9], "of each look, not of the best alone"


def test_looking_changes_nothing_of_the_training(tmp_path: Path) -> None:
    plain = train(SmallTask(), tmp_path / "plain")
    watched = SmallTask()
    train(watched, tmp_path / "watched", watch=Watch(Scored(watched, [1.0, 2.0, 3.0, 4.0, 5.0]), every=5))
    assert plain.weights() == watched.weights(), "the last are the best, and those of a training nobody looked at"


def test_it_is_given_up_when_nothing_is_gained(tmp_path: Path) -> None:
    task = SmallTask()
    scored = Scored(task, [1.0, 5.0, 4.0, 3.0])
    train(task, tmp_path / "run", watch=Watch(scored, every=3, patience=2))
    assert len(scored.seen) == 4, "after steps 3, 6, 9 and 12: two looks without a gain"
    assert task.weights() == scored.seen[1]
    assert next(line for line in events(tmp_path / "run") if line["event"] == "trained")["step"] == 12


@pytest.mark.parametrize("stop", [7, 13])
def test_a_resumed_training_knows_the_best(tmp_path: Path, stop: int) -> None:
    whole, scores = SmallTask(), [1.0, 3.0, 2.0, 2.9]
    train(whole, tmp_path / "whole", watch=Watch(Scored(whole, scores), every=6))
    first, steps = SmallTask(), list[int]()
    first.before = steps.append
    watch = Watch(Scored(first, scores), every=6)
    with pytest.raises(TrainingStopped):
        train(first, tmp_path / "run", watch=watch, stop=lambda: len(steps) >= stop)
    second = SmallTask()
    rest = Scored(second, scores[stop // 6 :])
    train(second, tmp_path / "run", watch=Watch(rest, every=6), resume=True)
    assert second.weights() == whole.weights() and len(rest.seen) == 4 - stop // 6


def test_one_that_was_given_up_is_not_gone_on_with(tmp_path: Path) -> None:
    task = SmallTask()
    train(task, tmp_path / "run", watch=Watch(Scored(task, [5.0, 1.0, 1.0]), every=3, patience=2))
    again = SmallTask()
    train(again, tmp_path / "run", watch=Watch(Scored(again, [0.0]), every=3, patience=2), resume=True)
    assert again.weights() == task.weights()
