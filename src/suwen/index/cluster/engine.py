"""The cluster engine: an index in a PostgreSQL database, with any number of readers on any machine and one writer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from suwen.index.cluster import batch, stored, upkeep, words
from suwen.index.cluster.batch import New
from suwen.index.cluster.pgvector import PgVector
from suwen.index.cluster.place import Place, Unreachable
from suwen.index.cluster.searcher import Searcher
from suwen.index.cluster.snapshot import AdmittedRows, ClusterSnapshot
from suwen.index.cluster.truth import Connection, Meta, Truth, exists, read_meta
from suwen.index.cluster.wire import CHUNK
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
    Rows,
    Similarity,
    Stats,
    Vectors,
    Waiting,
    check_documents,
)

log = logging.getLogger("suwen.index")


class ClusterEngine(Engine):
    """An index in a database. What each method promises is said by the contract."""

    abilities = Abilities(consistent=True, exact=True, upkeep=True, questions=True)

    def __init__(self, place: Place) -> None:
        self.place, self.address = place, place.shown
        self._truth = Truth(place)
        self._searcher = searcher_of(place)
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
        Truth.create(place, space, dimension, similarity, searcher_of(place).name)
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
            # What rebuilds an index may give it another searcher.
            if not write or repair:
                engine._check_searcher()
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

    @classmethod
    def remove(cls, address: Path | str) -> None:
        """Take an index away for good: its schema, and all that its searcher holds of it."""
        engine = cls.open(address, write=True, repair=False)
        try:
            with engine._truth.writing() as (connection, meta):
                for generation in engine._searcher.generations(connection, meta):
                    engine._searcher.drop(connection, meta, generation)
        finally:
            engine.close()
        with contextlib.closing(engine.place.connect()) as connection:
            connection.execute(f'DROP SCHEMA "{engine.place.schema}" CASCADE'.encode())

    def empty_searcher(self) -> None:
        """Have the searcher forget all it holds, to see that this is noticed and mended."""
        with self._truth.writing() as (connection, meta):
            self._searcher.remove(connection, meta, self._searcher.rows(connection, meta))

    def close(self) -> None:
        self._truth.close()
        self._searcher.close()

    def _check_searcher(self) -> None:
        """Refuse an address that names another searcher than the one that has the rows."""
        with self._truth.reading() as connection:
            there = read_meta(connection).searcher
        if there != self._searcher.name:
            named = "add '?milvus=HOST:19530' to" if there == "milvus" else "leave '?milvus=…' out of"
            raise IndexProblem(
                f"{self.address} is searched by {there}: {named} its address, or move it to {self._searcher.name} with "
                "'suwen rebuild'"
            )

    def _repair(self) -> None:
        """Make what is derived agree with the truth: sweep what a crash left, derive what is missing."""
        self._remove_doomed()
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
                self._counted = moment, batch.count(connection, meta)
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
        if documents or settings:
            self._put(lambda _: documents, settings or {})

    def reencode(self, made: Sequence[Reencoded], encoder: str) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}

        def fitting(connection: Connection) -> Sequence[EncodedDocument]:
            documents, found = stored.compare(connection, made, encoder)
            check_documents(documents, self.dimension)
            outcomes.update(found)
            return documents

        self._put(fitting, {})
        return outcomes

    def delete(self, ids: Sequence[str]) -> int:
        with self._truth.writing() as (connection, meta):
            gone = stored.remove(connection, ids)
            query = "UPDATE meta SET passages = passages - %s, questions = questions - %s"
            connection.execute(query, (len(gone.passages), len(gone.questions)))
            doomed = self._forget(connection, meta, gone.rows, 0)
        if doomed:
            self._remove_doomed()
        return gone.documents

    def remember(self, **settings: str | int) -> None:
        with self._truth.writing() as (connection, _):
            batch.remember(connection, settings)

    def _put(
        self, choose: Callable[[Connection], Sequence[EncodedDocument]], settings: Mapping[str, str | int]
    ) -> None:
        """Store what is chosen at the moment of the write. A searcher outside hears of it before it is committed."""
        with self._truth.alone():
            with self._truth.writing() as (connection, meta):
                new = New(choose(connection), meta.last_row + 1)
                if self._searcher.outside and new.count:
                    meta = upkeep.reserve(connection, meta, new)
                else:
                    doomed = self._store(connection, meta, new, settings)
            if self._searcher.outside and new.count:
                self._tell(meta, new)
                # Nobody has written since: other threads wait, and another process would have shut this one out.
                with self._truth.writing() as (connection, meta):
                    doomed = self._store(connection, meta, new, settings)
            if doomed:
                self._remove_doomed()

    def _tell(self, meta: Meta, new: New) -> None:
        """Give new rows to a searcher outside; those of a call that failed are taken back, now or by the next write."""
        try:
            with self._truth.reading() as connection:
                new.tell(connection, meta, self._searcher)
        except IndexProblem as problem:
            if not isinstance(problem, Unreachable):
                self._remove_doomed()
            raise

    def _store(self, connection: Connection, meta: Meta, new: New, settings: Mapping[str, str | int]) -> bool:
        """Write new documents in one transaction; whether a searcher outside has rows to forget."""
        batch.remember(connection, settings)
        if not new.documents:
            return False
        gone = stored.put(connection, new.documents, new.first)
        if not self._searcher.outside:
            new.tell(connection, meta, self._searcher)
        words.add(connection, meta.generation, new.rows[: new.passages], new.cut, self._searcher.outside)
        passages, asked = new.passages - len(gone.passages), new.count - new.passages - len(gone.questions)
        query = """UPDATE meta SET last_row = greatest(last_row, %s), passages = passages + %s,
                   questions = questions + %s, searched = searched + %s, words = words + %s, bigrams = bigrams + %s"""
        connection.execute(query, (new.first + new.count - 1, passages, asked, new.passages, *new.cut.totals))
        self._searcher.ready(connection, read_meta(connection))
        return self._forget(connection, meta, gone.rows, new.first)

    def _forget(self, connection: Connection, meta: Meta, gone: Rows, first: int) -> bool:
        """Have the searcher forget rows: at once, or after the commit, which is said."""
        if self._searcher.outside:
            return upkeep.spare(connection, first, gone)
        self._searcher.remove(connection, meta, gone)
        return False

    def _remove_doomed(self) -> None:
        """Take from a searcher outside what it should not hold; where it cannot be asked, another time."""
        if self._searcher.outside:
            try:
                with self._truth.writing() as (connection, meta):
                    upkeep.remove_doomed(connection, meta, self._searcher)
            except (Unreachable, DamagedIndex) as problem:
                log.warning("%s: the searcher keeps rows it should not have for now: %s", self.address, problem)

    # -- upkeep -------------------------------------------------------------------------------------------------

    def compact(self, progress: Progress | None = None) -> bool:
        with self._truth.reading() as connection:
            meta = read_meta(connection)
            (gone,) = connection.execute("SELECT EXISTS(SELECT 1 FROM gone)").fetchone() or (False,)
            blocks = words.blocks(connection, meta.generation)
        if not gone and blocks <= 1 + meta.passages // CHUNK:
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


def searcher_of(place: Place) -> Searcher:
    """The searcher that an address names: Milvus, or pgvector in the database itself."""
    if not place.milvus:
        return PgVector()
    try:
        from suwen.index.cluster.milvus import Milvus
    except ImportError as problem:
        raise IndexProblem(f"?milvus= in an address needs more ({problem}): pip install 'suwen[milvus]'") from problem
    return Milvus(place.milvus, place.schema)
