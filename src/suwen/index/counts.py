"""What an index holds, counted in one moment of its truth: documents, passages, who encoded them, bytes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from suwen.index.engine import Stats
from suwen.index.stored_vectors import has_questions
from suwen.index.truth import FILE, Truth

T = TypeVar("T")


class PerMoment(Generic[T]):
    """Counts by name, made again only when the index has changed: of a million documents some take a tenth of a second.

    Args:
        count: Counts what a name stands for, at a connection's moment.
    """

    def __init__(self, count: Callable[[sqlite3.Connection, str], T]) -> None:
        self._count = count
        self._known: dict[str, tuple[int, T]] = {}

    def at(self, connection: sqlite3.Connection, name: str = "") -> T:
        """What was counted at the connection's moment."""
        (sequence,) = connection.execute("SELECT value FROM meta WHERE key = 'sequence'").fetchone()
        known = self._known.get(name)
        if known is None or known[0] != sequence:
            self._known[name] = known = (sequence, self._count(connection, name))
        return known[1]


def count_all(connection: sqlite3.Connection, _: str = "") -> Stats:
    """Everything but the sizes of files."""
    meta = Truth.meta(connection)
    return Stats(
        documents=_count(connection, "documents"),
        passages=_count(connection, "passages"),
        deleted=_count(connection, "deleted"),
        dimension=int(meta["dimension"]),
        space=str(meta["space"]),
        encoders={name: passages_by(connection, name) for name in encoders(connection)},
        fields=fields(connection),
        bytes_truth=0,
        bytes_derived=0,
        format=int(meta["format"]),
        questions=_count(connection, "questions") if has_questions(connection) else 0,
    )


def sizes(folder: Path) -> tuple[int, int]:
    """The bytes of the truth and of what is derived from it."""
    # os.walk passes over a folder that vanishes under it, which a rebuild's do; a recursive glob does not.
    walks = (os.walk(one) for one in folder.glob("gen-*"))
    derived = (Path(place, name) for walk in walks for place, _, names in walk for name in names)
    return sum(map(_size, folder.glob(f"{FILE}*"))), sum(map(_size, derived))


def fields(connection: sqlite3.Connection) -> list[str]:
    """The fields of metadata that any document has. Steps from one to the next, however many values each has."""
    return _steps(connection, "SELECT key FROM attributes WHERE key > ? ORDER BY key LIMIT 1")


def encoders(connection: sqlite3.Connection) -> list[str]:
    """Who encoded anything that is there. Steps from one name to the next, however many passages each has."""
    return _steps(connection, "SELECT encoder FROM passages WHERE encoder > ? ORDER BY encoder LIMIT 1")


def _steps(connection: sqlite3.Connection, query: str) -> list[str]:
    names: list[str] = []
    while (step := connection.execute(query, (names[-1] if names else "",)).fetchone()) is not None:
        names.append(step[0])
    return names


def passages_by(connection: sqlite3.Connection, encoder: str) -> int:
    """How many passages one encoder encoded."""
    return int(connection.execute("SELECT count(*) FROM passages WHERE encoder = ?", (encoder,)).fetchone()[0])


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _size(path: Path) -> int:
    """The bytes of a file; none for a folder, or for what a writer removed since it was listed."""
    with contextlib.suppress(OSError):
        return path.stat().st_size if path.is_file() else 0
    return 0
