"""The embedded engine: one folder, one writer, any number of readers. SQLite is the truth, all else is derived.

The order of a write is what makes it safe: inside one SQLite transaction the vector files are written and synced and
tantivy commits, and only then does the transaction commit the passages with both watermarks. Until that moment nobody
sees any of it; what a crash leaves in the derived files past the watermarks is written over, or swept by the next open.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suwen.index import upkeep, waiting
from suwen.index.counts import stats
from suwen.index.derive import derive, generation_name
from suwen.index.engine import (
    Backlog,
    EncodedDocument,
    IndexProblem,
    Outcome,
    Progress,
    Reencoded,
    Rows,
    Stats,
    Vectors,
    Waiting,
    check_documents,
)
from suwen.index.lock import IndexLocked, WriterLock
from suwen.index.snapshot import EmbeddedSnapshot
from suwen.index.truth import FILE, DamagedIndex, DamagedVector, Truth
from suwen.index.vectors import Block, VectorFiles
from suwen.index.view import Views

log = logging.getLogger("suwen.index")

#: Passages that may wait in memory before they go to the vector files: scanning them costs under a millisecond.
SEAL = 1024
#: Up to this many passages a missing or damaged derived file is mended on opening (seconds); past it, on request.
_HEAL_LIMIT = 50_000


class EmbeddedEngine:
    """An index in one folder. See :class:`suwen.index.engine.Engine` for what it promises."""

    def __init__(self, folder: Path, truth: Truth, lock: WriterLock, seal: int = SEAL) -> None:
        self.folder, self._truth, self._lock, self._seal_at = folder, truth, lock, seal
        self._mutex = threading.RLock()
        #: Whether tantivy may hold rows past its watermark, from a call that failed on the way.
        self._lexical_ahead = False
        meta = truth.meta(truth.reader())
        self.index_id, self.dimension, self._space = str(meta["uuid"]), int(meta["dimension"]), str(meta["space"])
        self._views = Views(folder, self.index_id, self.dimension)
        self._backlogs = waiting.Backlogs()
        self.healed = ""

    # -- opening and closing ------------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path | str, *, space: str, dimension: int, seal: int = SEAL) -> EmbeddedEngine:
        """Make an empty index and open it for writing. The folder may exist, but must not hold anything foreign."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise IndexProblem(f"{folder} cannot be made a folder ({problem}): choose another place") from problem
        if (folder / FILE).exists():
            raise IndexProblem(f"{folder} is an index already: open it, or choose another folder")
        foreign = [
            entry.name for entry in folder.iterdir() if entry.name != "lock" and not entry.name.startswith("truth.new")
        ]
        if foreign:
            raise IndexProblem(
                f"{folder} holds other files ({foreign[0]}, …): give a new or empty folder for the index"
            )
        lock = WriterLock(folder)
        lock.acquire()
        engine = cls(folder, Truth.create(folder, space, dimension), lock, seal)
        engine._repair()
        return engine

    @classmethod
    def open(cls, folder: Path | str, *, write: bool = False, seal: int = SEAL, heal: bool = True) -> EmbeddedEngine:
        """Open an index.

        Args:
            folder: The index folder.
            write: Take the writer's lock; a second writer is refused.
            seal: How many passages wait in memory before they go to the vector files.
            heal: Mend what a crash left behind. Off only for ``rebuild``, which derives everything anew.
        """
        folder = Path(folder)
        engine = cls(folder, Truth(folder), WriterLock(folder), seal)
        try:
            if write:
                engine._lock.acquire(wait=2.0)
                engine._truth.upgrade()
            if heal:
                engine._heal()
        except BaseException:
            engine.close()
            raise
        return engine

    def close(self) -> None:
        """Let go of files and the lock."""
        with self._mutex:
            self._views.close()
            self._truth.close()
            self._lock.release()

    def _heal(self) -> None:
        """As a writer: repair. As a reader: repair only when something is wrong and no writer is at work."""
        if self._lock.held:
            self._repair()
            return
        try:
            with self._truth.reading() as connection:
                self._views.at(connection)
            return
        except DamagedIndex:
            pass
        try:
            self._lock.acquire()
        except (IndexLocked, OSError):
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
        try:
            with self._truth.reading() as connection:
                self._views.at(connection)
        except DamagedVector as problem:
            # Opened all the same: adding the document again is what mends it.
            log.warning("%s: %s", self.folder, problem)
        except DamagedIndex as problem:
            count = self._truth.reader().execute("SELECT count(*) FROM passages").fetchone()[0]
            if count > _HEAL_LIMIT:
                raise
            if int(meta["generation"]):
                self.healed = f"derived files were rebuilt from the truth ({problem})"
                log.warning("%s: %s", self.folder, self.healed)
            self.rebuild()
        self._lexical_ahead = True

    def _sweep(self, keep: int) -> None:
        for entry in self.folder.glob("gen-*"):
            if entry.name != generation_name(keep):
                shutil.rmtree(entry, ignore_errors=True)

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def space(self) -> str:
        """The id of the space whose vectors it holds."""
        return self._space

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[EmbeddedSnapshot]:
        """The newest state, held still until the block ends."""
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

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """The stored digest of each of these documents that is there."""
        with self._truth.reading() as connection:
            query = "SELECT id, digest FROM documents WHERE id = ?"
            return dict(found for id_ in ids if (found := connection.execute(query, (id_,)).fetchone()))

    def encoder_of(self, id_: str) -> str | None:
        """Who encoded a document's passages; None for one that has none or is not there."""
        query = "SELECT encoder FROM passages WHERE document = (SELECT number FROM documents WHERE id = ?) LIMIT 1"
        found = self._truth.reader().execute(query, (id_,)).fetchone()
        return None if found is None else str(found[0])

    def stored_vectors(self, id_: str, encoder: str) -> dict[str, Vectors]:
        """What one encoder made of a document's passages: vectors by the passages' content."""
        with self._truth.reading() as connection:
            query = """SELECT row FROM passages WHERE encoder = ? AND document =
                       (SELECT number FROM documents WHERE id = ?)"""
            rows = [row for (row,) in connection.execute(query, (encoder, id_))]
            vectors = self._truth.vectors_of(connection, np.asarray(rows, dtype=np.int64), self.dimension)
            return {item.passage.content: vectors[i] for i, item in enumerate(self._truth.fetch(connection, rows))}

    def document_ids(self, origin: str | None = None) -> Iterator[str]:
        """The ids of all documents, or of those that came one way (``index`` or ``add``), in ascending order."""
        after = ""
        query = "SELECT id FROM documents WHERE id > ? AND (? IS NULL OR origin = ?) ORDER BY id LIMIT 10000"
        while True:
            found = [id_ for (id_,) in self._truth.reader().execute(query, (after, origin, origin))]
            yield from found
            if not found:
                return
            after = found[-1]

    def stats(self) -> Stats:
        """Counts and sizes."""
        with self._truth.reading() as connection:
            return stats(connection, self.folder, self.dimension, self._space)

    def backlog(self, encoder: str) -> Backlog:
        """How much is stored with vectors of other encoders than this one."""
        with self._truth.reading() as connection:
            return self._backlogs.at(connection, encoder)

    def waiting(self, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
        """The oldest documents with vectors of other encoders than this one, without those in ``skip``."""
        with self._truth.reading() as connection:
            return waiting.oldest(connection, encoder, limit, skip)

    def settings(self) -> dict[str, Any]:
        """What :meth:`remember` was told, with the engine's own settings."""
        return {key: value for key, value in self._truth.meta(self._truth.reader()).items() if key != "mean"}

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, documents: Sequence[EncodedDocument]) -> None:
        """Insert or replace whole documents. On return they are durable and searchable."""
        check_documents(documents, self.dimension)
        if not documents:
            return
        with self._writing(), self._publishing(), self._truth.writing() as transaction:
            self._put(transaction, documents)

    def reencode(self, made: Sequence[Reencoded], encoder: str) -> dict[str, Outcome]:
        """Replace the vectors of documents that are still the version named; nothing else of them changes.

        Compared and replaced in one transaction: what was posted or deleted meanwhile is never written over, and every
        search finds the document once, by its old vectors or by its new ones.
        """
        with self._writing(), self._publishing(), self._truth.writing() as transaction:
            documents, outcomes = waiting.compare(transaction, made, encoder)
            check_documents(documents, self.dimension)
            if documents:
                self._put(transaction, documents)
        return outcomes

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; the number that were there. On return they are gone, durably."""
        with self._writing(), self._truth.writing() as transaction:
            return self._truth.remove(transaction, ids)

    def remember(self, **settings: object) -> None:
        """Keep a few small settings beside the data, such as the pair that was used."""
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
        rows, vectors = self._truth.vectors(transaction, int(meta["sealed_row"]), self.dimension)
        if int(meta["sealed"]) == 0:
            meta["mean"] = vectors.mean(axis=0, dtype=np.float64).astype("<f4").tobytes()
        block = self._append(self._views.files(meta), rows, vectors)
        _note(transaction, block)
        sealed = block.position + block.size
        self._truth.set_meta(transaction, sealed=sealed, sealed_row=int(rows[-1]), mean=meta["mean"])

    def _append(self, files: VectorFiles, rows: Rows, vectors: Vectors) -> Block:
        try:
            return files.append(rows, vectors)
        except OSError as problem:
            raise IndexProblem(
                f"could not write the vector files in {files.folder}: {problem}. Nothing of this call was stored; free "
                "disk space or mend the folder's permissions and try again"
            ) from problem

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        """Remember a failure on the way: tantivy may then be ahead of the truth, and is swept before the next write."""
        if self._lexical_ahead:
            meta = self._truth.meta(self._truth.reader())
            with self._telling():
                self._views.lexical(int(meta["generation"])).forget(above=int(meta["lexical_row"]))
        self._lexical_ahead = True
        yield
        self._lexical_ahead = False

    def _publish_lexical(self, transaction: sqlite3.Connection) -> None:
        """Bring tantivy up to the transaction's rows; they count once the transaction commits."""
        meta = self._truth.meta(transaction)
        with self._telling():
            lexical = self._views.lexical(int(meta["generation"]))
            lexical.add(self._truth.contents(transaction, int(meta["lexical_row"])))
        self._truth.set_meta(transaction, lexical_row=self._truth.last_row(transaction))

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as problem:
            raise IndexProblem(
                f"could not write the lexical index in {self.folder}: {problem}. Nothing of this call was stored; free "
                "disk space or mend the folder's permissions and try again"
            ) from problem

    # -- upkeep -------------------------------------------------------------------------------------------------

    def compact(self, progress: Progress | None = None) -> bool:
        """Fold tombstones in and give their space back; whether there was anything to do."""
        with self._truth.reading() as connection:
            view = self._views.at(connection)
            if not len(view.hidden) and not len(view.tail_rows):
                return False
        self.rebuild(progress)
        with self._writing():
            self._truth.shrink()
        return True

    def rebuild(self, progress: Progress | None = None) -> None:
        """Derive every file anew from the truth, beside the old ones, then switch in one transaction.

        Searches go on meanwhile, and so do writes from other threads of this process: what they add is the new
        generation's tail.
        """
        if not self._lock.held:
            raise IndexProblem(f"{self.folder} was opened for reading: open it with write=True to rebuild it")
        try:
            with self._truth.reading() as connection:
                state = derive(connection, self.folder, self.index_id, self.dimension, progress)
        except (ValueError, OSError) as problem:
            raise IndexProblem(
                f"could not write the derived files in {self.folder}: {problem}. The index is as it was; free disk "
                "space and try again"
            ) from problem
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

    def backup(self, target: Path | str) -> Path:
        """Copy the truth of the live index to a new folder; opening or rebuilding it there restores the rest."""
        return upkeep.backup(self._truth, Path(target))

    def verify(self, progress: Progress | None = None) -> list[str]:
        """Read everything and compare; the problems in words, none when all is well."""
        with self._truth.reading() as connection:
            try:
                view = self._views.at(connection)
            except DamagedIndex as problem:
                return [*upkeep.check_truth(connection, self.dimension, progress), str(problem)]
            return upkeep.verify(connection, view, progress)


def _note(transaction: sqlite3.Connection, block: Block) -> None:
    record = (block.position, block.size, json.dumps(block.checksums))
    transaction.execute("INSERT INTO blocks VALUES(?, ?, ?)", record)
