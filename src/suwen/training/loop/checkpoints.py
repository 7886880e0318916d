"""Checkpoints on the disk: whole or not there, checked when read, two kept, no pickle. The loop lives elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from suwen.durable import new_folder
from suwen.errors import SuwenError

#: One more than one: the newest may turn out to be damaged.
KEPT = 2
_STATE, _OPTIMISER, _REST = "state.safetensors", "optimiser.safetensors", "checkpoint.json"


class CheckpointError(SuwenError):
    """A checkpoint that cannot be written, or none that can be read."""


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped."""

    #: How many steps are done.
    step: int
    #: Seconds of training, over all processes that had a part in the run one after the other.
    elapsed: float
    #: The trainable tensors by name.
    state: dict[str, Tensor]
    #: ``<tensor name>/exp_avg`` and so on.
    optimiser: dict[str, Tensor] = field(default_factory=dict)
    #: The random generators, one entry for each process; see ``random_state.py``.
    random: list[dict[str, Any]] = field(default_factory=list)
    #: Anything else that JSON can hold.
    extra: dict[str, Any] = field(default_factory=dict)


class Checkpoints:
    """The folder ``checkpoints/`` of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def steps(self) -> list[int]:
        """The steps there is a checkpoint of, the newest first. One in the making does not count."""
        numbers = [entry.name.removeprefix("step-") for entry in self.path.glob("step-*")]
        return sorted((int(number) for number in numbers if number.isdigit()), reverse=True)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then let go of those older than the one before it.

        Raises:
            CheckpointError: It could not be written (a full disk); the older ones are still there.
        """
        # What killed processes left behind.
        for entry in self.path.glob(".step-*.tmp*"):
            shutil.rmtree(entry, ignore_errors=True)
        try:
            with new_folder(self.path / _name(checkpoint.step)) as folder:
                _write(folder, checkpoint)
        except (OSError, SafetensorError) as problem:
            left = self.steps()
            last = f"the one of step {left[0]} is untouched" if left else "there is no older one"
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} could not be written to {self.path} ({problem}); {last}:"
                " make room on the disk, then go on with --resume"
            ) from problem
        for step in self.steps()[KEPT:]:
            self.discard(step)

    def load(self, step: int) -> Checkpoint:
        """Read a checkpoint and check every byte of it.

        Raises:
            CheckpointError: It is damaged.
        """
        folder = self.path / _name(step)
        try:
            return _read(folder)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
            raise CheckpointError(
                f"{folder} is damaged ({problem}): delete it, an older one is then taken"
            ) from problem

    def load_newest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, or None if there never was one; and what was wrong with newer ones.

        Raises:
            CheckpointError: There are checkpoints, and all are damaged.
        """
        problems: list[str] = []
        for step in self.steps():
            try:
                return self.load(step), problems
            except CheckpointError as problem:
                problems.append(str(problem))
        if problems:
            raise CheckpointError(
                f"no checkpoint in {self.path} can be read ({'; '.join(problems)}): look after the disk,"
                " then delete that folder to train this stage from its beginning"
            )
        return None, []

    def discard(self, step: int) -> None:
        """Delete a checkpoint; harmless when it is not there."""
        folder = self.path / _name(step)
        if folder.exists():
            # Renamed first: a kill in the middle must not leave half a checkpoint under a good name.
            doomed = folder.with_name(f".{folder.name}.{os.getpid()}.tmp.old")
            folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def clear(self) -> None:
        """Delete all checkpoints: the run is finished."""
        shutil.rmtree(self.path, ignore_errors=True)

    def need_room(self, size: int) -> None:
        """Refuse to start what could not be saved.

        Args:
            size: The bytes of one checkpoint.

        Raises:
            CheckpointError: The disk has no room for as many as will be there at once.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        # While one is written, all that are kept are still there.
        needed = size * (KEPT + 1 - min(KEPT, len(self.steps())))
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise CheckpointError(
                f"{self.path} needs {needed / 1e6:,.0f} MB for checkpoints and the disk has {free / 1e6:,.0f} MB left:"
                " make room, or train into another root"
            )


def _name(step: int) -> str:
    return f"step-{step:09d}"


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    hashes = {}
    for name, tensors in ((_STATE, checkpoint.state), (_OPTIMISER, checkpoint.optimiser)):
        save_file(dict(_apart(tensors)), folder / name)
        hashes[name] = _hash(folder / name)
    rest = {
        "step": checkpoint.step,
        "elapsed": checkpoint.elapsed,
        "random": checkpoint.random,
        "extra": checkpoint.extra,
        "sha256": hashes,
    }
    (folder / _REST).write_text(json.dumps({**rest, "seal": _seal(rest)}) + "\n", encoding="utf-8")


def _apart(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    # safetensors refuses two names for one memory, and tied weights are just that.
    seen: set[int] = set()
    for name, tensor in tensors.items():
        whole = tensor.detach().cpu().contiguous()
        yield name, whole.clone() if whole.untyped_storage().data_ptr() in seen else whole
        seen.add(whole.untyped_storage().data_ptr())


def _read(folder: Path) -> Checkpoint:
    rest = json.loads((folder / _REST).read_text(encoding="utf-8"))
    if rest.pop("seal") != _seal(rest):
        raise ValueError(f"{_REST} does not match its checksum")
    for name, expected in rest["sha256"].items():
        if _hash(folder / name) != expected:
            raise ValueError(f"{name} does not match its checksum")
    return Checkpoint(
        step=rest["step"],
        elapsed=rest["elapsed"],
        state=load_file(folder / _STATE),
        optimiser=load_file(folder / _OPTIMISER),
        random=rest["random"],
        extra=rest["extra"],
    )


def _seal(rest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode("utf-8")).hexdigest()


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
