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
    write, add = vectors.write_all, EmbeddedEngine.add

    def flush(self: EmbeddedEngine, documents: Any) -> None:
        vectors.write_all = lambda handle, data, offset: waiting.append((os.dup(handle), data, offset))
        add(self, documents)
        vectors.write_all = write
        for handle, data, offset in waiting:
            write(handle, data, offset)
            os.fsync(handle)
            os.close(handle)
        waiting.clear()

    EmbeddedEngine.add = flush  # type: ignore[method-assign]


def lexical_late() -> None:
    """The lexical watermark is committed before tantivy's own commit."""
    waiting: list[tuple[int, str]] = []
    add = EmbeddedEngine.add

    def publish(self: EmbeddedEngine, transaction: sqlite3.Connection) -> None:
        waiting.extend(self._truth.contents(transaction, int(self._truth.meta(transaction)["lexical_row"])))
        self._truth.set_meta(transaction, lexical_row=self._truth.last_row(transaction))

    def flush(self: EmbeddedEngine, documents: Any) -> None:
        add(self, documents)
        generation = int(self._truth.meta(self._truth.reader())["generation"])
        self._views.lexical(generation).add(waiting)
        waiting.clear()

    EmbeddedEngine._publish_lexical = publish  # type: ignore[method-assign]
    EmbeddedEngine.add = flush  # type: ignore[method-assign]


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
