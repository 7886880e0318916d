"""Records as PostgreSQL takes them and gives them back: copied in, texts and numbers it can hold, rows. No tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from suwen.index.cluster.truth import Connection
from suwen.index.engine import Rows

#: Vectors read at a time: bounds the memory of a rebuild, whatever the size of the index.
CHUNK = 4096


def copy(
    connection: Connection, into: str, records: Iterable[tuple[Any, ...]], binary: Sequence[str] | None = None
) -> None:
    """Write records to a table, with the types of its columns where they go as bytes."""
    form = " (FORMAT BINARY)" if binary else ""
    with connection.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN{form}".encode()) as stream:
        if binary:
            stream.set_types(binary)
        for record in records:
            stream.write_row(record)


def copy_bytes(connection: Connection, into: str, records: Iterable[bytes]) -> None:
    """Write records that are already as COPY's binary form has them, some ten times cheaper than one by one."""
    with connection.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN (FORMAT BINARY)".encode()) as stream:
        stream.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"".join(records) + b"\xff\xff")


def number(value: float) -> Decimal:
    """A number as attributes hold it: floats by their shortest spelling, so that 0.1 equals 0.1."""
    return Decimal(int(value)) if isinstance(value, int) else Decimal(repr(value))


def clean(text: str) -> str:
    """A text as PostgreSQL can hold it."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def askable(texts: Iterable[str]) -> list[str]:
    """Of these texts those that PostgreSQL could hold: no other can be stored."""
    return [text for text in texts if clean(text) == text]


def rows_of(cursor: Iterable[tuple[Any, ...]]) -> Rows:
    """The rows that a query selects, as it selects them."""
    return np.fromiter((record[0] for record in cursor), dtype=np.int64)
