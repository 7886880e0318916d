"""The folder of one stage's run: what was asked, what it ran on, what came of it. The training is ``loop``'s.

``config.json`` is written last when a run begins and ``metrics.json`` last when it ends: a folder with the first and
without the second is unfinished. Of several processes only the first writes. Whether a folder holds the work that is
asked for is the runner's to say, by the stage's identity: here the settings are kept for people to read.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import suwen
from suwen.durable import FileLock, Locked, new_folder, write_json
from suwen.errors import SuwenError
from suwen.training.loop.checkpoints import Checkpoints
from suwen.training.loop.curves import Curves
from suwen.training.loop.journal import differences
from suwen.training.loop.processes import agree, in_first, world

_PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "peft",
    "accelerate",
    "safetensors",
    "tokenizers",
    "numpy",
)

#: What a folder holds from the start, before there is anything that took work.
_BARREN = {"lock", "versions.json", "inputs.json", "config.json", "events.jsonl"}


class RunError(SuwenError):
    """A run folder that cannot be used for this run."""


class RunFolder(AbstractContextManager["RunFolder"]):
    """One stage of one run. Make it with :meth:`open`, and use it with ``with`` or close it.

    Attributes:
        path: The folder.
        curves: ``curves.csv``.
        checkpoints: ``checkpoints/``.
        finished: Whether the stage was already finished when the folder was opened, or is by now.
    """

    def __init__(self, path: Path, lock: FileLock | None = None, *, finished: bool = False) -> None:
        self._lock = lock
        self.path = path
        self.curves = Curves(path / "curves.csv")
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.finished = finished
        #: What looking at texts set aside has told, of a training that was watched.
        self.looks: dict[str, float] = {}
        #: What was odd about the rows it learnt from, by count.
        self.rows: dict[str, int] = {}

    @classmethod
    def open(
        cls, path: Path | str, config: Mapping[str, Any], inputs: Mapping[str, str], *, resume: bool = False
    ) -> RunFolder:
        """Begin a run, or find one again.

        Args:
            path: The folder; made if it is not there.
            config: The stage's full settings, of what JSON can hold; on going on, the new ones are written down.
            inputs: Hashes of what the stage reads of earlier stages, by name.
            resume: Whether an unfinished run goes on.

        Raises:
            RunError: The folder was begun on other inputs, holds an unfinished run that is not to be resumed or
                something else altogether, or is in use by another process.
        """
        folder = Path(path)
        opened = in_first(lambda: cls._open(folder, _plain(config), _plain(inputs), resume=resume))
        finished = agree([float(opened is not None and opened.finished)])[0]
        return opened if opened is not None else cls(folder, finished=bool(finished))

    @classmethod
    def _open(cls, folder: Path, config: dict[str, Any], inputs: dict[str, Any], *, resume: bool) -> RunFolder:
        if not (folder / "config.json").exists():
            return cls._begin(folder, config, inputs)
        begun = _read(folder / "inputs.json")
        # Folders of 0.1.0 hold hashes of data files too, which are in the stage's identity.
        shared = inputs.keys() & begun.keys()
        before, now = ({key: one[key] for key in shared} for one in (begun, inputs))
        if changed := differences(before, now):
            raise RunError(
                f"{folder} was begun on other results of earlier stages:\n  "
                + "\n  ".join(f"{key}: {old} -> {new}" for key, (old, new) in changed.items())
                + "\nput the old ones back, train into another root, or delete that folder"
            )
        if (folder / "metrics.json").exists():
            return cls(folder, finished=True)
        if not resume:
            raise RunError(
                f"{folder} holds an unfinished run:"
                " go on with --resume, or train into another root (or delete that folder)"
            )
        return cls._go_on(folder, config)

    @staticmethod
    def drop_barren(folder: Path) -> bool:
        """Remove the folder of a run that ended before it had anything to keep, such as by an error at its start.

        Returns:
            Whether it is gone: not where anything was kept, the run is finished, or another process is in it.
        """
        if folder.is_symlink() or not {entry.name for entry in folder.iterdir()} <= _BARREN:
            return False
        try:
            lock = _locked(folder)
        except RunError:
            return False
        barren = {entry.name for entry in folder.iterdir()} <= _BARREN
        if barren:
            shutil.rmtree(folder)
        lock.release()
        return barren

    @classmethod
    def _begin(cls, folder: Path, config: dict[str, Any], inputs: dict[str, Any]) -> RunFolder:
        ours = {"lock", "versions.json", "inputs.json"}
        others = [entry.name for entry in folder.iterdir() if entry.name not in ours] if folder.exists() else []
        if strange := sorted(name for name in others if not name.endswith(".tmp")):
            raise RunError(f"{folder} is no run folder and holds {strange[0]}: train into another root, or empty it")
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder, _locked(folder))
        if (folder / "config.json").exists():
            run.close()
            raise RunError(f"another process has just begun a run in {folder}: come back with --resume")
        write_json(folder / "versions.json", versions())
        write_json(folder / "inputs.json", inputs)
        write_json(folder / "config.json", config)
        run.event(event="begun")
        return run

    @classmethod
    def _go_on(cls, folder: Path, config: dict[str, Any]) -> RunFolder:
        run = cls(folder, _locked(folder))
        if (folder / "metrics.json").exists():
            run.close()
            return cls(folder, finished=True)
        for leftover in folder.glob(".model.*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        # Another version may round otherwise, which is worth knowing and no reason to lose the work.
        versions_changed = _shown(differences(_read(folder / "versions.json"), versions()))
        config_changed = _shown(differences(run.config, config))
        write_json(folder / "config.json", config)
        run.event(event="opened again", config_changed=config_changed, versions_changed=versions_changed)
        return run

    @property
    def model(self) -> Path:
        """Where the trained model is, or will be: ``model/``."""
        return self.path / "model"

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the run, as they are written."""
        return _read(self.path / "config.json")

    @property
    def metrics(self) -> dict[str, Any]:
        """What :meth:`finish` was given.

        Raises:
            RunError: The run is not finished.
        """
        if not (self.path / "metrics.json").exists():
            raise RunError(f"{self.path} is not finished and has no metrics yet: go on with --resume")
        return _read(self.path / "metrics.json")

    def leave(self, save: Callable[[Path], object], measure: Callable[[], dict[str, float]] = dict) -> dict[str, float]:
        """Write the model, whole or not at all, and measure it, in the first process; the others wait.

        Args:
            save: Writes the model to the folder it is given, which then becomes ``model/``, in place of one that is
                there.
            measure: Gives the metrics of the model, once it is there.
        """

        def finish() -> dict[str, float]:
            with new_folder(self.model) as temporary:
                save(temporary)
            return measure()

        return in_first(finish) or {}

    def event(self, **fields: Any) -> None:
        """Add a line to ``events.jsonl``, with the time."""
        if world()[0] != 0:
            return
        line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **fields}, ensure_ascii=False, default=str)
        with (self.path / "events.jsonl").open("ab+") as stream:
            # A kill may have cut the last line short; the next one must not be glued to it.
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 1))
            torn = stream.read(1) not in (b"", b"\n")
            stream.write(b"\n" * torn + line.encode("utf-8") + b"\n")

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """Draw the curves, write ``metrics.json``, and let go of the checkpoints and the lock."""
        if world()[0] == 0:
            left_out = self.curves.plot()
            strange = [key for key, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)]
            notes = [*([left_out] if left_out else []), *(f"{key} is not a finite number" for key in strange)]
            # JSON knows no NaN, and hours of training must not end in an error about that.
            clean = {key: None if key in strange else value for key, value in metrics.items()}
            write_json(self.path / "metrics.json", {**clean, **({"notes": notes} if notes else {})})
            self.event(event="finished")
            self.checkpoints.clear()
        self.finished = True
        self.close()

    def close(self) -> None:
        """Let another process have the folder; harmless when done twice."""
        if self._lock is not None:
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A folder that nobody holds any more must not stay locked for as long as the process lives.
        self.close()


def versions() -> dict[str, Any]:
    """What a run was made with: Python, packages, the device, the number of processes and threads."""
    cuda = torch.cuda.is_available()
    return {
        "suwen": suwen.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{name: _version(name) for name in _PACKAGES},
        "cuda": torch.version.cuda if cuda else None,
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine(),
        "processes": world()[1],
        "threads": torch.get_num_threads(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        # A package that is only a folder on the path has no metadata; it may be loaded all the same.
        return getattr(sys.modules.get(package.replace("-", "_")), "__version__", None)


def _locked(folder: Path) -> FileLock:
    lock = FileLock(folder / "lock")
    try:
        lock.acquire()
    except Locked as problem:
        if problem.holder == str(os.getpid()):
            raise RunError(f"{folder} is already open in this process: close that RunFolder first") from None
        raise RunError(
            f"process {problem.holder} trains in {folder}: wait for it, or stop it and come back with --resume"
        ) from None
    return lock


def _shown(changes: Mapping[str, tuple[Any, Any]]) -> dict[str, str]:
    return {key: f"{old} -> {new}" for key, (old, new) in changes.items()}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON would give it back, so that a tuple is no difference from a list."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise RunError(f"the settings of a run must be what JSON can hold ({problem}): dump the model first") from None
    return plain


def _read(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise RunError(f"{file} cannot be read ({problem}): train into another root, or delete that run") from problem
    return content
