"""Documents that wait for another encoder: which, since when, and whether new vectors still fit them. Writes nothing.

Nothing is kept to say that a document waits: its passages name who encoded them. Rows are given out in the order of
arrival, so the oldest that wait are the first rows of an index that SQLite keeps by encoder.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import numpy as np

from suwen.corpora.records import Document, Passage
from suwen.index import reencoded
from suwen.index.counts import encoders, passages_by
from suwen.index.engine import Backlog, EncodedDocument, Outcome, Reencoded, Vectors, Waiting
from suwen.index.lookup import arrived
from suwen.index.stored_vectors import questions_of

_NONE: Vectors = np.empty((0, 0), dtype=np.float32)


def backlog(connection: sqlite3.Connection, encoder: str) -> Backlog:
    """How much is stored with vectors of other encoders than this one, at the connection's moment."""
    others = _others(connection, encoder)
    count = "SELECT count(*) FROM passages WHERE encoder = ? AND ordinal = 0"
    documents = sum(int(connection.execute(count, (name,)).fetchone()[0]) for name in others)
    first = next(_first_rows(connection, others), None)
    oldest = None if first is None else arrived(connection, first[1])
    return Backlog(documents, sum(passages_by(connection, name) for name in others), oldest)


def oldest(connection: sqlite3.Connection, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
    """The oldest documents with vectors of other encoders than this one, without those in ``skip``."""
    rows = _first_rows(connection, _others(connection, encoder))
    documents = (one for _, number in rows if (one := _waiting(connection, number)).id not in skip)
    return list(islice(documents, limit))


def compare(
    connection: sqlite3.Connection, made: Sequence[Reencoded], encoder: str
) -> tuple[list[EncodedDocument], dict[str, Outcome]]:
    """Hold new vectors against what is stored now: the documents they may replace, and what becomes of each."""
    return reencoded.compare(lambda id_: _stored(connection, id_), made, encoder)


def _others(connection: sqlite3.Connection, encoder: str) -> list[str]:
    return [name for name in encoders(connection) if name != encoder]


def _first_rows(connection: sqlite3.Connection, names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first row of each document these encoders encoded, ascending, with the document's number."""
    query = "SELECT row, document FROM passages WHERE encoder = ? AND ordinal = 0 ORDER BY row"
    return heapq.merge(*(connection.execute(query, (name,)) for name in names))


def _waiting(connection: sqlite3.Connection, number: int) -> Waiting:
    id_, title, digest = connection.execute(
        "SELECT id, title, digest FROM documents WHERE number = ?", (number,)
    ).fetchone()
    passages, encoder = _passages(connection, number, id_, title)
    contents = [*(passage.content for passage in passages), *(asked.text for asked in questions_of(connection, number))]
    return Waiting(id_, digest, encoder, arrived(connection, number), contents)


def _stored(connection: sqlite3.Connection, id_: str) -> EncodedDocument | None:
    """A document as it was taken in, but for its vectors and the text around its passages, which is not kept."""
    query = "SELECT number, title, metadata, digest, origin FROM documents WHERE id = ?"
    if (record := connection.execute(query, (id_,)).fetchone()) is None:
        return None
    number, title, metadata, digest, origin = record
    passages, encoder = _passages(connection, number, id_, title)
    document = Document(id_, "", title, json.loads(metadata))
    asked = questions_of(connection, number)
    return EncodedDocument(document, passages, _NONE, encoder, digest, origin, questions=asked)


def _passages(connection: sqlite3.Connection, number: int, id_: str, title: str) -> tuple[list[Passage], str]:
    """A document's passages in order, and who encoded them: one encoder has them all."""
    query = 'SELECT ordinal, text, start, "end", encoder FROM passages WHERE document = ? ORDER BY ordinal'
    records = connection.execute(query, (number,)).fetchall()
    passages = [Passage(id_, ordinal, text, start, end, title) for ordinal, text, start, end, _ in records]
    return passages, records[0][-1] if records else ""
