"""The SQLite file that is the truth of an embedded index: its schema, its rows, its transactions. No derived file.

A passage's row number is never reused and its content never changes: an updated document gets new rows. That makes
the derived files append-only, and a snapshot a matter of one read transaction.
"""

from __future__ import annotations

import difflib
import errno
import json
import sqlite3
import threading
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from suwen.corpora.records import Passage
from suwen.durable import sync
from suwen.index.engine import (
    DamagedIndex,
    DiskFull,
    EncodedDocument,
    IndexProblem,
    NotAnIndex,
    RowGone,
    Rows,
    Similarity,
    StoredPassage,
)
from suwen.index.filters_sql import attribute_rows, teach
from suwen.index.read_only_folder import Rest, alone, at_rest
from suwen.index.stored_vectors import encode_vectors, foreign, put_questions, remove_questions

#: 2 are indexes of inner product, whose sign bits an older suwen would scan for cosines; 3 those that hold questions;
#: all others stay 1.
FORMAT = 3
FILE = "truth.db"
_DECODE = json.JSONDecoder().raw_decode  # what json.loads does beside takes longer than a passage's metadata

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE documents(
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, metadata TEXT NOT NULL,
  digest TEXT NOT NULL, origin TEXT NOT NULL);
CREATE TABLE passages(
  row INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL, ordinal INTEGER NOT NULL,
  start INTEGER NOT NULL, "end" INTEGER NOT NULL, text TEXT NOT NULL, encoder TEXT NOT NULL);
CREATE INDEX passages_by_document ON passages(document, ordinal);
CREATE INDEX passages_by_encoder ON passages(encoder);
CREATE TABLE vectors(row INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE attributes(document INTEGER NOT NULL, key TEXT NOT NULL, value NOT NULL);
CREATE INDEX attributes_by_value ON attributes(key, value, document);
CREATE INDEX attributes_by_document ON attributes(document);
CREATE TABLE deleted(row INTEGER PRIMARY KEY);
CREATE TABLE blocks(position INTEGER PRIMARY KEY, count INTEGER NOT NULL, checksums TEXT NOT NULL);
"""
#: What came after the first indexes were written. Either lets an older suwen work on as before, so the format is the
#: same: when a document came that waits for its encoder, and the first passage of each document by who encoded it.
_LATER = (
    "CREATE TABLE IF NOT EXISTS arrivals(document INTEGER PRIMARY KEY, time REAL NOT NULL)",
    "CREATE INDEX IF NOT EXISTS documents_by_encoder ON passages(encoder) WHERE ordinal = 0",
)


def not_written(
    what: object,
    problem: Exception,
    outcome: str = "Nothing of this call was stored; free disk space or fix the folder's permissions and try again",
) -> IndexProblem:
    """The error for something that could not be written, of a kind of its own where the disk is full."""
    words = str(problem).lower()
    full = getattr(problem, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in words
    kind = DiskFull if full or "no space left" in words else IndexProblem
    return kind(f"could not write {what}: {problem}. {outcome}")


def _not_read(path: Path, problem: sqlite3.DatabaseError, fix: str) -> IndexProblem:
    """The error for a truth that could not be read; only where its own content is wrong is it damaged."""
    code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest says which call it was
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        fix = f"whoever searches must be allowed to read all files of {path.parent}, or to write to it and to them"
    elif code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        fix = f"the disk is full or failing: free space on it and try again, and if that does not help {fix}"
    elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        fix = "another process is at work on it: try again"
    else:
        return DamagedIndex(f"{path} cannot be read ({problem}): {fix}")
    return IndexProblem(f"{path} cannot be read ({problem}): {fix}")


class _Own:
    """A thread's connection. It is closed when the thread is gone, and with it the last reference to this."""

    def __init__(self, connection: sqlite3.Connection, rest: Rest | None) -> None:
        self.connection, self.rest = connection, rest

    def __del__(self) -> None:
        self.connection.close()


def _nearest(folder: Path) -> str:
    """What may have been meant by a folder that holds no index."""
    beside = {file.parent.name: file.parent for file in folder.parent.glob(f"*/{FILE}")}
    close = [beside[name] for name in difflib.get_close_matches(folder.name, beside, n=1)]
    around = [folder.parent] if folder.name == FILE else [file.parent for file in sorted(folder.glob(f"*/{FILE}"))]
    meant = next((f"did you mean {path}? Else " for path in [*around, *close]), "")
    new = f"FOLDER {folder}" if folder.is_file() else f"{folder} SOURCE"
    return f"{meant}create one with 'suwen index {new}'"


class Truth:
    """One ``truth.db``: a connection for each reading thread, and one for the only writer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._local = threading.local()
        self._connections: weakref.WeakSet[_Own] = weakref.WeakSet()
        self._writer: _Own | None = None
        self._guard = threading.Lock()
        self._closed = False
        #: Called when what was read last may be of no one moment.
        self.on_disturbed: Callable[[], None] = lambda: None
        if not self.path.is_file():
            raise NotAnIndex(f"{folder} is not an index (no {FILE}): {_nearest(folder)}")
        self._check_format(folder)

    @classmethod
    def create(cls, folder: Path, space: str, dimension: int, similarity: Similarity = "cosine") -> Truth:
        """Make an empty truth; the folder must not hold one."""
        path = folder / FILE
        if path.exists():
            raise IndexProblem(f"{folder} is an index already: open it, or choose another folder")
        # Made under another name: a crash on the way leaves no half-made truth behind.
        fresh = path.with_suffix(".new")
        for leftover in folder.glob(fresh.name + "*"):
            leftover.unlink()
        connection = sqlite3.connect(fresh, isolation_level=None)
        try:
            # Page size and vacuum mode only take effect before the first table. 8 KiB holds five 768-wide fp16 vectors.
            settings = "page_size = 8192", "auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = FULL"
            own = {"format": 1, "uuid": uuid.uuid4().hex, "space": space, "dimension": dimension}
            own |= {} if similarity == "cosine" else {"format": 2, "similarity": similarity}
            state = {"sequence": 0, "generation": 0, "sealed": 0, "sealed_row": 0, "lexical_row": 0, "deletions": 0}
            connection.executescript(
                "".join(f"PRAGMA {setting};" for setting in settings)
                + "BEGIN IMMEDIATE;"
                + _SCHEMA
                + "".join(f"{statement};" for statement in _LATER)
                + "".join(f"INSERT INTO meta VALUES('{k}', {json.dumps(v)});" for k, v in (own | state).items())
                + "COMMIT;"
            )
        except sqlite3.OperationalError as problem:
            raise not_written(path, problem) from problem
        finally:
            connection.close()
        fresh.rename(path)
        sync(folder)
        return cls(folder)

    def _check_format(self, folder: Path) -> None:
        try:
            meta = self.meta(self.reader())
        except sqlite3.DatabaseError as problem:
            self.close()
            raise _not_read(
                self.path,
                problem,
                f"it is the truth of the index, so restore a backup ('suwen restore BACKUP {folder}') or index the "
                "source again",
            ) from problem
        if int(meta.get("format", 0)) > FORMAT:
            self.close()
            raise NotAnIndex(
                f"{folder} has index format {meta['format']}, newer than this suwen reads ({FORMAT}): upgrade suwen"
            )

    # -- connections and transactions ---------------------------------------------------------------------------

    def reader(self) -> sqlite3.Connection:
        """This thread's connection."""
        return self._reader().connection

    def _reader(self) -> _Own:
        own: _Own | None = getattr(self._local, "own", None)
        if own is not None and own.rest is not None and not own.connection.in_transaction:
            own = own if at_rest(self.path) == own.rest else None
        if own is None:
            self._local.own = own = self._connect()
        return own

    def _connect(self) -> _Own:
        if self._closed:
            raise IndexProblem(f"{self.path.parent} was closed: open it again")
        rest = at_rest(self.path)
        where = self.path if rest is None else alone(self.path, rest)
        shared: dict[str, Any] = {"isolation_level": None, "timeout": 30, "check_same_thread": False}
        connection = sqlite3.connect(where, uri=rest is not None, **shared)
        # In WAL mode only FULL syncs the log at every commit: with NORMAL an acknowledged write may be lost.
        connection.execute("PRAGMA synchronous = FULL")
        teach(connection)
        own = _Own(connection, rest)
        with self._guard:
            self._connections.add(own)
        return own

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: everything read inside belongs to one moment."""
        own = self._reader()
        connection = own.connection
        if connection.in_transaction:
            yield connection
            return
        try:
            with nullcontext() if own.rest is None else self.undisturbed():
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("COMMIT")
        except sqlite3.DatabaseError as problem:
            fix = f"run 'suwen verify {self.path.parent}', or restore a backup"
            raise _not_read(self.path, problem, fix) from problem

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Refuse what was read where no log shows a writer's moments apart, and one came meanwhile."""
        own, failed = self._reader(), None
        try:
            yield
        except sqlite3.DatabaseError as problem:
            failed = problem
        if own.rest is not None and at_rest(self.path) != own.rest:
            self.on_disturbed()
            raise IndexProblem(f"{self.path.parent} was written to while it was read: try again") from failed
        if failed is not None:
            raise failed

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: all of it, or none of it. Bumps the sequence number readers watch.

        The caller sees to it that only one thread writes at a time.
        """
        # Its own connection: the calling thread may be inside a read transaction.
        if self._writer is None:
            self._writer = self._connect()
            # A restored backup starts out without its write-ahead log, and readers would wait for writers.
            self._writer.connection.execute("PRAGMA journal_mode = WAL")
        connection = self._writer.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'sequence'")
            connection.execute("COMMIT")
        except BaseException as problem:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(problem, sqlite3.OperationalError):
                raise not_written(self.path, problem) from problem
            raise

    def upgrade(self) -> None:
        """Bring an index of an older suwen up to date, as its writer; on a large one this reads every passage, once."""
        if not self.has_arrivals(self.reader()):
            with self.writing() as transaction:
                for statement in _LATER:
                    transaction.execute(statement)

    @staticmethod
    def has_arrivals(connection: sqlite3.Connection) -> bool:
        """Whether the index knows when a waiting document came: one that an older suwen wrote does not."""
        return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'arrivals'").fetchone() is not None

    def shrink(self) -> bool:
        """Give free pages back to the disk, if any; when the log is folded in, a reader may put that off."""
        connection = self.reader()
        try:
            (before,) = connection.execute("PRAGMA page_count").fetchone()
            # As a script: every step frees one page, and execute takes one step of what gives no columns.
            connection.executescript("PRAGMA incremental_vacuum; PRAGMA busy_timeout = 500")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return bool(connection.execute("PRAGMA page_count").fetchone()[0] < before)
        except sqlite3.OperationalError as problem:
            outcome = "The index is compacted but its file is not smaller; free disk space and compact again"
            raise not_written(self.path, problem, outcome) from problem
        finally:
            connection.execute("PRAGMA busy_timeout = 30000")

    def close(self) -> None:
        """Close every connection."""
        with self._guard:
            for own in list(self._connections):
                own.connection.close()
            self._connections.clear()
            self._writer = None
            self._closed = True
        self._local = threading.local()

    # -- reading ------------------------------------------------------------------------------------------------

    @staticmethod
    def meta(connection: sqlite3.Connection) -> dict[str, Any]:
        """Settings and watermarks, as of the connection's moment; an index that does not say so has cosines."""
        return {"similarity": "cosine", **dict(connection.execute("SELECT key, value FROM meta").fetchall())}

    @staticmethod
    def deleted(connection: sqlite3.Connection) -> Rows:
        """Rows that derived files still hold and nobody may see."""
        return rows_of(connection.execute("SELECT row FROM deleted ORDER BY row"))

    @staticmethod
    def last_row(connection: sqlite3.Connection) -> int:
        """The highest row ever given out."""
        record = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'passages'").fetchone()
        return int(record[0]) if record else 0

    @staticmethod
    def contents(connection: sqlite3.Connection, after: int) -> Iterator[tuple[int, str]]:
        """Rows above ``after`` with what is searched of each: title and text."""
        query = """SELECT row, title, text FROM passages JOIN documents ON number = document
                   WHERE row > ? ORDER BY row"""
        for row, title, text in connection.execute(query, (after,)):
            yield row, f"{title}\n{text}" if title else text

    @staticmethod
    def fetch(connection: sqlite3.Connection, rows: Sequence[int]) -> list[StoredPassage]:
        """Whole passages, in the order asked for."""
        # CROSS: in this order and no other, so that what comes is in the order of what was asked for.
        query = """SELECT row, metadata, encoder, documents.id, ordinal, text, start, "end", title FROM json_each(?)
                   CROSS JOIN passages ON row = value CROSS JOIN documents ON number = document"""
        wanted = list(map(int, rows))
        found = connection.execute(query, (str(wanted),))  # integers in a list are JSON as they are
        stored = [StoredPassage(one[0], Passage._make(one[3:]), _DECODE(one[1])[0], one[2]) for one in found]
        if len(stored) < len(wanted):
            there = {one.row for one in stored}
            raise RowGone(foreign(next(row for row in wanted if row not in there)))
        return stored

    # -- writing ------------------------------------------------------------------------------------------------

    @classmethod
    def put(cls, connection: sqlite3.Connection, documents: Sequence[EncodedDocument]) -> None:
        """Insert or replace documents; their passages get new rows, in order."""
        cls.remove(connection, [encoded.document.id for encoded in documents])
        for document, passages, vectors, encoder, digest, origin, arrived, questions in documents:
            number = connection.execute(
                "INSERT INTO documents(id, title, metadata, digest, origin) VALUES(?, ?, ?, ?, ?)",
                (document.id, document.title, json.dumps(document.metadata, ensure_ascii=False), digest, origin),
            ).lastrowid
            connection.executemany("INSERT INTO attributes VALUES(?, ?, ?)", attribute_rows(number, document.metadata))
            if arrived is not None:
                connection.execute("INSERT OR REPLACE INTO arrivals VALUES(?, ?)", (number, arrived))
            rows: dict[int, int] = {}
            for passage, vector in zip(passages, encode_vectors(vectors[: len(passages)]), strict=True):
                row = connection.execute(
                    'INSERT INTO passages(document, ordinal, start, "end", text, encoder) VALUES(?, ?, ?, ?, ?, ?)',
                    (number, passage.ordinal, passage.start, passage.end, passage.text, encoder),
                ).lastrowid
                connection.execute("INSERT INTO vectors VALUES(?, ?, ?)", (row, vector, zlib.crc32(vector)))
                rows[passage.ordinal] = int(row or 0)
            put_questions(connection, rows, questions, vectors[len(passages) :])

    @staticmethod
    def remove(connection: sqlite3.Connection, ids: Sequence[str]) -> int:
        """Delete documents with their passages, leaving tombstones for the derived files; how many were there."""
        removed = 0
        for id_ in ids:
            number = connection.execute("SELECT number FROM documents WHERE id = ?", (id_,)).fetchone()
            if number is None:
                continue
            connection.execute("INSERT INTO deleted SELECT row FROM passages WHERE document = ?", number)
            remove_questions(connection, number[0])
            connection.execute("DELETE FROM vectors WHERE row IN (SELECT row FROM passages WHERE document = ?)", number)
            for table in ("passages", "attributes", "arrivals"):
                connection.execute(f"DELETE FROM {table} WHERE document = ?", number)
            connection.execute("DELETE FROM documents WHERE number = ?", number)
            removed += 1
        if removed:
            connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'deletions'")
        return removed

    @staticmethod
    def set_meta(connection: sqlite3.Connection, **values: object) -> None:
        """Write settings or watermarks, inside the caller's transaction."""
        connection.executemany("INSERT OR REPLACE INTO meta VALUES(?, ?)", values.items())


def rows_of(cursor: sqlite3.Cursor) -> Rows:
    """The rows that a query selects, as it selects them."""
    return np.fromiter((row for (row,) in cursor), dtype=np.int64)
