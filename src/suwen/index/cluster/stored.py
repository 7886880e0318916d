"""Documents and passages in the tables of a cluster index: put, removed, read back. Searches nothing."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from suwen.corpora.records import Document, Metadata, Passage
from suwen.index import reencoded
from suwen.index.cluster import questions
from suwen.index.cluster.truth import Connection
from suwen.index.cluster.wire import CHUNK, askable, clean, copy, number, rows_of
from suwen.index.engine import (
    Backlog,
    DamagedIndex,
    EncodedDocument,
    IndexProblem,
    Known,
    Outcome,
    Reencoded,
    Rows,
    StoredDocument,
    StoredPassage,
    Vectors,
    Waiting,
)
from suwen.index.filters import number_of
from suwen.index.stored_vectors import decode_vectors, encode_vectors


class Gone(NamedTuple):
    """What was removed: how many documents, and the rows of their passages and questions."""

    documents: int
    passages: Rows
    questions: Rows

    @property
    def rows(self) -> Rows:
        """All rows that a searcher is to forget."""
        return np.concatenate([self.passages, self.questions])


# -- writing ----------------------------------------------------------------------------------------------------


def put(connection: Connection, documents: Sequence[EncodedDocument], first: int) -> Gone:
    """Insert or replace documents; passages get the rows from ``first`` on, then questions. What is gone."""
    for encoded in documents:
        _check_text(encoded)
    gone = remove(connection, [encoded.document.id for encoded in documents])
    numbers = _put_documents(connection, documents)
    attributes = (
        (n, *one) for n, e in zip(numbers, documents, strict=True) for one in _attributes(e.document.metadata)
    )
    copy(connection, "attributes(document, key, text, number, spelled)", attributes)
    parts = [(n, e, part) for n, e in zip(numbers, documents, strict=True) for part in e.passages]
    passages = (
        (row, n, one.ordinal, one.start, one.end, one.text, encoded.encoder)
        for row, (n, encoded, one) in enumerate(parts, start=first)
    )
    copy(connection, 'passages(row, document, ordinal, start, "end", text, encoder)', passages)
    blobs = (blob for encoded in documents for blob in encode_vectors(encoded.vectors[: len(encoded.passages)]))
    records = ((row, blob, zlib.crc32(blob)) for row, blob in enumerate(blobs, start=first))
    copy(connection, "vectors", records, ("int8", "bytea", "int8"))
    questions.put(connection, documents, first)
    return gone


def _put_documents(connection: Connection, documents: Sequence[EncodedDocument]) -> list[int]:
    query = "INSERT INTO documents(id, title, metadata, digest, origin, arrived) VALUES (%s,%s,%s,%s,%s,%s)"
    numbers = []
    with connection.cursor() as cursor:
        given = [
            (e.document.id, e.document.title, json.dumps(e.document.metadata), e.digest, e.origin, e.arrived)
            for e in documents
        ]
        cursor.executemany(f"{query} RETURNING number", given, returning=True)
        while given:
            numbers.append(int(cursor.fetchone()[0]))  # type: ignore[index]
            if not cursor.nextset():
                break
    return numbers


def remove(connection: Connection, ids: Sequence[str]) -> Gone:
    """Delete documents with their passages and questions."""
    query = "DELETE FROM documents WHERE id = ANY(%s) RETURNING number"
    numbers = [number for (number,) in connection.execute(query, (askable(ids),))]
    if not numbers:
        return Gone(0, np.empty(0, np.int64), np.empty(0, np.int64))
    query = "DELETE FROM passages WHERE document = ANY(%s) RETURNING row"
    gone = rows_of(connection.execute(query, (numbers,)))
    connection.execute("DELETE FROM attributes WHERE document = ANY(%s)", (numbers,))
    connection.execute("DELETE FROM vectors WHERE row = ANY(%s)", (gone.tolist(),))
    copy(connection, "gone", ((row,) for row in gone.tolist()))
    return Gone(len(numbers), gone, questions.remove(connection, gone))


def _check_text(encoded: EncodedDocument) -> None:
    document = encoded.document
    texts = [document.id, document.title, encoded.digest, *(passage.text for passage in encoded.passages)]
    if len(askable(texts)) < len(texts) or len(document.id.encode()) > 2000:
        raise IndexProblem(
            f"document {document.id[:80]!r} holds a NUL or half a character pair, or its id is over 2,000 bytes: "
            "PostgreSQL stores neither; clean it"
        )


def _attributes(metadata: Metadata) -> Iterator[tuple[str, str | None, Decimal | None, Decimal | None]]:
    for key, values in metadata.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str):
                spelled = number_of(value)
                yield clean(key), clean(value), None, None if spelled is None else number(spelled)
            elif value is not None and math.isfinite(value):
                yield clean(key), None, number(value), None


# -- reading ----------------------------------------------------------------------------------------------------


def fetch(connection: Connection, rows: Sequence[int]) -> list[StoredPassage]:
    """Whole passages, in the order asked for."""
    query = """SELECT row, id, ordinal, text, start, "end", title, metadata, encoder
               FROM passages JOIN documents ON number = document WHERE row = ANY(%s)"""
    found = {record[0]: record[1:] for record in connection.execute(query, ([int(row) for row in rows],))}
    stored = []
    for row in rows:
        if (record := found.get(int(row))) is None:
            raise DamagedIndex(f"the searcher names row {row}, which is not in the truth: run 'suwen rebuild'")
        id_, ordinal, text, start, end, title, metadata, encoder = record
        passage = Passage(id_, ordinal, text, start, end, title)
        stored.append(StoredPassage(int(row), passage, json.loads(metadata), encoder))
    return stored


def document(connection: Connection, id_: str) -> StoredDocument | None:
    """A whole document, if it is there."""
    query = "SELECT number, title, metadata, digest, origin, arrived FROM documents WHERE id = ANY(%s)"
    if (record := connection.execute(query, (askable([id_]),)).fetchone()) is None:
        return None
    of = "SELECT row FROM passages WHERE document = %s ORDER BY ordinal"
    rows = rows_of(connection.execute(of, (record[0],)))
    number, title, metadata, digest, origin, arrived = record
    passages, asked = fetch(connection, rows.tolist()), questions.of_document(connection, number)
    return StoredDocument(id_, title, json.loads(metadata), digest, passages, origin, arrived, asked)


def known(connection: Connection, ids: Sequence[str]) -> dict[str, Known]:
    """Of these documents those that are there, with what they were made from."""
    query = """SELECT id, digest, coalesce((SELECT encoder FROM passages WHERE document = number LIMIT 1), '')
               FROM documents WHERE id = ANY(%s)"""
    return {id_: Known(digest, encoder) for id_, digest, encoder in connection.execute(query, (askable(ids),))}


def ids(connection: Connection, after: str, limit: int, origin: str | None) -> list[str]:
    """The first ids past ``after``, ascending."""
    query = "SELECT id FROM documents WHERE id > %s AND (%s::text IS NULL OR origin = %s) ORDER BY id LIMIT %s"
    return [id_ for (id_,) in connection.execute(query, (clean(after), origin, origin, limit))]


def vectors_by_content(connection: Connection, id_: str, encoder: str, dimension: int) -> dict[str, Vectors]:
    """What one encoder made of a document's passages and of the questions they answer."""
    query = """SELECT row FROM passages
               WHERE encoder = %s AND document = (SELECT number FROM documents WHERE id = ANY(%s)) ORDER BY row"""
    rows = rows_of(connection.execute(query, (encoder, askable([id_]))))
    vectors = vectors_of(connection, rows, dimension)
    made = {item.passage.content: vectors[i] for i, item in enumerate(fetch(connection, rows.tolist()))}
    return questions.vectors_by_text(connection, rows, dimension) | made


def vectors_of(connection: Connection, rows: Rows, dimension: int) -> Vectors:
    """The vectors of these rows, in this order."""
    query = "SELECT row, vector FROM vectors WHERE row = ANY(%s)"
    wanted = rows.tolist()
    blobs = dict(connection.cursor(binary=True).execute(query, (wanted,)).fetchall())
    if lost := [row for row in wanted if row not in blobs]:
        raise DamagedIndex(f"row {lost[0]} has no vector: add its document again, or restore a backup of the database")
    return decode_vectors([blobs[row] for row in wanted], dimension)


def all_vectors(connection: Connection, dimension: int) -> Iterator[tuple[Rows, Vectors]]:
    """Every row and its vector, ascending, a chunk at a time."""
    after = 0
    query = "SELECT row, vector FROM vectors WHERE row > %s ORDER BY row LIMIT %s"
    while records := connection.cursor(binary=True).execute(query, (after, CHUNK)).fetchall():
        rows = np.fromiter((row for row, _ in records), dtype=np.int64, count=len(records))
        yield rows, decode_vectors([blob for _, blob in records], dimension)
        after = int(rows[-1])


def contents_of(connection: Connection, rows: Rows) -> list[str]:
    """What is searched of these rows, which ascend."""
    query = """SELECT CASE WHEN title = '' THEN text ELSE title || E'\\n' || text END
               FROM passages JOIN documents ON number = document WHERE row = ANY(%s) ORDER BY row"""
    return [text for (text,) in connection.execute(query, (rows.tolist(),))]


def encoders(connection: Connection) -> list[str]:
    """Who encoded anything that is there."""
    return steps(connection, "encoder", "passages")


def fields(connection: Connection) -> list[str]:
    """The fields of metadata that any document has."""
    return steps(connection, "key", "attributes")


def steps(connection: Connection, column: str, table: str) -> list[str]:
    """The different values of an indexed column, ascending: steps from one to the next, however many rows each has."""
    query = f"""WITH RECURSIVE step(found) AS (
                  (SELECT {column} FROM {table} ORDER BY {column} LIMIT 1)
                  UNION ALL SELECT (SELECT {column} FROM {table} WHERE {column} > found ORDER BY {column} LIMIT 1)
                  FROM step WHERE found IS NOT NULL)
                SELECT found FROM step WHERE found IS NOT NULL"""
    return [value for (value,) in connection.execute(query)]


# -- what waits for another encoder -----------------------------------------------------------------------------


def backlog(connection: Connection, encoder: str) -> Backlog:
    """How much is stored with vectors of other encoders than this one."""
    others = [name for name in encoders(connection) if name != encoder]
    query = "SELECT count(*) FILTER (WHERE ordinal = 0), count(*) FROM passages WHERE encoder = ANY(%s)"
    documents, passages = connection.execute(query, (others,)).fetchone() or (0, 0)
    first = _oldest(connection, others, 1)
    return Backlog(documents, passages, first[0][3] if first else None)


def waiting(connection: Connection, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
    """The oldest documents with vectors of other encoders than this one, without those in ``skip``."""
    others = [name for name in encoders(connection) if name != encoder]
    found = []
    for id_, digest, by, arrived, document_number in _oldest(connection, others, limit, skip):
        query = """SELECT CASE WHEN title = '' THEN text ELSE title || E'\\n' || text END FROM passages
                   JOIN documents ON number = document WHERE document = %s ORDER BY ordinal"""
        texts = [text for (text,) in connection.execute(query, (document_number,))]
        texts += [asked.text for asked in questions.of_document(connection, document_number)]
        found.append(Waiting(id_, digest, by, arrived, texts))
    return found


def _oldest(connection: Connection, names: Sequence[str], limit: int, skip: Collection[str] = ()) -> list[Any]:
    query = """SELECT id, digest, encoder, arrived, number FROM passages JOIN documents ON number = document
               WHERE encoder = ANY(%s) AND ordinal = 0 AND id <> ALL(%s) ORDER BY row LIMIT %s"""
    return connection.execute(query, (list(names), askable(skip), limit)).fetchall()


def compare(
    connection: Connection, made: Sequence[Reencoded], encoder: str
) -> tuple[list[EncodedDocument], dict[str, Outcome]]:
    """Hold new vectors against what is stored now: the documents they may replace, and what becomes of each."""
    return reencoded.compare(lambda id_: _as_taken_in(connection, id_), made, encoder)


def _as_taken_in(connection: Connection, id_: str) -> EncodedDocument | None:
    """A document, but for its vectors and the text around its passages, which is not kept."""
    if (stored := document(connection, id_)) is None:
        return None
    passages = [item.passage for item in stored.passages]
    encoder = stored.passages[0].encoder if stored.passages else ""
    itself = Document(stored.id, "", stored.title, stored.metadata)
    made = np.empty((0, 0), np.float32)
    return EncodedDocument(itself, passages, made, encoder, stored.digest, stored.origin, questions=stored.questions)
