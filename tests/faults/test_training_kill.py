"""A training process, killed again and again at moments drawn by lot, ends with the weights of one left in peace."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "training"))

from small_task import outcome, start

from suwen.training.loop.checkpoints import Checkpoints
from suwen.training.loop.curves import Curves

_STEPS = 60


def _rows(path: Path) -> list[dict[str, float]]:
    return [{**row, "elapsed": 0.0} for row in Curves(path / "curves.csv").rows()]


def _in_the_making(path: Path) -> bool:
    folder = path / "checkpoints"
    return folder.exists() and any(one.name.startswith(".step-") for one in folder.iterdir())


def _kill_after(path: Path, steps: int, seed: int, *, aim: bool) -> tuple[int, str]:
    """Resume, let some steps pass and kill, if so aimed while a checkpoint is being written.

    Returns:
        The step the process had resumed at, which is the first it tells of; and what the kill met.
    """
    child, told = start(path, resume=path.exists(), seed=seed, steps=_STEPS)
    first = told.recv()
    for _ in range(steps):
        if not isinstance(told.recv(), int):
            break
    while aim and child.is_alive() and not _in_the_making(path):
        pass
    child.kill()
    child.join()
    return first, "a checkpoint in the making" if _in_the_making(path) else "a step"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_killed_again_and_again_ends_as_one_left_in_peace(
    tmp_path: Path, seed: int, report: Callable[[str], None]
) -> None:
    expected = outcome(*start(tmp_path / "peace", seed=seed, steps=_STEPS))
    assert isinstance(expected, dict)
    lot, path, met = random.Random(seed), tmp_path / "killed", []
    begun = [0]
    while begun[-1] < _STEPS - 15 and len(met) < 30:
        first, what = _kill_after(path, lot.randint(0, 9), seed, aim=len(met) % 2 == 0)
        assert first >= begun[-1], "a checkpoint was lost"
        begun.append(first)
        met.append(what)
    assert len(met) >= 5 and begun[-1] > 0 and "a checkpoint in the making" in met
    assert outcome(*start(path, resume=True, seed=seed, steps=_STEPS)) == expected
    assert _rows(path) == _rows(tmp_path / "peace")
    assert Checkpoints(path / "checkpoints").steps() == Checkpoints(tmp_path / "peace" / "checkpoints").steps()
    assert list((path / "checkpoints").glob(".*")) == []
    report(f"training killed {len(met)} times: {', '.join(f'{what} {met.count(what)}' for what in sorted(set(met)))}")
