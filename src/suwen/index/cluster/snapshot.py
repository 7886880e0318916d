"""One moment of a cluster index, and how it is searched: a searcher proposes, the truth decides. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from suwen.index.cluster import questions, stored, words
from suwen.index.cluster.filters_pg import admitted
from suwen.index.cluster.searcher import Searcher
from suwen.index.cluster.truth import Connection, Meta
from suwen.index.cluster.wire import rows_of
from suwen.index.engine import (
    Alternatives,
    DamagedIndex,
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
from suwen.index.vectors import among, best, folded, products

#: Hits beyond k whose true vectors are looked up, so that the order and the scores are those of exact search.
_MARGIN = 32
#: Filters whose rows are kept at hand.
_REMEMBERED = 16

#: The rows that filters admitted, by the moment (a new primary may count again, in another epoch) and the filter.
AdmittedRows = dict[tuple[int, int, str], Rows]


class ClusterSnapshot(Snapshot):
    """One REPEATABLE READ transaction of the truth."""

    def __init__(self, connection: Connection, meta: Meta, searcher: Searcher, known: AdmittedRows) -> None:
        self._connection, self._meta, self._searcher, self._known = connection, meta, searcher, known

    @property
    def last_row(self) -> int:
        return self._meta.last_row

    @property
    def encoders(self) -> list[str]:
        return stored.encoders(self._connection)

    def fields(self) -> list[str]:
        return stored.fields(self._connection)

    def dense(
        self,
        vector: Vectors,
        k: int,
        where: Where | None = None,
        scales: Mapping[str, Scale] | None = None,
        beside: Rows | None = None,
    ) -> Ranking:
        query = np.ascontiguousarray(vector, dtype=np.float32).reshape(-1)
        allowed = self._admitted(where) if where else None
        parts = []
        # Each encoder's apart where their scores are mapped, so that none crowd the others out.
        for encoder in self.encoders if scales else [None]:
            near = self._nearest(query, k + _MARGIN, allowed, encoder)
            if beside is not None:
                near = np.union1d(near, beside if encoder is None else self._alive(beside, encoder))
            rows, vectors = self._vectors(near)
            scores = products(vectors, query)
            scale = (scales or {}).get(encoder or "")
            parts.append(Ranking(rows, scores if scale is None else scale.slope * scores + scale.offset))
        if not parts:
            return Ranking(np.empty(0, np.int64), np.empty(0, np.float32))
        scores = np.concatenate([part.scores for part in parts])
        return self._best(np.concatenate([part.rows for part in parts]), self._rounded(scores), k, beside)

    def exact(self, vectors: Vectors, k: int, progress: Progress | None = None) -> list[Ranking]:
        kept = [Ranking(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in vectors]
        for rows, found in self._all_vectors():
            for number, vector in enumerate(np.asarray(vectors, dtype=np.float32)):
                # As a search computes them: of sums of large products the last digits depend on the way they are added.
                scores, old = self._rounded(products(found, vector)), kept[number]
                kept[number] = self._best(np.concatenate([old.rows, rows]), np.concatenate([old.scores, scores]), k)
            if progress:
                progress(int(rows[-1]), self._meta.last_row)
        return kept

    def lexical(self, text: str, k: int, where: Where | None = None, also: Alternatives | None = None) -> Ranking:
        allowed = self._admitted(where) if where else None
        asked = k + _MARGIN
        while True:
            found = self._searcher.matching(self._connection, self._meta, text, also or {}, asked, allowed)
            alive = among(found.rows, allowed if allowed is not None else self._alive(found.rows))
            if alive.sum() >= k or len(found.rows) < asked:
                return Ranking(found.rows[alive][:k], found.scores[alive][:k], found.most)
            asked *= 4

    def vocabulary(self, terms: Sequence[str]) -> list[int]:
        return words.vocabulary(self._connection, self._meta, terms)

    def terms(self, prefix: str) -> list[tuple[str, int]]:
        return words.beginning(self._connection, self._meta, prefix)

    def fetch(self, rows: Sequence[int]) -> list[StoredPassage]:
        return stored.fetch(self._connection, rows)

    def document(self, id_: str) -> StoredDocument | None:
        return stored.document(self._connection, id_)

    def count(self, encoder: str, most: int) -> int:
        query = "SELECT count(*) FROM (SELECT 1 FROM passages WHERE encoder = %s LIMIT %s) AS found"
        (found,) = self._connection.execute(query, (encoder, most)).fetchone() or (0,)
        return int(found)

    def sample(self, count: int, encoder: str | None = None) -> tuple[Rows, Vectors]:
        clause, given = ("encoder = %(encoder)s", {"encoder": encoder}) if encoder is not None else ("true", {})
        ends = f"SELECT coalesce(min(row), 0), coalesce(max(row), 0) FROM passages WHERE {clause}"
        first, last = self._connection.execute(ends.encode(), given).fetchone() or (0, 0)
        starts = np.unique(np.linspace(first, last, count).astype(np.int64)).tolist()
        query = f"""SELECT DISTINCT row FROM unnest(%(starts)s::bigint[]) AS least, LATERAL (
                      SELECT row FROM passages WHERE {clause} AND row >= least ORDER BY row LIMIT 1) AS step
                    ORDER BY row"""
        rows = rows_of(self._connection.execute(query.encode(), given | {"starts": starts}))
        return rows, self.vectors(rows)

    def vectors(self, rows: Rows) -> Vectors:
        return stored.vectors_of(self._connection, rows, self._meta.dimension)

    def _vectors(self, rows: Rows) -> tuple[Rows, Vectors]:
        """All vectors of these passages, with the row of each."""
        own = self.vectors(rows)
        if not self._meta.questions:
            return rows, own
        owners, asked = questions.vectors_of(self._connection, rows, self._meta.dimension)
        return np.concatenate([rows, owners]), np.concatenate([own, asked])

    def _all_vectors(self) -> Iterator[tuple[Rows, Vectors]]:
        """Every vector with its passage's row, a chunk at a time."""
        yield from stored.all_vectors(self._connection, self._meta.dimension)
        for _, rows, vectors in questions.every(self._connection, self._meta.dimension):
            yield rows, vectors

    def _best(self, rows: Rows, scores: Vectors, k: int, beside: Rows | None = None) -> Ranking:
        """The best passages, each by the best of its vectors."""
        if self._meta.questions:
            rows, scores = folded(rows, scores)
        return best(rows, scores, k, beside)

    def _rounded(self, scores: Vectors) -> Vectors:
        """Scores by which equal vectors tie, whatever stood beside them; ties go by row. Products may all be tiny."""
        return np.round(scores, 6) if self._meta.similarity == "cosine" else scores

    def _admitted(self, where: Where) -> Rows:
        """What a filter admits at this moment, remembered: a page asks both ways, and again with the next query."""
        asked = self._meta.epoch, self._meta.sequence, repr(where)
        rows = self._known.get(asked)
        if rows is None:
            rows = admitted(self._connection, where)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[asked] = rows
        return rows

    def _nearest(self, query: Vectors, count: int, allowed: Rows | None, encoder: str | None) -> Rows:
        """The nearest rows that may be seen: more are asked for until enough of those proposed are there."""
        if allowed is not None and encoder is not None:
            allowed = self._alive(allowed, encoder)
        if allowed is not None:
            count = min(count, len(allowed))
        else:
            count = min(count, self._meta.passages) if encoder is None else self.count(encoder, count)
        allowed = self._with_questions(allowed)
        # Where the searcher's own way gives too little, every row is compared before it is said to lack some.
        for every in (False, True) if count else ():
            if every and encoder is not None and allowed is None:
                allowed = self._with_questions(self._of(encoder))
            asked = count
            while True:
                found = self._searcher.nearest(self._connection, self._meta, query, asked, allowed, every)
                alive = self._alive(
                    questions.owners(self._connection, found) if self._meta.questions else found, encoder
                )
                if len(alive) >= count:
                    return alive
                if len(found) < asked:
                    break
                asked *= 4
        if count:
            raise DamagedIndex(
                "the searcher lacks rows of the index: open it for writing, which brings the searcher up to date, or "
                "run 'suwen rebuild'; neither needs an encoder"
            )
        return np.empty(0, np.int64)

    def _with_questions(self, rows: Rows | None) -> Rows | None:
        if rows is None or not self._meta.questions:
            return rows
        return questions.with_questions(self._connection, rows)

    def _of(self, encoder: str) -> Rows:
        query = "SELECT row FROM passages WHERE encoder = %s ORDER BY row"
        return rows_of(self._connection.execute(query, (encoder,)))

    def _alive(self, rows: Rows, encoder: str | None = None) -> Rows:
        query = "SELECT row FROM passages WHERE row = ANY(%s) AND (%s::text IS NULL OR encoder = %s) ORDER BY row"
        return rows_of(self._connection.execute(query, (rows.tolist(), encoder, encoder)))
