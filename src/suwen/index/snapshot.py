"""One consistent state of an embedded index, and how it is searched. Nothing here writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import tantivy

from suwen.index.engine import Ranking, Rows, StoredPassage, Vectors
from suwen.index.filters import FilterError, Where, compile_where
from suwen.index.lexical import Lexical
from suwen.index.truth import Truth
from suwen.index.vectors import VectorFiles, best

#: Up to this many sealed passages the search is exact over fp32 vectors kept in memory.
EXACT_LIMIT = 20_000
#: Hits beyond k whose true vectors are looked up, so that the order and the scores are those of exact search.
_MARGIN = 32


@dataclass
class View:
    """What a moment looks like outside SQLite: the files up to their watermark, the tail, and the tombstones."""

    sequence: int
    generation: int
    deletions: int
    dimension: int
    last_row: int
    sealed_row: int
    files: VectorFiles
    lexical: Lexical
    searcher: tantivy.Searcher
    hidden: Rows
    dead: npt.NDArray[np.bool_] | None
    tail_rows: Rows
    tail: Vectors
    #: Sealed rows and vectors for exact search, loaded when first asked for; shared between views of the same files,
    #: with the deletions they were loaded after: an older view may still need what is gone since.
    exact: list[tuple[int, Rows, Vectors]] = field(default_factory=list)
    _admitted: dict[str, Rows] = field(default_factory=dict)

    def admitted(self, connection: sqlite3.Connection, where: Where) -> Rows:
        """Live rows a filter lets through, ascending; remembered for as long as the view lives."""
        known = repr(where)
        found = self._admitted.get(known)
        if found is None:
            sql, parameters = compile_where(where)
            for key in where:
                if not connection.execute("SELECT 1 FROM attributes WHERE key = ? LIMIT 1", (key,)).fetchone():
                    raise FilterError(f"no document has the field {key!r}: {_fields(connection)}")
            found = np.fromiter((row for (row,) in connection.execute(sql, parameters)), dtype=np.int64)
            if len(self._admitted) >= 16:
                self._admitted.clear()
            self._admitted[known] = found
        return found


class EmbeddedSnapshot:
    """The state a ``with engine.snapshot()`` block works on."""

    def __init__(self, view: View, connection: sqlite3.Connection) -> None:
        self._view, self._connection = view, connection

    @property
    def last_row(self) -> int:
        """The highest row given out by this moment: grows with every passage added."""
        return self._view.last_row

    def dense(self, vector: Vectors, k: int, where: Where | None = None) -> Ranking:
        """The nearest passages by the space's similarity, with exact scores."""
        view = self._view
        query = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        admitted = view.admitted(self._connection, where) if where else None
        parts = [self._tail(query, admitted)]
        if view.files.count:
            exact = view.files.count <= EXACT_LIMIT
            parts.append(self._exact(query, admitted) if exact else self._approximate(query, k, admitted))
        rows = np.concatenate([part.rows for part in parts])
        scores = np.concatenate([part.scores for part in parts])
        # Rounded, so that equal vectors tie whatever block of a matrix product they were in; ties go by row.
        return best(rows, np.round(scores, 6), k)

    def exact(self, vector: Vectors, k: int) -> Ranking:
        """Exact search over every vector of the truth, in bounded memory: what recall is measured against."""
        query = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        kept = Ranking(np.empty(0, np.int64), np.empty(0, np.float32))
        after = 0
        while True:
            rows, vectors = Truth.vectors(self._connection, after, self._view.dimension, 8192)
            if len(rows) == 0:
                return kept
            scores = np.concatenate([kept.scores, np.round(vectors @ query, 6)])
            kept = best(np.concatenate([kept.rows, rows]), scores, k)
            after = int(rows[-1])

    def lexical(self, text: str, k: int, where: Where | None = None) -> Ranking:
        """The best passages by BM25 over words and bigrams."""
        view = self._view
        admitted = view.admitted(self._connection, where) if where else None
        return view.lexical.search(view.searcher, text, k, admitted, view.hidden, view.last_row)

    def fetch(self, rows: Sequence[int]) -> list[StoredPassage]:
        """Whole passages, in the order asked for."""
        return Truth.fetch(self._connection, rows)

    def sample(self, count: int) -> tuple[Rows, Vectors]:
        """About ``count`` live passages spread evenly over the index."""
        last, query = self._view.last_row, "SELECT row FROM vectors WHERE row >= ? ORDER BY row LIMIT 1"
        starts = np.unique(np.linspace(1, max(last, 1), count).astype(np.int64))
        found = {row[0] for start in starts if (row := self._connection.execute(query, (int(start),)).fetchone())}
        rows = np.asarray(sorted(found), dtype=np.int64)
        return rows, Truth.vectors_of(self._connection, rows, self._view.dimension)

    def _tail(self, query: Vectors, admitted: Rows | None) -> Ranking:
        view = self._view
        return _score(view.tail_rows, view.tail, query, admitted, view.hidden)

    def _exact(self, query: Vectors, admitted: Rows | None) -> Ranking:
        view = self._view
        loaded = next(iter(view.exact), None)
        if loaded is None or loaded[0] > view.deletions:
            rows, vectors = Truth.vectors(self._connection, 0, view.dimension)
            sealed = rows <= view.sealed_row
            loaded = (view.deletions, rows[sealed], vectors[sealed])
            view.exact[:] = [loaded]
        return _score(*loaded[1:], query, admitted, view.hidden)

    def _approximate(self, query: Vectors, k: int, admitted: Rows | None) -> Ranking:
        view = self._view
        rows = view.files.search(query, k + _MARGIN, admitted, view.dead).rows
        return Ranking(rows, Truth.vectors_of(self._connection, rows, view.dimension) @ query)


def _score(rows: Rows, vectors: Vectors, query: Vectors, admitted: Rows | None, hidden: Rows) -> Ranking:
    seen = ~np.isin(rows, hidden) if len(hidden) else np.ones(len(rows), dtype=bool)
    if admitted is not None:
        seen &= np.isin(rows, admitted)
    scores = vectors @ query
    return Ranking(rows[seen], scores[seen]) if not seen.all() else Ranking(rows, scores)


def _fields(connection: sqlite3.Connection) -> str:
    names = [key for (key,) in connection.execute("SELECT DISTINCT key FROM attributes ORDER BY key")]
    return "the fields are " + ", ".join(names) if names else "this index has no metadata at all"
