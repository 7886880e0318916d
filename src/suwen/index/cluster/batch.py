"""Documents about to be stored, with the rows they get; and what an index holds, counted. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from psycopg.types.json import Jsonb

from suwen.index.cluster import stored
from suwen.index.cluster.cut import Cut
from suwen.index.cluster.schema import FORMAT, TRUTH
from suwen.index.cluster.searcher import Searcher
from suwen.index.cluster.truth import Connection, Meta
from suwen.index.engine import EncodedDocument, Stats, Vectors


class New:
    """Documents to be stored: the rows of their passages and then of their questions, their vectors and terms.

    Attributes:
        documents: The documents.
        first: Their first row.
        count: How many rows they take.
        passages: How many of these are passages'.
        cut: The terms of their passages; questions are not searched by words.
    """

    def __init__(self, documents: Sequence[EncodedDocument], first: int) -> None:
        self.documents, self.first = documents, first
        texts = [passage.content for one in documents for passage in one.passages]
        self.passages, self.cut = len(texts), Cut(texts)
        self.count = self.passages + sum(len(one.questions) for one in documents)
        self.rows = np.arange(first, first + self.count, dtype=np.int64)

    def tell(self, connection: Connection, meta: Meta, searcher: Searcher) -> None:
        """Give the rows to a searcher."""
        parts = [one.vectors[: len(one.passages)] for one in self.documents]
        rows, given = self.rows[: self.passages], (connection, meta, meta.generation)
        searcher.insert(*given, rows, _joined(parts, meta.dimension), self.cut)
        if asked := self.count - self.passages:
            parts = [one.vectors[len(one.passages) :] for one in self.documents]
            rows = self.rows[self.passages :]
            searcher.insert(*given, rows, _joined(parts, meta.dimension), Cut([""] * asked))


def _joined(parts: Sequence[Vectors], dimension: int) -> Vectors:
    # As the truth rounds them.
    halves = [np.empty((0, dimension), np.float16), *(part.astype(np.float16) for part in parts)]
    return np.concatenate(halves)


def remember(connection: Connection, settings: Mapping[str, str | int]) -> None:
    """Keep settings, in the caller's transaction."""
    query = "INSERT INTO settings VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    for key, value in settings.items():
        connection.execute(query, (key, Jsonb(value)))


def count(connection: Connection, meta: Meta) -> Stats:
    """What there is, and what it takes."""
    (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone() or (0,)
    (gone,) = connection.execute("SELECT count(*) FROM gone").fetchone() or (0,)
    by = "SELECT encoder, count(*) FROM passages GROUP BY encoder ORDER BY encoder"
    encoders = dict(connection.execute(by).fetchall())
    query = """SELECT coalesce(sum(pg_total_relation_size(oid)) FILTER (WHERE relname = ANY(%s)), 0)::bigint,
                      coalesce(sum(pg_total_relation_size(oid)) FILTER (WHERE relname <> ALL(%s)), 0)::bigint
               FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"""
    truth, derived = connection.execute(query, (list(TRUTH), list(TRUTH))).fetchone() or (0, 0)
    return Stats(
        documents=documents,
        passages=meta.passages,
        deleted=gone,
        dimension=meta.dimension,
        space=meta.space,
        encoders=encoders,
        fields=stored.fields(connection),
        bytes_truth=truth,
        bytes_derived=derived,
        format=FORMAT,
        questions=meta.questions,
    )
