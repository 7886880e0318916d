"""Vectors in the truth of an embedded index: one of each passage, and of each question it answers. Derives nothing.

A question's vector is another vector of its passage: it has the passage's row, so a ranking folds both into one hit.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from suwen.index.engine import DamagedIndex, Question, Rows, Vectors

#: Indexes that hold questions: an older suwen would find a passage several times.
FORMAT = 3
#: Passages read at a time: bounds the memory of a rebuild, whatever the size of the index.
_CHUNK = 8192
_TABLES = (
    """CREATE TABLE IF NOT EXISTS questions(
      number INTEGER PRIMARY KEY, row INTEGER NOT NULL, text TEXT NOT NULL, vector BLOB NOT NULL,
      checksum INTEGER NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS questions_by_row ON questions(row)",
)


class DamagedVector(DamagedIndex):
    """A vector of the truth itself is broken: no rebuild repairs it, adding its document again does."""


def encode_vectors(vectors: Vectors) -> list[bytes]:
    """Vectors as the truth keeps them: little-endian fp16."""
    return [row.tobytes() for row in np.ascontiguousarray(vectors, dtype="<f2")]


def decode_vectors(blobs: Sequence[bytes], dimension: int) -> Vectors:
    """The reverse of :func:`encode_vectors`."""
    joined: npt.NDArray[np.float16] = np.frombuffer(b"".join(blobs), dtype="<f2")
    return joined.reshape(-1, dimension).astype(np.float32)


def foreign(row: int) -> str:
    """What is wrong with a derived file that names a row which is not there."""
    return f"a derived file names row {row}, which is not in the truth: run 'suwen rebuild' on the index"


# -- reading ----------------------------------------------------------------------------------------------------


def has_questions(connection: sqlite3.Connection) -> bool:
    """Whether a passage may have several vectors."""
    (known,) = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    return int(known) >= FORMAT


def _select(connection: sqlite3.Connection, clause: str) -> str:
    """The vectors of some rows, ascending: each passage's own, then those of its questions."""
    own = f"SELECT row, vector, checksum, 0 AS number FROM vectors WHERE {clause}"
    if not has_questions(connection):
        return f"{own} ORDER BY row"
    return f"{own} UNION ALL SELECT row, vector, checksum, number FROM questions WHERE {clause} ORDER BY row, number"


def vectors_after(
    connection: sqlite3.Connection, after: int, dimension: int, passages: int | None = None
) -> tuple[Rows, Vectors]:
    """Rows above ``after`` and their vectors, ascending; a row comes once more for each of its questions.

    Args:
        connection: At the moment that is read.
        after: The last row that is left out.
        dimension: Of the vectors.
        passages: No more than so many.
    """
    last = None
    if passages is not None:
        page = "SELECT max(row) FROM (SELECT row FROM vectors WHERE row > ? ORDER BY row LIMIT ?)"
        (last,) = connection.execute(page, (after, passages)).fetchone()
    wanted = {"after": after, "last": last}
    query = _select(connection, "row > :after" if passages is None else "row > :after AND row <= :last")
    records = connection.execute(query, wanted).fetchall()
    bad = [row for row, blob, checksum, _ in records if zlib.crc32(blob) != checksum]
    if bad:
        raise DamagedVector(
            f"the stored vector of row {bad[0]} is damaged: run 'suwen verify' to see whose it is and add that "
            "document again, or restore a backup"
        )
    rows = np.array([record[0] for record in records], dtype=np.int64)
    return rows, decode_vectors([record[1] for record in records], dimension)


def all_vectors(connection: sqlite3.Connection, dimension: int) -> Iterator[tuple[Rows, Vectors]]:
    """Every row and its vectors, ascending, a chunk at a time that ends with a whole passage."""
    part = vectors_after(connection, 0, dimension, _CHUNK)
    while len(part[0]):
        yield part
        part = vectors_after(connection, int(part[0][-1]), dimension, _CHUNK)


def vectors_of(connection: sqlite3.Connection, rows: Rows, dimension: int) -> Vectors:
    """The passages' own vectors of these rows, in this order."""
    # One statement for all of them: half the cost of one each.
    query = "SELECT row, vector FROM vectors WHERE row IN (SELECT value FROM json_each(?))"
    wanted = rows.tolist()
    blobs = dict(connection.execute(query, (json.dumps(wanted),)).fetchall())
    if lost := [row for row in wanted if row not in blobs]:
        raise DamagedIndex(foreign(lost[0]))
    return decode_vectors([blobs[row] for row in wanted], dimension)


def every_vector_of(connection: sqlite3.Connection, rows: Rows, dimension: int) -> tuple[Rows, Vectors]:
    """All vectors of these rows, with the row of each."""
    if not has_questions(connection):
        return rows, vectors_of(connection, rows, dimension)
    wanted = {"wanted": json.dumps(rows.tolist())}
    clause = "row IN (SELECT value FROM json_each(:wanted))"
    records = connection.execute(_select(connection, clause), wanted).fetchall()
    found = np.array([record[0] for record in records], dtype=np.int64)
    if len(lost := np.setdiff1d(rows, found)):
        raise DamagedIndex(foreign(int(lost[0])))
    return found, decode_vectors([record[1] for record in records], dimension)


def questions_of(connection: sqlite3.Connection, document: int) -> list[Question]:
    """The questions that the passages of a document answer, as they came."""
    if not has_questions(connection):
        return []
    query = """SELECT ordinal, questions.text FROM questions JOIN passages USING (row)
               WHERE document = ? ORDER BY questions.number"""
    return [Question(ordinal, text) for ordinal, text in connection.execute(query, (document,))]


def vectors_by_question(connection: sqlite3.Connection, rows: Sequence[int], dimension: int) -> dict[str, Vectors]:
    """The vectors of the questions of these rows, by what is asked."""
    if not has_questions(connection):
        return {}
    query = "SELECT text, vector FROM questions WHERE row IN (SELECT value FROM json_each(?))"
    found = connection.execute(query, (json.dumps(list(rows)),)).fetchall()
    return dict(zip([text for text, _ in found], decode_vectors([blob for _, blob in found], dimension), strict=True))


# -- writing ----------------------------------------------------------------------------------------------------


def put_questions(
    connection: sqlite3.Connection, rows: Mapping[int, int], questions: Sequence[Question], vectors: Vectors
) -> None:
    """Store the questions of one document; ``rows`` are those of its passages, by their ordinals."""
    if not questions:
        return
    if not has_questions(connection):
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT,))
    for (ordinal, text), blob in zip(questions, encode_vectors(vectors), strict=True):
        record = (rows[ordinal], text, blob, zlib.crc32(blob))
        connection.execute("INSERT INTO questions(row, text, vector, checksum) VALUES(?, ?, ?, ?)", record)


def remove_questions(connection: sqlite3.Connection, document: int) -> None:
    """Delete the questions of a document whose passages are still there."""
    if has_questions(connection):
        of = "SELECT row FROM passages WHERE document = ?"
        connection.execute(f"DELETE FROM questions WHERE row IN ({of})", (document,))
