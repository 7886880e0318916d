"""How a truth is reached where nothing may be written beside it. Opens no connection, reads no table.

SQLite's log wants two files beside the truth. Where they cannot be made, a truth that nobody has open is read as the
lone file it is (``immutable``): no lock keeps a writer away then, so whoever reads looks before and after whether one
came. Where a writer's two files are there, SQLite reads them as it does for everybody, and needs nothing of its own.
"""

from __future__ import annotations

import os
import shutil
import weakref
from pathlib import Path
from typing import NamedTuple

from suwen.index.engine import IndexProblem


class Rest(NamedTuple):
    """The state of a truth that lies alone: as long as it is the same, no writer has been there."""

    file: int
    size: int
    time: int
    log: int


def may_write(folder: Path) -> bool:
    """Whether this process may make files in a folder."""
    return os.access(folder, os.W_OK | os.X_OK)


def at_rest(path: Path) -> Rest | None:
    """The state of a truth to be read as a lone file; None where SQLite's log does its work, or can."""
    log = _size(path, "-wal")
    if may_write(path.parent) or (log and path.with_name(f"{path.name}-shm").exists()):
        return None
    found = path.stat()
    return Rest(found.st_ino, found.st_size, found.st_mtime_ns, log)


def alone(path: Path, rest: Rest) -> str:
    """What SQLite opens to read a lone file.

    Raises:
        IndexProblem: The last writer was cut off, and what it left must be taken in by somebody who may write.
    """
    if rest.log:
        raise IndexProblem(
            f"{path} has a log that was not taken in (its last writer was cut off, or it was copied while in use), and "
            f"{path.parent} may not be written to: run 'suwen verify {path.parent}' as somebody who may, or restore a "
            "backup"
        )
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


def _size(path: Path, ending: str) -> int:
    try:
        return path.with_name(path.name + ending).stat().st_size
    except OSError:
        return 0


class Linked:
    """Files of a folder by links in one of our own, for who must make files of its own beside them to read them.

    Args:
        folder: Whose files they are.
    """

    def __init__(self, folder: Path) -> None:
        import tempfile  # milliseconds that hardly any index takes

        self._files = folder.resolve()
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="suwen-"))
        except OSError as problem:
            raise IndexProblem(
                f"{folder} may not be written to, and there is no place for a lock instead ({problem}): set TMPDIR to "
                "a folder that may"
            ) from problem
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.renew()

    def renew(self) -> None:
        """Link what came since, and let go of what is gone."""
        there, here = ({path.name for path in each.iterdir()} for each in (self._files, self.folder))
        for name in there - here:
            if not name.endswith(".lock"):
                (self.folder / name).symlink_to(self._files / name)
        for name in here - there:
            if not name.endswith(".lock"):
                (self.folder / name).unlink()
