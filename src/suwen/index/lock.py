"""The writer's lock: one writer at a time, readers never wait for it. Held by the process, released by its death."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from suwen.index.engine import IndexProblem


class IndexLocked(IndexProblem):
    """Another process writes this index."""


class WriterLock:
    """An advisory lock on a file of the index folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle: int | None = None

    def acquire(self, wait: float = 0.0) -> None:
        """Take the lock, trying for ``wait`` seconds."""
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        give_up = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < give_up:
                    time.sleep(0.02)
                    continue
                holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                os.close(handle)
                raise IndexLocked(
                    f"{self._folder} is being written by process {holder}: wait for it to finish, or write through it"
                ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._handle = handle

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None
