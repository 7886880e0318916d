"""Processes that read an index of the server's folder beside the one that writes: who may begin, who has left.

A file of the index, which the writing process makes and takes away. While it is there others may open the index, with a
shared lock on it; once it is gone they let go of the index, and the lock tells when the last of them has.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FILE = "readers.lock"


def invite(index: Path) -> None:
    """Let other processes read an index from now on; where nothing may be written, only the writing one does."""
    with suppress(OSError):
        (index / FILE).touch()


class Reading:
    """One process's part: it reads an index until it lets go.

    Args:
        index: Its folder.

    Raises:
        OSError: Nobody may read it: it is not there, or going.
    """

    def __init__(self, index: Path) -> None:
        self._path = index / FILE
        self._file = self._path.open("rb")
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def wanted(self) -> bool:
        """Whether the index is still the one that was opened, and stays."""
        try:
            return self._path.stat().st_ino == os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Let go."""
        self._file.close()


class Leaving:
    """The end of an index: nobody begins to read it, and whoever does lets go.

    Args:
        index: Its folder.
    """

    def __init__(self, index: Path) -> None:
        self._file: BinaryIO | None = None
        try:
            self._file = (index / FILE).open("rb")
        except FileNotFoundError:
            return  # Nobody was ever invited.
        (index / FILE).unlink()

    def over(self) -> bool:
        """Whether the last process has left."""
        if self._file is None or self._file.closed:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self._file.close()
        return True
