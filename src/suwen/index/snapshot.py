"""One consistent state of an embedded index, and how it is searched. Nothing here writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import numpy as np

from suwen.index import lookup
from suwen.index.counts import fields
from suwen.index.engine import (
    Alternatives,
    Progress,
    Ranking,
    Rows,
    Scale,
    Snapshot,
    StoredDocument,
    StoredPassage,
    Vectors,
)
from suwen.index.filters import Where
from suwen.index.stored_vectors import all_vectors, every_vector_of, vectors_after, vectors_of
from suwen.index.truth import Truth
from suwen.index.vectors import IN_MEMORY, among, best, folded, products
from suwen.index.view import View

#: Up to this many sealed passages the search is exact over fp32 vectors kept in memory.
EXACT_LIMIT = 20_000
#: Hits beyond k whose true vectors are looked up, so that the order and the scores are those of exact search.
_MARGIN = 32


class EmbeddedSnapshot(Snapshot):
    """One read transaction of the truth, and the derived files as they were then."""

    def __init__(self, view: View, connection: sqlite3.Connection) -> None:
        self._view, self._connection = view, connection

    @property
    def last_row(self) -> int:
        return self._view.last_row

    @property
    def encoders(self) -> list[str]:
        return self._view.groups.names

    def fields(self) -> list[str]:
        return fields(self._connection)

    def dense(
        self,
        vector: Vectors,
        k: int,
        where: Where | None = None,
        scales: Mapping[str, Scale] | None = None,
        beside: Rows | None = None,
    ) -> Ranking:
        view = self._view
        query = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        admitted = view.admitted(self._connection, where) if where else None
        whole = len(view.tail_rows) or not view.files.count
        parts = [_score(view.tail_rows, view.tail, query, admitted, view.hidden)] if whole else []
        if view.files.count > EXACT_LIMIT:
            parts += self._approximate(query, k, admitted, bool(scales))
            if beside is not None:
                parts.append(
                    self._looked_up(np.setdiff1d(beside, np.concatenate([part.rows for part in parts])), query)
                )
        elif view.files.count:
            parts.append(self._exact(query, admitted))
        rows, scores, *_ = parts[0]
        if len(parts) > 1:
            rows = np.concatenate([part.rows for part in parts])
            scores = np.concatenate([part.scores for part in parts])
        if scales:
            scores = view.groups.scaled(rows, scores, scales)
        return self._best(rows, self._rounded(scores), k, beside)

    def exact(self, vectors: Vectors, k: int, progress: Progress | None = None) -> list[Ranking]:
        kept = [Ranking(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in vectors]
        for rows, stored in all_vectors(self._connection, self._view.dimension):
            for number, scores in enumerate(self._rounded(np.asarray(vectors, dtype=np.float32) @ stored.T)):
                old = kept[number]
                kept[number] = self._best(np.concatenate([old.rows, rows]), np.concatenate([old.scores, scores]), k)
            if progress:
                progress(int(rows[-1]), self._view.last_row)
        return kept

    def lexical(self, text: str, k: int, where: Where | None = None, also: Alternatives | None = None) -> Ranking:
        view = self._view
        admitted = view.admitted(self._connection, where) if where else None
        given = (text, k, admitted, view.hidden, view.last_row, also or {})
        return view.lexical.search(view.searcher, view.frequency, *given)

    def vocabulary(self, terms: Sequence[str]) -> list[int]:
        return [self._view.frequency("bigrams", term) for term in terms]

    def terms(self, prefix: str) -> list[tuple[str, int]]:
        return list(self._view.searcher.terms_with_prefix("bigrams", prefix))

    def fetch(self, rows: Sequence[int]) -> list[StoredPassage]:
        return Truth.fetch(self._connection, rows)

    def document(self, id_: str) -> StoredDocument | None:
        return lookup.document(self._connection, id_)

    def count(self, encoder: str, most: int) -> int:
        query = "SELECT count(*) FROM (SELECT 1 FROM passages WHERE encoder = ? LIMIT ?)"
        return int(self._connection.execute(query, (encoder, most)).fetchone()[0])

    def sample(self, count: int, encoder: str | None = None) -> tuple[Rows, Vectors]:
        clause, given = ("encoder = ?", (encoder,)) if encoder is not None else ("?", (1,))
        # Each end on its own: of both at once SQLite would look at every row.
        ends = [f"SELECT {end}(row) FROM passages WHERE {clause}" for end in ("min", "max")]
        first, last = (self._connection.execute(end, given).fetchone()[0] or 0 for end in ends)
        query = f"SELECT row FROM passages WHERE {clause} AND row >= ? ORDER BY row LIMIT 1"
        starts = np.unique(np.linspace(first, last, count).astype(np.int64)).tolist()
        steps = (self._connection.execute(query, (*given, start)).fetchone() for start in starts)
        rows = np.asarray(sorted({step[0] for step in steps if step is not None}), dtype=np.int64)
        return rows, self.vectors(rows)

    def vectors(self, rows: Rows) -> Vectors:
        view = self._view
        found, left = np.empty((len(rows), view.dimension), dtype=np.float32), np.ones(len(rows), dtype=bool)
        # What a search has in memory need not be read again; the first of a row's vectors is the passage's own.
        for known, vectors in [*(loaded[1:] for loaded in view.exact), (view.tail_rows, view.tail)]:
            if not len(known):
                continue
            places = np.minimum(known.searchsorted(rows), len(known) - 1)
            there = known[places] == rows
            if there.all():
                return np.asarray(vectors[places], dtype=np.float32)
            found[there] = vectors[places[there]]
            left[there] = False
        if left.any():
            found[left] = vectors_of(self._connection, rows[left], view.dimension)
        return found

    def _best(self, rows: Rows, scores: Vectors, k: int, beside: Rows | None = None) -> Ranking:
        if self._view.files.repeated:
            rows, scores = folded(rows, scores)
        return best(rows, scores, k, beside)

    def _rounded(self, scores: Vectors) -> Vectors:
        """Scores by which equal vectors tie, whatever block of a matrix product they were in; ties go by row."""
        # Inner products may all lie below a millionth.
        return scores.round(6) if self._view.files.lengths is None else scores

    def _exact(self, query: Vectors, admitted: Rows | None) -> Ranking:
        view = self._view
        loaded = next(iter(view.exact), None)
        if loaded is None or loaded[0] > view.deletions:
            rows, vectors = vectors_after(self._connection, 0, view.dimension)
            sealed = rows <= view.sealed_row
            loaded = (view.deletions, rows[sealed], vectors[sealed])
            view.exact[:] = [loaded]
        return _score(*loaded[1:], query, admitted, view.hidden)

    def _approximate(self, query: Vectors, k: int, admitted: Rows | None, apart: bool) -> list[Ranking]:
        """The best of the vector files; ``apart``, of each encoder's passages, so that none crowd the others out."""
        view, parts = self._view, []
        each = view.groups.apart(view.files, admitted, view.dead) if apart else [(admitted, view.dead)]
        for theirs, dead in each:
            parts.append(self._looked_up(view.files.search(query, k + _MARGIN, theirs, dead).rows, query))
        return parts

    def _looked_up(self, rows: Rows, query: Vectors) -> Ranking:
        """These rows with their true scores, in no order."""
        owners, scores = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for start in range(0, len(rows), IN_MEMORY):
            some = rows[start : start + IN_MEMORY]
            owner, vectors = every_vector_of(self._connection, some, self._view.dimension)
            owners.append(owner)
            scores.append(products(vectors, query))
        return Ranking(np.concatenate(owners), np.concatenate(scores))


def _score(rows: Rows, vectors: Vectors, query: Vectors, admitted: Rows | None, hidden: Rows) -> Ranking:
    scores = products(vectors, query)
    if admitted is None and not len(hidden):
        return Ranking(rows, scores)
    seen = ~among(rows, hidden)
    if admitted is not None:
        seen &= among(rows, admitted)
    return Ranking(rows[seen], scores[seen]) if not seen.all() else Ranking(rows, scores)
