"""Questions that passages answer, in the tables of a cluster index: each a further vector of its passage.

A question has a row of its own, given out like those of passages, by which searchers know its vector. What is found by
it is its passage: a hit is named by the passage's row, and scored by the best of all its vectors.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from suwen.index.cluster.truth import Connection
from suwen.index.cluster.wire import CHUNK, clean, copy, rows_of
from suwen.index.engine import EncodedDocument, IndexProblem, Question, Rows, Vectors
from suwen.index.stored_vectors import decode_vectors, encode_vectors

# -- writing ----------------------------------------------------------------------------------------------------


def put(connection: Connection, documents: Sequence[EncodedDocument], first: int) -> None:
    """Store the questions of documents whose passages got the rows from ``first`` on; theirs come after those."""
    row = first + sum(len(one.passages) for one in documents)
    records: list[tuple[int, int, str, bytes, int]] = []
    for one in documents:
        passages = {passage.ordinal: first + at for at, passage in enumerate(one.passages)}
        for (ordinal, text), blob in zip(one.questions, encode_vectors(one.vectors[len(one.passages) :]), strict=True):
            if clean(text) != text:
                raise IndexProblem(f"a question of document {one.document.id!r} holds a NUL: PostgreSQL stores none")
            records.append((row + len(records), passages[ordinal], text, blob, zlib.crc32(blob)))
        first += len(one.passages)
    if records:
        copy(connection, "questions", records, ("int8", "int8", "text", "bytea", "int8"))


def remove(connection: Connection, passages: Rows) -> Rows:
    """Delete the questions of these passages: the rows that are gone."""
    query = "DELETE FROM questions WHERE passage = ANY(%s) RETURNING row"
    return rows_of(connection.execute(query, (passages.tolist(),)))


# -- reading ----------------------------------------------------------------------------------------------------


def of_document(connection: Connection, number: int) -> list[Question]:
    """The questions that the passages of a document answer, as they came."""
    query = """SELECT ordinal, questions.text FROM questions JOIN passages ON passages.row = passage
               WHERE document = %s ORDER BY questions.row"""
    return [Question(ordinal, text) for ordinal, text in connection.execute(query, (number,))]


def vectors_by_text(connection: Connection, passages: Rows, dimension: int) -> dict[str, Vectors]:
    """The vectors of the questions of these passages, by what is asked."""
    query = "SELECT text, vector FROM questions WHERE passage = ANY(%s) ORDER BY row"
    found = connection.cursor(binary=True).execute(query, (passages.tolist(),)).fetchall()
    return dict(zip([text for text, _ in found], decode_vectors([blob for _, blob in found], dimension), strict=True))


def owners(connection: Connection, rows: Rows) -> Rows:
    """The rows of passages that these are, or whose questions these are; each once, ascending."""
    query = "SELECT row, passage FROM questions WHERE row = ANY(%s)"
    found = dict(connection.execute(query, (rows.tolist(),)).fetchall())
    return np.unique(np.array([found.get(row, row) for row in rows.tolist()], dtype=np.int64))


def with_questions(connection: Connection, passages: Rows) -> Rows:
    """The rows of passages and of their questions, ascending."""
    query = "SELECT row FROM questions WHERE passage = ANY(%s)"
    return np.sort(np.concatenate([passages, rows_of(connection.execute(query, (passages.tolist(),)))]))


def rows(connection: Connection) -> Rows:
    """The row of every question, ascending."""
    return rows_of(connection.execute("SELECT row FROM questions ORDER BY row"))


def vectors_of(connection: Connection, passages: Rows, dimension: int) -> tuple[Rows, Vectors]:
    """The vectors of the questions of these passages, with the row of the passage of each."""
    query = "SELECT passage, vector FROM questions WHERE passage = ANY(%s)"
    found = connection.cursor(binary=True).execute(query, (passages.tolist(),)).fetchall()
    return np.array([row for row, _ in found], dtype=np.int64), decode_vectors([one for _, one in found], dimension)


def every(connection: Connection, dimension: int) -> Iterator[tuple[Rows, Rows, Vectors]]:
    """Every question's row, its passage's and its vector, ascending, a chunk at a time."""
    after = 0
    query = "SELECT row, passage, vector FROM questions WHERE row > %s ORDER BY row LIMIT %s"
    while records := connection.cursor(binary=True).execute(query, (after, CHUNK)).fetchall():
        numbers = np.array([record[:2] for record in records], dtype=np.int64)
        yield numbers[:, 0], numbers[:, 1], decode_vectors([record[2] for record in records], dimension)
        after = int(numbers[-1, 0])


def problems(connection: Connection, dimension: int) -> list[str]:
    """What is wrong with the questions in the truth, in words with the fix."""
    query = "SELECT count(*) FROM questions WHERE NOT EXISTS(SELECT 1 FROM passages WHERE passages.row = passage)"
    (lost,) = connection.execute(query).fetchone() or (0,)
    found = [f"{lost} questions are of no passage: index their source again"] if lost else []
    query = "SELECT row, passage, vector, checksum FROM questions ORDER BY row"
    with connection.cursor(binary=True) as cursor:
        for row, passage, vector, checksum in cursor.stream(query):
            if zlib.crc32(vector) != checksum or len(vector) != 2 * dimension:
                found.append(
                    f"the vector of row {row}, a question of row {passage}, is damaged: add its document again"
                )
    return found
