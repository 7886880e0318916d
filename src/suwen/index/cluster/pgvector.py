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

#: Up to this many vectors every one is compared; past it a graph is searched. 10,000 of 512 take 6 to 9 ms.
EXACT_LIMIT = 50_000
#: Texts written to one pattern lie so close together that a graph with few edges loses some. Of 32,753 passages of
#: MedQuAD one of 16 edges (64 candidates while it is made) found 0.975 of the ten nearest, and all ten under 81% of
#: the questions; with 200 candidates 0.988 and 89%; this one 0.994 and 94%, for four times the time to make it.
GRAPH = "m = 32, ef_construction = 200"


class PgVector:
    """A table of fp16 vectors with HNSW graphs, in the truth's own transactions. See :class:`Searcher`.

    A graph is made of many rows at once, of those that came since the last one: to put them into one as they come takes
    several times the CPU. Until then they are compared one by one. A rebuild makes one graph of all.
    """

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
        last = max((end for _, end in self._graphs(connection, meta)), default=0)
        # Few graphs, whatever the size: each has to be searched.
        if meta.vectors > EXACT_LIMIT and meta.last_row - last > max(EXACT_LIMIT // 2, last // 4):
            name, rows = self.table(meta.generation), f"row > {last} AND row <= {meta.last_row}"
            made = f"CREATE INDEX {name}_graph_{last}_{meta.last_row} ON {name}"
            connection.execute(f"{made} USING hnsw (vector halfvec_ip_ops) WITH ({GRAPH}) WHERE {rows}".encode())

    def _graphs(self, connection: Connection, meta: Meta) -> list[tuple[int, int]]:
        """After which row each graph begins, and its last row, ascending."""
        query = """SELECT regexp_matches(relname, '_graph_([0-9]+)_([0-9]+)$') FROM pg_class JOIN pg_index
                   ON indexrelid = pg_class.oid WHERE indrelid = to_regclass(%s)"""
        found = connection.execute(query, (self.table(meta.generation),))
        return sorted((int(after), int(last)) for ((after, last),) in found)

    def nearest(
        self, connection: Connection, meta: Meta, query: Vectors, count: int, among: Rows | None, every: bool = False
    ) -> Rows:
        """See :class:`Searcher`."""
        if every or (meta.vectors if among is None else len(among)) <= EXACT_LIMIT:
            parts = ["true"]
        else:
            connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
            # Of 132 neighbours among 10,875 short texts, many of them alike, 600 found 0.9991, and 1,000 found 0.9995.
            connection.execute(f"SET LOCAL hnsw.ef_search = {min(1000, max(200, 4 * count))}".encode())
            graphs = self._graphs(connection, meta)
            parts = [f"row > {after} AND row <= {last}" for after, last in graphs]
            parts.append(f"row > {graphs[-1][1] if graphs else 0}")
        distance, chosen = f"(vector <#> %(query)s::halfvec({meta.dimension}))", "true"
        if among is not None:
            chosen = "row = ANY(%(among)s)"
        # No index serves a sum: what is in no graph is compared row by row.
        ways = [distance] * (len(parts) - 1) + [f"{distance} + 0"]
        queries = [
            f"(SELECT row, {way} AS far FROM {self.table(meta.generation)} WHERE {part} AND {chosen}"
            f" ORDER BY far LIMIT %(count)s)"
            for part, way in zip(parts, ways, strict=True)
        ]
        # Sorted again: a graph's own order is only about right.
        select = f"SELECT row FROM ({' UNION ALL '.join(queries)}) AS found ORDER BY far + 0 LIMIT %(count)s"
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
