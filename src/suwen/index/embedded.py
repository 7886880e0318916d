"""The embedded engine: one folder, one writer, any number of readers. SQLite is the truth, all else is derived.

The order of a write is what makes it safe: inside one SQLite transaction the vector files are written and synced and
tantivy commits, and only then does the transaction commit the passages with both watermarks. Until that moment nobody
sees any of it; what a crash leaves in the derived files past the watermarks is written over, or swept by the next open.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from suwen.durable import FileLock, Locked, write_bytes
from suwen.index import lookup, upkeep, waiting
from suwen.index.counts import PerMoment, count_all, sizes
from suwen.index.derive import derive, generation_name
from suwen.index.engine import (
    Abilities,
    Backlog,
    DamagedIndex,
    EncodedDocument,
    Engine,
    IndexLocked,
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
)
from suwen.index.snapshot import EmbeddedSnapshot
from suwen.index.stored_vectors import DamagedVector, vectors_after
from suwen.index.truth import FILE, Truth, not_written
from suwen.index.vectors import Block
from suwen.index.view import Views

log = logging.getLogger("suwen.index")

#: Passages that may wait in memory before they go to the vector files: scanning them costs under a millisecond.
SEAL = 1024
#: Up to this many passages a missing or damaged derived file is made again on opening (seconds); past it, on request.
_HEAL_LIMIT = 50_000
#: What is done about a folder that may not be written to.
_UNWRITTEN = "Write as somebody who may; to search it takes no such right (a server: --read-only)"
#: A compaction writes files of up to this many records anew (seconds), larger ones where a twentieth of them is dead:
#: fewer cost a scan next to nothing, and to be rid of one of them all the others would be cut into words again.
REWRITTEN, WASTE = 20_000, 20


class EmbeddedEngine(Engine):
    """An index in one folder. What each method promises is said by the contract."""

    abilities = Abilities(consistent=True, exact=True, upkeep=True, backup=True, questions=True)

    def __init__(self, folder: Path, truth: Truth, lock: FileLock, seal: int = SEAL) -> None:
        self.folder, self.address = folder, str(folder)
        self._truth, self._lock, self._seal_at = truth, lock, seal
        self._mutex = threading.RLock()
        #: Whether tantivy may hold rows past its watermark, from a call that failed on the way.
        self._lexical_ahead = False
        meta = truth.meta(truth.reader())
        self.index_id, self.dimension, self.space = str(meta["uuid"]), int(meta["dimension"]), str(meta["space"])
        self.similarity: Similarity = meta["similarity"]
        self._views = Views(folder, self.index_id, self.dimension)
        truth.on_disturbed = self._views.close
        self._backlogs, self._counts = PerMoment(waiting.backlog), PerMoment(count_all)
        self.healed = ""

    # -- opening and closing ------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, folder: Path | str, *, space: str, dimension: int, similarity: Similarity = "cosine", seal: int = SEAL
    ) -> EmbeddedEngine:
        """Make an empty index and open it for writing. The folder may exist, but must not hold anything foreign."""
        folder = Path(folder)
        upkeep.make_ready(folder)
        lock = FileLock(folder / "lock")
        _take(lock)
        try:
            engine = cls(folder, Truth.create(folder, space, dimension, similarity), lock, seal)
        except BaseException:
            lock.release()
            raise
        engine._repair()
        return engine

    @classmethod
    def open(cls, folder: Path | str, *, write: bool = False, seal: int = SEAL, repair: bool = True) -> EmbeddedEngine:
        """Open an index.

        Args:
            folder: The index folder.
            write: Take the writer's lock; a second writer is refused.
            seal: How many passages wait in memory before they go to the vector files.
            repair: Put right what a crash left behind. Off only to look at the files, or for ``rebuild``.
        """
        folder = Path(folder)
        engine = cls(folder, Truth(folder), FileLock(folder / "lock"), seal)
        try:
            if write:
                _take(engine._lock, wait=2.0)
                engine._truth.upgrade()
            if repair:
                engine._heal()
        except BaseException:
            engine.close()
            raise
        return engine

    @staticmethod
    def exists(folder: Path | str) -> bool:
        """Whether a folder holds an index."""
        return (Path(folder) / FILE).exists()

    @staticmethod
    def restore(source: Path, folder: Path | str) -> None:
        """Make an index folder of a backup; opening or rebuilding it derives the rest."""
        upkeep.restore(source, Path(folder))

    def close(self) -> None:
        with self._mutex:
            self._views.close()
            self._truth.close()
            self._lock.release()

    def _heal(self) -> None:
        """As a writer: repair. As a reader: repair only when something is wrong and no writer is at work."""
        if self._lock.held:
            self._repair()
            return
        if self._damage() is None:
            return
        try:
            _take(self._lock)
        except IndexProblem:
            return
        try:
            self._repair()
        finally:
            self._views.rest()
            self._lock.release()

    def _repair(self) -> None:
        """Make the derived files agree with the truth: drop what a crash left, derive what is missing."""
        meta = self._truth.meta(self._truth.reader())
        self._sweep(keep=int(meta["generation"]))
        damage = self._damage()
        if isinstance(damage, DamagedVector):
            # Opened all the same: adding the document again is what repairs it.
            log.warning("%s: %s", self.folder, damage)
        elif damage is not None:
            count = self._truth.reader().execute("SELECT count(*) FROM passages").fetchone()[0]
            if count > _HEAL_LIMIT:
                raise damage
            if int(meta["generation"]):
                self.healed = f"derived files were rebuilt from the truth ({damage})"
                log.warning("%s: %s", self.folder, self.healed)
            self.rebuild()
        self._lexical_ahead = True

    def _damage(self) -> DamagedIndex | None:
        with self._truth.reading() as connection:
            return self._views.damage(connection)

    def _sweep(self, keep: int) -> None:
        for entry in self.folder.glob("gen-*"):
            if entry.name != generation_name(keep):
                shutil.rmtree(entry, ignore_errors=True)

    # -- reading ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[EmbeddedSnapshot]:
        for attempt in (1, 2, 3):
            with self._truth.reading() as connection:
                try:
                    view = self._views.at(connection)
                except DamagedIndex:
                    # A writer may have switched generations between our transaction and the opening of its files.
                    if attempt == 3:
                        raise
                    continue
                yield EmbeddedSnapshot(view, connection)
                return

    def known(self, ids: Sequence[str]) -> dict[str, Known]:
        with self._truth.reading() as connection:
            return lookup.known(connection, ids)

    def ids(self, after: str = "", limit: int = 10_000, origin: str | None = None) -> list[str]:
        with self._truth.reading() as connection:
            return lookup.ids(connection, after, limit, origin)

    def stored_vectors(self, id_: str, encoder: str) -> dict[str, Vectors]:
        with self._truth.reading() as connection:
            return lookup.vectors_by_content(connection, id_, encoder, self.dimension)

    def stats(self) -> Stats:
        with self._truth.reading() as connection:
            truth, derived = sizes(self.folder)
            return self._counts.at(connection)._replace(bytes_truth=truth, bytes_derived=derived)

    def backlog(self, encoder: str) -> Backlog:
        with self._truth.reading() as connection:
            return self._backlogs.at(connection, encoder)

    def waiting(self, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
        with self._truth.reading() as connection:
            return waiting.oldest(connection, encoder, limit, skip)

    def settings(self) -> dict[str, str | int]:
        with self._truth.reading() as connection:
            return lookup.settings(connection)

    # -- what others derive: files of the folder ----------------------------------------------------------------

    def put_blob(self, name: str, data: bytes) -> None:
        try:
            write_bytes(self.folder / name, data)
        except OSError as problem:
            raise not_written(self.folder / name, problem) from problem

    def get_blob(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except OSError:
            return None

    def blob_version(self, name: str) -> int | None:
        try:
            # Every search asks this: a Path of its own takes as long again.
            return os.stat(f"{self.folder}/{name}").st_mtime_ns  # noqa: PTH116
        except OSError:
            return None

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, documents: Sequence[EncodedDocument], settings: Mapping[str, str | int] | None = None) -> None:
        check_documents(documents, self.dimension)
        if not documents:
            self.remember(**(settings or {}))
            return
        with self._writing(), self._publishing(), self._truth.writing() as transaction:
            self._put(transaction, documents)
            self._truth.set_meta(transaction, **(settings or {}))

    def reencode(self, made: Sequence[Reencoded], encoder: str) -> dict[str, Outcome]:
        with self._writing(), self._publishing(), self._truth.writing() as transaction:
            documents, outcomes = waiting.compare(transaction, made, encoder)
            check_documents(documents, self.dimension)
            if documents:
                self._put(transaction, documents)
        return outcomes

    def delete(self, ids: Sequence[str]) -> int:
        with self._writing(), self._truth.writing() as transaction:
            return self._truth.remove(transaction, ids)

    def remember(self, **settings: str | int) -> None:
        if not settings:
            return
        with self._writing(), self._truth.writing() as transaction:
            self._truth.set_meta(transaction, **settings)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if not self._lock.held:
            raise IndexProblem(f"{self.folder} was opened for reading: open it with write=True to change it")
        with self._mutex:
            yield

    def _put(self, transaction: sqlite3.Connection, documents: Sequence[EncodedDocument]) -> None:
        self._truth.put(transaction, documents)
        self._seal(transaction)
        self._publish_lexical(transaction)

    def _seal(self, transaction: sqlite3.Connection) -> None:
        """Move the tail to the vector files once it is long enough, in the transaction that makes it count."""
        meta = self._truth.meta(transaction)
        count = "SELECT count(*) FROM (SELECT 1 FROM vectors WHERE row > ? LIMIT ?)"
        if transaction.execute(count, (meta["sealed_row"], self._seal_at)).fetchone()[0] < self._seal_at:
            return
        rows, vectors = vectors_after(transaction, int(meta["sealed_row"]), self.dimension)
        if int(meta["sealed"]) == 0:
            meta["mean"] = vectors.mean(axis=0, dtype=np.float64).astype("<f4").tobytes()
        files = self._views.files(meta)
        try:
            block = files.append(rows, vectors)
        except OSError as problem:
            raise not_written(f"the vector files in {files.folder}", problem) from problem
        _note(transaction, block)
        sealed = block.position + block.size
        self._truth.set_meta(transaction, sealed=sealed, sealed_row=int(rows[-1]), mean=meta["mean"])

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        """Remember a failure on the way: tantivy may then be ahead of the truth, and is swept before the next write."""
        if self._lexical_ahead:
            meta = self._truth.meta(self._truth.reader())
            with self._writing_lexical():
                self._views.lexical(int(meta["generation"])).forget(above=int(meta["lexical_row"]))
        self._lexical_ahead = True
        yield
        self._lexical_ahead = False

    def _publish_lexical(self, transaction: sqlite3.Connection) -> None:
        """Bring tantivy up to the transaction's rows; they count once the transaction commits."""
        meta = self._truth.meta(transaction)
        with self._writing_lexical():
            lexical = self._views.lexical(int(meta["generation"]))
            lexical.add(self._truth.contents(transaction, int(meta["lexical_row"])))
        self._truth.set_meta(transaction, lexical_row=self._truth.last_row(transaction))

    @contextlib.contextmanager
    def _writing_lexical(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as problem:
            raise not_written(f"the lexical index in {self.folder}", problem) from problem

    # -- upkeep -------------------------------------------------------------------------------------------------

    def compact(self, progress: Progress | None = None) -> bool:
        with self._truth.reading() as connection:
            view = self._views.at(connection)
            dead, count = len(view.hidden), view.files.count
            if not dead and not len(view.tail_rows):
                return False
        rewrite = count <= REWRITTEN or WASTE * dead >= count
        if rewrite:
            self.rebuild(progress)
        with self._writing():
            return self._truth.shrink() or rewrite

    def rebuild(self, progress: Progress | None = None) -> None:
        # Beside the old files, then switched in one transaction. Other threads of this process may write meanwhile:
        # what they add is the new generation's tail.
        if not self._lock.held:
            raise IndexProblem(f"{self.folder} was opened for reading: open it with write=True to rebuild it")
        try:
            with self._truth.reading() as connection:
                state = derive(connection, self.folder, self.index_id, self.dimension, progress)
        except (ValueError, OSError) as problem:
            outcome = "The index is as it was; free disk space and try again"
            raise not_written(f"the derived files in {self.folder}", problem, outcome) from problem
        with self._writing():
            # The new generation holds nothing past the watermark, whatever the old one does.
            self._lexical_ahead = False
            with self._publishing(), self._truth.writing() as transaction:
                transaction.execute("DELETE FROM blocks")
                for block in state.pop("blocks"):
                    _note(transaction, block)
                gone = state.pop("gone")
                transaction.executemany("DELETE FROM deleted WHERE row = ?", ((int(row),) for row in gone))
                self._truth.set_meta(transaction, **state)
                if state["lexical_row"] < self._truth.last_row(transaction):
                    self._publish_lexical(transaction)
            self._sweep(keep=state["generation"])

    def backup(self, target: Path) -> Path:
        return upkeep.backup(self._truth, target)

    def verify(self, progress: Progress | None = None) -> list[str]:
        with self._truth.reading() as connection:
            if (damage := self._views.damage(connection)) is not None:
                return [*upkeep.check_truth(connection, self.dimension, progress), str(damage)]
            return upkeep.verify(connection, self._views.at(connection), progress)


def _note(transaction: sqlite3.Connection, block: Block) -> None:
    record = (block.position, block.size, json.dumps(block.checksums))
    transaction.execute("INSERT INTO blocks VALUES(?, ?, ?)", record)


def _take(lock: FileLock, wait: float = 0.0) -> None:
    try:
        lock.acquire(wait)
    except OSError as problem:
        raise not_written(lock.path.parent, problem, _UNWRITTEN) from problem
    except Locked as problem:
        raise IndexLocked(
            f"{lock.path.parent} is being written by process {problem.holder}: wait for it to finish, or, if it is a "
            "server, write through it (suwen add --server URL)"
        ) from None
