"""What an index holds, counted in one moment of its truth: documents, passages, who encoded them, bytes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from suwen.index.engine import Stats
from suwen.index.truth import FILE


def stats(connection: sqlite3.Connection, folder: Path, dimension: int, space: str) -> Stats:
    """Counts and sizes."""
    fields = [key for (key,) in connection.execute("SELECT DISTINCT key FROM attributes ORDER BY key")]
    return Stats(
        documents=_count(connection, "documents"),
        passages=_count(connection, "passages"),
        deleted=_count(connection, "deleted"),
        dimension=dimension,
        space=space,
        encoders={name: passages_by(connection, name) for name in encoders(connection)},
        fields=fields,
        bytes_truth=sum(map(_size, folder.glob(f"{FILE}*"))),
        bytes_derived=sum(map(_size_inside, folder.glob("gen-*"))),
    )


def encoders(connection: sqlite3.Connection) -> list[str]:
    """Who encoded anything that is there. Steps from one name to the next, however many passages each has."""
    found: list[str] = []
    query = "SELECT encoder FROM passages WHERE encoder > ? ORDER BY encoder LIMIT 1"
    while (step := connection.execute(query, (found[-1] if found else "",)).fetchone()) is not None:
        found.append(step[0])
    return found


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


def _size_inside(folder: Path) -> int:
    # os.walk passes over a folder that vanishes under it, which a rebuild's do; a recursive glob does not.
    return sum(_size(Path(place, name)) for place, _, names in os.walk(folder) for name in names)
