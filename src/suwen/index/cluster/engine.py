"""The cluster engine: an index in a PostgreSQL database, with any number of readers on any machine and one writer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

from suwen.index.cluster import stored, upkeep, words
from suwen.index.cluster.place import Place
from suwen.index.cluster.schema import FORMAT, TRUTH
from suwen.index.cluster.searcher import PgVector, Searcher
from suwen.index.cluster.snapshot import AdmittedRows, ClusterSnapshot
from suwen.index.cluster.truth import Connection, Meta, Truth, exists, read_meta
from suwen.index.engine import (
    Abilities,
    Backlog,
    DamagedIndex,
    EncodedDocument,
    Engine,
    IndexProblem,
    Known,
    Outcome,
    Progress,
    Reencoded,
    Similarity,
    Stats,
    Vectors,
    Waiting,
    check_documents,
    need,
)

log = logging.getLogger("suwen.index")


class ClusterEngine(Engine):
    """An index in a database. What each method promises is said by the contract."""

    abilities = Abilities(consistent=True, exact=True, upkeep=True)

    def __init__(self, place: Place) -> None:
        self.place, self.address = place, place.shown
        self._truth = Truth(place)
        self._searcher: Searcher = PgVector()
        with self._truth.reading() as connection:
            meta = read_meta(connection)
        self.space, self.dimension, self.similarity = meta.space, meta.dimension, meta.similarity
        self._admitted: AdmittedRows = {}
        self._counted: tuple[tuple[int, int], Stats] | None = None
        self.healed = ""

    # -- opening and closing ------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, address: Path | str, *, space: str, dimension: int, similarity: Similarity = "cosine"
    ) -> ClusterEngine:
        """Make an empty index in a database and open it for writing."""
        place = Place(str(address))
        Truth.create(place, space, dimension, similarity)
        engine = cls(place)
        try:
            engine._truth.begin_writing()
            engine._repair()
        except BaseException:
            engine.close()
            raise
        return engine

    @classmethod
    def open(cls, address: Path | str, *, write: bool = False, repair: bool = True) -> ClusterEngine:
        """Open an index; a writer brings the searcher up to date."""
        engine = cls(Place(str(address)))
        try:
            if write:
                engine._truth.begin_writing()
            if write and repair:
                engine._repair()
        except BaseException:
            engine.close()
            raise
        return engine

    @staticmethod
    def exists(address: Path | str) -> bool:
        """Whether there is an index at an address; a database that cannot be asked is an error."""
        place = Place(str(address))
        with contextlib.closing(place.connect()) as connection:
            return exists(connection, place)

    @staticmethod
    def restore(source: Path, address: Path | str) -> None:
        """Refused: a database is restored by its own tools."""
        raise IndexProblem(f"{Place(str(address)).shown}: restore a database with pg_restore, then 'suwen rebuild' it")

    def close(self) -> None:
        self._truth.close()

    def _repair(self) -> None:
        """Make what is derived agree with the truth: sweep what a crash left, derive what is missing."""
        with self._truth.writing() as (connection, meta):
            lost = upkeep.is_lost(connection, meta, self._searcher)
            if not lost:
                self.healed = upkeep.mend(connection, meta, self._searcher)
                upkeep.sweep(connection, meta, self._searcher)
        if lost:
            self.healed = "the searcher was lost" if meta.last_row else ""
            self.rebuild()
        if self.healed:
            log.warning("%s: %s; it was mended from the truth", self.address, self.healed)

    # -- reading ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[ClusterSnapshot]:
        for last in (False, False, True):
            with self._truth.reading() as connection:
                meta = read_meta(connection)
                try:
                    # Holds the generation of this moment: a rebuild cannot drop it before the block ends.
                    with connection.transaction():
                        connection.execute(f"SELECT FROM {words.table(meta.generation)} LIMIT 0".encode())
                except psycopg.errors.UndefinedTable as problem:
                    if not last:
                        continue
                    raise DamagedIndex(f"{self.address}: the searcher is gone: run 'suwen rebuild'") from problem
                yield ClusterSnapshot(connection, meta, self._searcher, self._admitted)
                return

    def known(self, ids: Sequence[str]) -> dict[str, Known]:
        with self._truth.reading() as connection:
            return stored.known(connection, ids)

    def ids(self, after: str = "", limit: int = 10_000, origin: str | None = None) -> list[str]:
        with self._truth.reading() as connection:
            return stored.ids(connection, after, limit, origin)

    def stored_vectors(self, id_: str, encoder: str) -> dict[str, Vectors]:
        with self._truth.reading() as connection:
            return stored.vectors_by_content(connection, id_, encoder, self.dimension)

    def backlog(self, encoder: str) -> Backlog:
        with self._truth.reading() as connection:
            return stored.backlog(connection, encoder)

    def waiting(self, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
        with self._truth.reading() as connection:
            return stored.waiting(connection, encoder, limit, skip)

    def settings(self) -> dict[str, str | int]:
        with self._truth.reading() as connection:
            return dict(connection.execute("SELECT key, value FROM settings").fetchall())

    def stats(self) -> Stats:
        with self._truth.reading() as connection:
            meta = read_meta(connection)
            moment = meta.epoch, meta.sequence
            if self._counted is None or self._counted[0] != moment:
                self._counted = moment, _count(connection, meta)
            return self._counted[1]

    # -- what others derive -------------------------------------------------------------------------------------

    def put_blob(self, name: str, data: bytes) -> None:
        query = """INSERT INTO blobs VALUES (%s, 1, %s)
                   ON CONFLICT (name) DO UPDATE SET version = blobs.version + 1, data = excluded.data"""
        with self._truth.single() as connection:
            connection.execute(query, (name, data))

    def get_blob(self, name: str) -> bytes | None:
        found = self._blob("data", name)
        return None if found is None else bytes(found)

    def blob_version(self, name: str) -> int | None:
        found = self._blob("version", name)
        return None if found is None else int(found)

    def _blob(self, column: str, name: str) -> Any:
        with self._truth.reading() as connection:
            found = connection.execute(f"SELECT {column} FROM blobs WHERE name = %s".encode(), (name,)).fetchone()
            return None if found is None else found[0]

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, documents: Sequence[EncodedDocument], settings: Mapping[str, str | int] | None = None) -> None:
        check_documents(documents, self.dimension)
        if any(one.questions for one in documents):
            need(self, "questions")
        if documents or settings:
            with self._truth.writing() as (connection, meta):
                self._put(connection, meta, documents)
                _remember(connection, settings or {})

    def reencode(self, made: Sequence[Reencoded], encoder: str) -> dict[str, Outcome]:
        with self._truth.writing() as (connection, meta):
            documents, outcomes = stored.compare(connection, made, encoder)
            check_documents(documents, self.dimension)
            self._put(connection, meta, documents)
        return outcomes

    def delete(self, ids: Sequence[str]) -> int:
        with self._truth.writing() as (connection, meta):
            count, gone = stored.remove(connection, ids)
            connection.execute("UPDATE meta SET passages = passages - %s", (len(gone),))
            self._searcher.remove(connection, meta.generation, gone)
        return count

    def remember(self, **settings: str | int) -> None:
        with self._truth.writing() as (connection, _):
            _remember(connection, settings)

    def _put(self, connection: Connection, meta: Meta, documents: Sequence[EncodedDocument]) -> None:
        if not documents:
            return
        first = meta.last_row + 1
        gone = stored.put(connection, documents, first)
        texts = [
            f"{one.document.title}\n{p.text}" if one.document.title else p.text
            for one in documents
            for p in one.passages
        ]
        rows = np.arange(first, first + len(texts), dtype=np.int64)
        vectors = np.concatenate([one.vectors.astype(np.float16) for one in documents])
        self._searcher.insert(connection, meta.generation, rows, vectors)
        self._searcher.remove(connection, meta.generation, gone)
        added = words.add(connection, meta.generation, list(zip(rows.tolist(), texts, strict=True)))
        query = """UPDATE meta SET last_row = last_row + %s, passages = passages + %s, searched = searched + %s,
                   words = words + %s, bigrams = bigrams + %s"""
        connection.execute(query, (len(rows), len(rows) - len(gone), len(rows), *added))
        self._searcher.ready(connection, read_meta(connection))

    # -- upkeep -------------------------------------------------------------------------------------------------

    def compact(self, progress: Progress | None = None) -> bool:
        with self._truth.reading() as connection:
            meta = read_meta(connection)
            query = f"SELECT EXISTS(SELECT 1 FROM gone), count(DISTINCT first) FROM {words.table(meta.generation)}"
            gone, blocks = connection.execute(query.encode()).fetchone() or (False, 0)
        if not gone and blocks <= 1 + meta.passages // stored.CHUNK:
            return False
        self.rebuild(progress)
        return True

    def rebuild(self, progress: Progress | None = None) -> None:
        with self._truth.writing() as (connection, meta):
            upkeep.rebuild(connection, meta, self._searcher, progress)
        with self._truth.writing() as (connection, meta):
            upkeep.sweep(connection, meta, self._searcher)

    def backup(self, target: Path) -> Path:
        raise IndexProblem(f"{self.address} is backed up by PostgreSQL: pg_dump -n {self.place.schema} -Fc -f FILE")

    def verify(self, progress: Progress | None = None) -> list[str]:
        with self._truth.reading() as connection:
            return upkeep.verify(connection, read_meta(connection), self._searcher, progress)


def _remember(connection: Connection, settings: Mapping[str, str | int]) -> None:
    query = "INSERT INTO settings VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    for key, value in settings.items():
        connection.execute(query, (key, Jsonb(value)))


def _count(connection: Connection, meta: Meta) -> Stats:
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
    )
