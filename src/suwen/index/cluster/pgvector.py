"""The searcher inside PostgreSQL: pgvector for vectors, the tables of terms for words. It is never behind."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import psycopg

from suwen.index.cluster import words
from suwen.index.cluster.cut import Cut
from suwen.index.cluster.truth import Connection, Meta
from suwen.index.cluster.wire import copy, rows_of
from suwen.index.engine import Alternatives, IndexProblem, Ranking, Rows, Vectors
from suwen.index.vectors import among as is_among

#: Up to this many vectors every one is compared; past it the graph is searched. 10,000 of 512 take some 9 ms.
EXACT_LIMIT = 10_000


class PgVector:
    """A table of fp16 vectors with an HNSW graph, in the truth's own transactions. See :class:`Searcher`."""

    name, outside = "pgvector", False

    def table(self, generation: int) -> str:
        """The table that holds a generation's vectors."""
        return f"near_{generation}"

    def create(self, connection: Connection, meta: Meta, generation: int) -> None:
        """See :class:`Searcher`."""
        try:
            # Another session may make it at the same moment; PostgreSQL then says so instead of passing over it.
            (there,) = connection.execute("SELECT count(*) FROM pg_extension WHERE extname = 'vector'").fetchone() or (
                0,
            )
            if not there:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        except psycopg.Error as problem:
            said = " ".join(str(problem).split())
            raise IndexProblem(
                f"the database has no pgvector ({said}): install it on the server, then 'CREATE EXTENSION vector' as "
                "an administrator"
            ) from problem
        columns = f"row bigint PRIMARY KEY, vector halfvec({meta.dimension}) NOT NULL"
        connection.execute(f"CREATE TABLE {self.table(generation)}({columns})".encode())
        connection.execute(f"ALTER TABLE {self.table(generation)} ALTER vector SET STORAGE EXTERNAL".encode())

    def is_there(self, connection: Connection, meta: Meta) -> bool:
        """See :class:`Searcher`."""
        found = connection.execute("SELECT to_regclass(%s)", (self.table(meta.generation),)).fetchone()
        return found is not None and found[0] is not None

    def insert(
        self, connection: Connection, meta: Meta, generation: int, rows: Rows, vectors: Vectors, cut: Cut
    ) -> None:
        """See :class:`Searcher`. Its words are those of the tables of terms."""
        # The wire form of a halfvec: its dimension, two bytes that are not used, and the numbers, big end first.
        head = np.array([vectors.shape[1], 0], dtype=">i2").tobytes()
        sent = np.ascontiguousarray(vectors, dtype=">f2")
        records = ((row, head + vector.tobytes()) for row, vector in zip(rows.tolist(), sent, strict=True))
        copy(connection, self.table(generation), records, ("int8", "bytea"))

    def remove(self, connection: Connection, meta: Meta, rows: Rows) -> None:
        """See :class:`Searcher`."""
        query = f"DELETE FROM {self.table(meta.generation)} WHERE row = ANY(%s)"
        connection.execute(query.encode(), (rows.tolist(),))

    def ready(self, connection: Connection, meta: Meta) -> None:
        """See :class:`Searcher`."""
        if meta.vectors > EXACT_LIMIT:
            name = self.table(meta.generation)
            query = f"CREATE INDEX IF NOT EXISTS {name}_graph ON {name} USING hnsw (vector halfvec_ip_ops)"
            connection.execute(query.encode())

    def nearest(
        self, connection: Connection, meta: Meta, query: Vectors, count: int, among: Rows | None, every: bool = False
    ) -> Rows:
        """See :class:`Searcher`."""
        every = every or (meta.vectors if among is None else len(among)) <= EXACT_LIMIT
        if not every:
            connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
            connection.execute(f"SET LOCAL hnsw.ef_search = {min(1000, max(120, 2 * count))}".encode())
        clause = "" if among is None else "WHERE row = ANY(%(among)s)"
        # No index serves a sum.
        order = f"(vector <#> %(query)s::halfvec({meta.dimension}))" + (" + 0" if every else "")
        select = f"SELECT row FROM {self.table(meta.generation)} {clause} ORDER BY {order} LIMIT %(count)s"
        given = {"query": _literal(query), "count": count, "among": None if among is None else among.tolist()}
        return rows_of(connection.execute(select.encode(), given))

    def matching(
        self, connection: Connection, meta: Meta, text: str, also: Alternatives, count: int, among: Rows | None
    ) -> Ranking:
        """See :class:`Searcher`."""
        found = words.rank(connection, meta, text, also)
        if among is None:
            return Ranking(found.rows[:count], found.scores[:count], found.most)
        seen = is_among(found.rows, among)
        return Ranking(found.rows[seen][:count], found.scores[seen][:count], found.most)

    def rows(self, connection: Connection, meta: Meta) -> Rows:
        """See :class:`Searcher`."""
        found: Iterable[tuple[int]] = connection.execute(
            f"SELECT row FROM {self.table(meta.generation)} ORDER BY row".encode()
        )
        return rows_of(found)

    def is_whole(self, connection: Connection, meta: Meta) -> bool:
        """See :class:`Searcher`. Counting is as long as listing here, and the rows are at hand."""
        return False

    def drop(self, connection: Connection, meta: Meta, generation: int) -> None:
        """See :class:`Searcher`."""
        connection.execute(f"DROP TABLE IF EXISTS {self.table(generation)}".encode())

    def generations(self, connection: Connection, meta: Meta) -> set[int]:
        """See :class:`Searcher`."""
        return words.generations(connection, "near")

    def switched(self, meta: Meta) -> None:
        """See :class:`Searcher`."""

    def close(self) -> None:
        """See :class:`Searcher`."""


def _literal(query: Vectors) -> str:
    # Halves overflow past 65,504, and only the direction of a query matters for who is nearest.
    largest = float(np.abs(query).max(initial=0.0))
    scaled = query / largest if largest > 1 else query
    return "[" + ",".join(f"{value:.6g}" for value in scaled.tolist()) + "]"
