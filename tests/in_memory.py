"""Folders in memory: every add to an index waits for the disk several times, and tests make many small indexes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def new_folder() -> Path:
    """An empty folder, in memory where there is such a place."""
    return Path(tempfile.mkdtemp(dir=_PLACE))


def remove(folder: Path) -> None:
    """Take a folder away, with what is in it.

    Opening an index starts a thread of tantivy's own that reads it once more and takes its lock; nothing waits for it.
    On a busy machine that lock's file may come back while the folder is being emptied, so it is emptied again.
    """
    for _ in range(50):
        with contextlib.suppress(OSError):
            return shutil.rmtree(folder)
        time.sleep(0.1)
    return shutil.rmtree(folder)


@contextlib.contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder for as long as the block lasts."""
    folder = new_folder()
    try:
        yield folder
    finally:
        remove(folder)
