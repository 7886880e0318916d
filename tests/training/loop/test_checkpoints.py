"""Checkpoints on the disk: what comes back, what is kept, what is swept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from suwen.training.loop.checkpoints import Checkpoint, CheckpointError, Checkpoints
from suwen.training.loop.random_state import random_state


def some(step: int) -> Checkpoint:
    state = {"w": torch.full((2, 3), float(step)), "half": torch.ones(4, dtype=torch.bfloat16) / 3}
    return Checkpoint(step, 1.5, state, {"w/step": torch.tensor(3.0)}, [random_state()], {"window": [{"loss": 0.1}]})


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    saved = some(7)
    Checkpoints(tmp_path / "c").save(saved)
    found = Checkpoints(tmp_path / "c").load(7)
    assert (found.step, found.elapsed, found.random, found.extra) == (7, 1.5, saved.random, saved.extra)
    for name, tensor in saved.state.items():
        assert found.state[name].dtype == tensor.dtype and torch.equal(found.state[name], tensor)
    assert found.optimiser["w/step"].shape == () and float(found.optimiser["w/step"]) == 3.0


def test_two_are_kept_and_leftovers_of_a_kill_are_swept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / ".step-000000002.4711.tmp").mkdir()
    (tmp_path / ".step-000000002.4711.tmp" / "state.safetensors").write_text("half")
    for step in (10, 9, 30, 200):
        checkpoints.save(some(step))
    assert checkpoints.steps() == [200, 30]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["step-000000030", "step-000000200"]


def test_a_checkpoint_is_written_again_in_place(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(some(5))
    checkpoints.save(Checkpoint(5, 2.5, {"w": torch.zeros(1)}))
    assert checkpoints.load(5).elapsed == 2.5
    assert checkpoints.load(5).optimiser == {}


def test_there_is_no_pickle_in_it(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(some(1))
    names = sorted(file.name for file in (tmp_path / "step-000000001").iterdir())
    assert names == ["checkpoint.json", "optimiser.safetensors", "state.safetensors"]


def test_a_changed_number_in_the_json_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(some(1))
    file = tmp_path / "step-000000001" / "checkpoint.json"
    file.write_text(file.read_text().replace('"elapsed": 1.5', '"elapsed": 1.6'))
    with pytest.raises(CheckpointError, match=r"checkpoint\.json does not match its checksum"):
        checkpoints.load(1)


def test_no_checkpoints_are_no_problem(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.load_newest() == (None, [])
    checkpoints.clear()
    checkpoints.discard(3)
    assert checkpoints.steps() == []
