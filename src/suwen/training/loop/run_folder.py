"""The folder of one stage's run: what was asked, what it ran on, what came of it. The training is ``loop``'s.

``config.json`` is written last when a run begins and ``metrics.json`` last when it ends: a folder with the first and
without the second is unfinished. Of several processes only the first writes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

import suwen
from suwen.durable import FileLock, Locked
from suwen.errors import SuwenError
from suwen.training.durable import sync, sync_tree, write_whole
from suwen.training.loop.checkpoints import Checkpoints
from suwen.training.loop.curves import Curves
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
_ABSENT = object()
_LONGEST_VALUE = 60


class RunError(SuwenError):
    """A run folder that cannot be used for this run."""


class RunFolder:
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

    @classmethod
    def open(
        cls,
        path: Path | str,
        config: Mapping[str, Any],
        inputs: Mapping[str, str],
        *,
        resume: bool = False,
        may_change: Collection[str] = (),
    ) -> RunFolder:
        """Begin a run, or find one again.

        Args:
            path: The folder; made if it is not there.
            config: The stage's full settings, of what JSON can hold.
            inputs: Hashes of all that the stage reads, by name.
            resume: Whether an unfinished run goes on.
            may_change: Dotted keys of the settings that do not touch what is trained, such as
                ``training.checkpoint_every``: another value is no reason to refuse.

        Raises:
            RunError: The folder holds a run of other settings or data, an unfinished one that is not to be resumed,
                something else altogether, or is in use by another process.
        """
        folder = Path(path)
        opened = in_first(
            lambda: cls._open(folder, _plain(config), _plain(inputs), resume=resume, may_change=may_change)
        )
        finished = agree([float(opened is not None and opened.finished)])[0]
        return opened if opened is not None else cls(folder, finished=bool(finished))

    @classmethod
    def _open(
        cls,
        folder: Path,
        config: dict[str, Any],
        inputs: dict[str, Any],
        *,
        resume: bool,
        may_change: Collection[str],
    ) -> RunFolder:
        if not (folder / "config.json").exists():
            return cls._begin(folder, config, inputs)
        changed = _differences(_read(folder / "config.json"), config, "")
        allowed = {key: change for key, change in changed.items() if key in may_change}
        refused = {key: change for key, change in changed.items() if key not in may_change}
        _refuse(folder, refused, _differences(_read(folder / "inputs.json"), inputs, ""))
        if (folder / "metrics.json").exists():
            return cls(folder, finished=True)
        if not resume:
            raise RunError(
                f"{folder} holds an unfinished run of the same settings:"
                " go on with --resume, or train into another root (or delete that folder)"
            )
        return cls._go_on(folder, config, allowed)

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
        _write(folder / "versions.json", versions())
        _write(folder / "inputs.json", inputs)
        _write(folder / "config.json", config)
        run.event(event="begun")
        return run

    @classmethod
    def _go_on(cls, folder: Path, config: dict[str, Any], allowed: dict[str, tuple[Any, Any]]) -> RunFolder:
        run = cls(folder, _locked(folder))
        if (folder / "metrics.json").exists():
            run.close()
            return cls(folder, finished=True)
        for leftover in folder.glob(".model.*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        if allowed:
            _write(folder / "config.json", config)
        # Another version may round otherwise, which is worth knowing and no reason to lose the work.
        now = {key: list(pair) for key, pair in _differences(_read(folder / "versions.json"), versions(), "").items()}
        changed = {key: list(pair) for key, pair in allowed.items()}
        run.event(event="opened again", config_changed=_shown(changed), versions_changed=_shown(now))
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

    @contextmanager
    def new_model(self) -> Iterator[Path]:
        """A folder to write the model to, which becomes ``model/`` when the block ends well.

        Every process gets one; only the first process's becomes the model.
        """
        temporary = self.path / f".model.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            if world()[0] == 0:
                sync_tree(temporary)
                shutil.rmtree(self.model, ignore_errors=True)
                temporary.rename(self.model)
                sync(self.path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

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

    def events(self) -> list[dict[str, Any]]:
        """The events so far, without lines that a kill has cut short."""
        file = self.path / "events.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [found for line in lines if (found := _parsed(line)) is not None]

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """Draw the curves, write ``metrics.json``, and let go of the checkpoints and the lock."""
        if world()[0] == 0:
            left_out = self.curves.plot()
            strange = [key for key, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)]
            notes = [*([left_out] if left_out else []), *(f"{key} is not a finite number" for key in strange)]
            # JSON knows no NaN, and hours of training must not end in an error about that.
            clean = {key: None if key in strange else value for key, value in metrics.items()}
            _write(self.path / "metrics.json", {**clean, **({"notes": notes} if notes else {})})
            self.event(event="finished")
            self.checkpoints.clear()
        self.finished = True
        self.close()

    def close(self) -> None:
        """Let another process have the folder; harmless when done twice."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        holder = problem.holder
        if holder == str(os.getpid()):
            raise RunError(f"{folder} is already open in this process: close that RunFolder first") from None
        raise RunError(
            f"process {holder} trains in {folder}: wait for it, or stop it and come back with --resume"
        ) from None
    return lock


def _refuse(folder: Path, config: Mapping[str, tuple[Any, Any]], inputs: Mapping[str, tuple[Any, Any]]) -> None:
    if not config and not inputs:
        return
    lines = [f"{folder} holds a run of other {' and '.join(_kinds(config, inputs))}:"]
    lines += [f"  {key}: {_short(old)} -> {_short(new)}" for key, (old, new) in config.items()]
    lines += [f"  data {key}: {_short(old)} -> {_short(new)}" for key, (old, new) in inputs.items()]
    back = [f"--set {key}={_short(old)}" for key, (old, _) in config.items() if old is not _ABSENT]
    fixes = ["train into another root", *([f"put the settings back ({' '.join(back[:3])})"] if back else [])]
    lines.append(f"To mend it: {', or '.join([*fixes, *(['put the old data back'] if inputs else [])])}.")
    raise RunError("\n".join(lines))


def _kinds(config: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    if config:
        yield "settings"
    if inputs:
        yield "data"


def _differences(old: Any, new: Any, key: str) -> dict[str, tuple[Any, Any]]:
    """The leaves that differ, by dotted key."""
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for name in sorted({*old, *new}):
            found |= _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else name)
        return found
    return {} if old == new and type(old) is type(new) else {key: (old, new)}


def _short(value: Any) -> str:
    text = "absent" if value is _ABSENT else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _shown(changes: Mapping[str, list[Any]]) -> dict[str, str]:
    return {key: f"{_short(old)} -> {_short(new)}" for key, (old, new) in changes.items()}


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


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found


def _write(file: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    write_whole(file, text.encode("utf-8"))
