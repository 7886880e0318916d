"""Indexes from snapshots: taken in, checked, derived and opened, a kill at any moment notwithstanding. Speaks no HTTP.

In the folder of indexes, what is still being sent is ``.coming-…`` and is swept at the next start. Once it is whole it
is ``.restoring-NAME`` and no kill loses it: its search files are derived at the next start, if need be. Then it takes
its place as ``NAME``.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
from contextlib import closing
from pathlib import Path

from suwen.errors import SuwenError
from suwen.index.engine import need
from suwen.index.opening import index_exists, open_engine, restore
from suwen.service.indexes import Indexes
from suwen.service.problems import Problem, as_problem
from suwen.service.snapshot_files import unpack

log = logging.getLogger("suwen.service")
_COMING, _RESTORING = ".coming-", ".restoring-"


class _Halt(Exception):
    """The server stops: the rest is done after the next start."""


class Restoring:
    """What is being restored on a server. Used on the event loop.

    Args:
        indexes: Those of the server; what is restored becomes one of them.
    """

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes
        #: Names of indexes whose search files are being derived, and why others failed.
        self.under_way: dict[str, asyncio.Task[None]] = {}
        self.failed: dict[str, Problem] = {}

    def start(self) -> None:
        """Sweep what nobody was told was taken, and go on with the rest."""
        folder = self._indexes.settings.folder
        if folder is None or not folder.is_dir():
            return
        for left in folder.glob(f"{_COMING}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        for left in folder.glob(f"{_RESTORING}*"):
            if index_exists(left):
                self._begin(left.name.removeprefix(_RESTORING), folder)
            else:
                shutil.rmtree(left)

    async def stop(self) -> None:
        """Let what is being derived end at its next step."""
        await asyncio.gather(*self.under_way.values(), return_exceptions=True)

    def coming(self, name: str) -> Path:
        """A file for a snapshot that is about to be sent.

        Raises:
            Problem: The server takes no index of this name.
        """
        place = self._indexes.place_for(name)
        if name in self.under_way or place.exists():
            raise Problem("index_exists", f"there is an index {name!r}, or one is being restored: choose another")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.with_name(f"{_COMING}{secrets.token_hex(8)}")

    async def take(self, sent: Path, name: str) -> None:
        """Make an index of a snapshot that has come whole; once this returns, a kill does not lose it.

        Raises:
            Problem: It is none.
        """
        place = self._indexes.place_for(name)
        await asyncio.to_thread(_lay_down, sent, place.with_name(f"{_RESTORING}{name}"))
        self.failed.pop(name, None)
        self._begin(name, place.parent)

    def _begin(self, name: str, folder: Path) -> None:
        self.under_way[name] = asyncio.create_task(self._finish(name, folder))

    async def _finish(self, name: str, folder: Path) -> None:
        """Derive, check and open an index."""
        laid = folder / f"{_RESTORING}{name}"
        try:
            await asyncio.to_thread(_derive, laid, self._go_on)
            await asyncio.to_thread(laid.rename, folder / name)
            await self._indexes.open(name)
            log.info("restored", extra={"line": {"index": name}})
        except _Halt:
            pass
        except Exception as error:
            log.exception("the index %s cannot be restored", name)
            told = as_problem(error) if isinstance(error, SuwenError) else Problem("index_failed", type(error).__name__)
            self.failed[name] = told
            await asyncio.to_thread(shutil.rmtree, laid, ignore_errors=True)
        finally:
            del self.under_way[name]

    def _go_on(self, done: int, total: int) -> None:
        if self._indexes.shared.ending:
            raise _Halt
        self._indexes.shared.give_way()


def _lay_down(sent: Path, target: Path) -> None:
    """A snapshot as an index folder without its search files."""
    unpacked = sent.with_name(f"{_COMING}{secrets.token_hex(8)}")
    try:
        unpack(sent, unpacked)
        sent.unlink()
        restore(unpacked, target)
        with closing(open_engine(target, repair=False)) as engine:
            need(engine, "upkeep")
    except SuwenError as problem:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(problem, Problem):
            raise
        said = str(problem).replace(f"{target.parent}/", "")
        raise Problem("bad_snapshot", f"the body is not a snapshot of an index: {said}") from None
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _derive(folder: Path, progress: object) -> None:
    """Make the search files, and read everything once more."""
    assert callable(progress)
    with closing(open_engine(folder, write=True, repair=False)) as engine:
        engine.rebuild(progress)
        if problems := engine.verify(progress):
            raise Problem("bad_snapshot", f"the snapshot is damaged: {problems[0]}")
