"""Stored documents by their ids: what is there, what it was made from, its passages; and settings. Searches nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np

from suwen.index.engine import Known, StoredDocument, Vectors
from suwen.index.stored_vectors import questions_of, vectors_by_question, vectors_of
from suwen.index.truth import Truth

#: Of the settings those that are the engine's own.
_OWN = {
    *("format", "uuid", "space", "dimension", "similarity", "sequence", "generation"),
    *("sealed", "sealed_row", "lexical_row", "deletions", "mean"),
}


def settings(connection: sqlite3.Connection) -> dict[str, Any]:
    """What others keep beside the data."""
    return {key: value for key, value in Truth.meta(connection).items() if key not in _OWN}


def known(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Known]:
    """Of these documents those that are there, with what they were made from."""
    query = """SELECT digest, coalesce((SELECT encoder FROM passages WHERE document = number LIMIT 1), '')
               FROM documents WHERE id = ?"""
    records = ((id_, connection.execute(query, (id_,)).fetchone()) for id_ in ids)
    return {id_: Known(*record) for id_, record in records if record is not None}


def ids(connection: sqlite3.Connection, after: str, limit: int, origin: str | None) -> list[str]:
    """The first ids past ``after``, ascending: of all documents, or of those that came one way."""
    query = "SELECT id FROM documents WHERE id > ? AND (? IS NULL OR origin = ?) ORDER BY id LIMIT ?"
    return [id_ for (id_,) in connection.execute(query, (after, origin, origin, limit))]


def document(connection: sqlite3.Connection, id_: str) -> StoredDocument | None:
    """A whole document, if it is there."""
    query = "SELECT number, title, metadata, digest, origin FROM documents WHERE id = ?"
    if (record := connection.execute(query, (id_,)).fetchone()) is None:
        return None
    number, title, metadata, digest, origin = record
    of = "SELECT row FROM passages WHERE document = ? ORDER BY ordinal"
    rows = [row for (row,) in connection.execute(of, (number,))]
    passages, came = Truth.fetch(connection, rows), arrived(connection, number)
    asked = questions_of(connection, number)
    return StoredDocument(id_, title, json.loads(metadata), digest, passages, origin, came, asked)


def arrived(connection: sqlite3.Connection, number: int) -> float | None:
    """When a document came, where that was written down."""
    if not Truth.has_arrivals(connection):
        return None
    record = connection.execute("SELECT time FROM arrivals WHERE document = ?", (number,)).fetchone()
    return None if record is None else float(record[0])


def vectors_by_content(connection: sqlite3.Connection, id_: str, encoder: str, dimension: int) -> dict[str, Vectors]:
    """What one encoder made of a document's passages and of the questions they answer."""
    query = "SELECT row FROM passages WHERE encoder = ? AND document = (SELECT number FROM documents WHERE id = ?)"
    rows = [row for (row,) in connection.execute(query, (encoder, id_))]
    vectors = vectors_of(connection, np.asarray(rows, dtype=np.int64), dimension)
    made = {item.passage.content: vectors[i] for i, item in enumerate(Truth.fetch(connection, rows))}
    return vectors_by_question(connection, rows, dimension) | made
