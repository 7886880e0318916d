"""Builds of the engine that are wrong on purpose, made by patching it in the child: the kill tests must catch each."""

from __future__ import annotations

import functools
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workload import Checkpointing

from suwen.index import vectors
from suwen.index.embedded import EmbeddedEngine
from suwen.index.lexical import Lexical


class _Unsynced(Checkpointing):
    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        return super().execute(re.sub(r"(?i)(synchronous\s*=\s*)\w+", r"\1OFF", sql), *rest)


def truth_unsynced() -> None:
    """SQLite never syncs."""
    sqlite3.connect = functools.partial(sqlite3.connect, factory=_Unsynced)  # type: ignore[assignment]


def vectors_unsynced() -> None:
    """The engine's own files are written and never synced."""
    os.fsync = lambda _: None


def vectors_late() -> None:
    """The watermark is committed before the vectors it covers are written."""
    waiting: list[tuple[int, bytes, int]] = []
    write, publish = vectors.write_all, Lexical.add

    def flush(self: Lexical, *rest: object, **named: object) -> int:
        for handle, data, offset in waiting:
            write(handle, data, offset)
            os.fsync(handle)
            os.close(handle)
        waiting.clear()
        return publish(self, *rest, **named)  # type: ignore[arg-type]

    vectors.write_all = lambda handle, data, offset: waiting.append((os.dup(handle), data, offset))
    Lexical.add = flush  # type: ignore[method-assign, assignment]


def lexical_late() -> None:
    """The lexical watermark is committed before tantivy's own commit."""

    def publish(self: EmbeddedEngine, *, replace: bool = False) -> None:
        meta = self._truth.meta(self._truth.reader())
        contents = list(self._truth.contents(self._truth.reader(), int(meta["lexical_row"])))
        with self._truth.writing() as transaction:
            self._truth.set_meta(transaction, lexical_row=self._truth.last_row(transaction))
        self._open_lexical(int(meta["generation"])).add(contents, replace=replace)

    EmbeddedEngine._publish_lexical = publish  # type: ignore[method-assign]


def rename_late() -> None:
    """A rebuild switches to the new generation before the folder has its name."""
    waiting: list[tuple[Path, Path]] = []
    rename, sweep = Path.rename, EmbeddedEngine._sweep

    def later(self: Path, target: Path) -> Path:
        if not self.name.startswith("gen-"):
            return rename(self, target)
        waiting.append((self, target))
        return target

    def flush(self: EmbeddedEngine, keep: int) -> None:
        while waiting:
            rename(*waiting.pop())
        sweep(self, keep)

    Path.rename = later  # type: ignore[method-assign, assignment]
    EmbeddedEngine._sweep = flush  # type: ignore[method-assign]


def tombstones_early() -> None:
    """A rebuild drops the tombstones before it switches to files without the rows they hide."""
    rebuild = EmbeddedEngine.rebuild

    def first(self: EmbeddedEngine, *rest: object) -> None:
        with self._truth.writing() as transaction:
            transaction.execute("DELETE FROM deleted")
        rebuild(self, *rest)  # type: ignore[arg-type]

    EmbeddedEngine.rebuild = first  # type: ignore[method-assign, assignment]


BUILDS: dict[str, Callable[[], None]] = {
    build.__name__: build
    for build in (truth_unsynced, vectors_unsynced, vectors_late, lexical_late, rename_late, tombstones_early)
}
