"""The way to the truth of a cluster index: connections, read transactions, and write transactions behind a fence.

Two things keep writers apart. An advisory lock of the server says at once that somebody writes; and since a lock is
one server's, and ends with a connection, every write transaction compares the epoch that its writer began: a writer
that was cut off, or that comes back from an old primary, finds that another has begun since and is refused.

A commit whose answer did not come is never guessed at. The session that made it is ended, its lock is taken again, and
the number of writes, which each one counts up, says whether it was stored.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.rows import class_row

from suwen.index.cluster.patience import PatientConnection, Session, end_session
from suwen.index.cluster.place import Place, Unreachable
from suwen.index.cluster.schema import FORMAT, TABLES
from suwen.index.engine import IndexLocked, IndexProblem, NotAnIndex, Similarity

log = logging.getLogger("suwen.index")

Connection = psycopg.Connection[Any]


class Meta(NamedTuple):
    """What an index is, and where it stands at one moment."""

    one: bool
    format: int
    uuid: str
    space: str
    dimension: int
    similarity: Similarity
    searcher: str
    epoch: int
    sequence: int
    generation: int
    last_row: int
    passages: int
    questions: int
    searched: int
    words: int
    bigrams: int
    mean_words: float
    mean_bigrams: float

    @property
    def vectors(self) -> int:
        """How many rows a searcher has: those of passages, and those of questions."""
        return self.passages + self.questions


def read_meta(connection: Connection, lock: str = "") -> Meta:
    """The state of the connection's moment."""
    with connection.cursor(row_factory=class_row(Meta)) as cursor:
        found = cursor.execute(f"SELECT * FROM meta {lock}").fetchone()
    assert found is not None
    return found


class _Own:
    """A thread's connection, closed when the thread is gone."""

    def __init__(self, connection: PatientConnection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class Truth:
    """One index: a connection for each reading thread, and one for its writer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._local = threading.local()
        self._connections: weakref.WeakSet[_Own] = weakref.WeakSet()
        self._guard, self._mutex = threading.Lock(), threading.RLock()
        self._writer: _Own | None = None
        self._epoch: int | None = None
        self._session: Session | None = None
        self._unsettled: int | None = None
        self._closed = False
        self.check()

    # -- making and finding -------------------------------------------------------------------------------------

    @classmethod
    def create(cls, place: Place, space: str, dimension: int, similarity: Similarity, searcher: str) -> None:
        """Make the tables of an empty index, all or none."""
        with contextlib.closing(place.connect()) as connection:
            if exists(connection, place):
                raise IndexProblem(f"{place.shown} is an index already: open it, or give another '?index=NAME'")
            try:
                with connection.transaction():
                    connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{place.schema}"')
                    connection.execute(TABLES.encode())
                    connection.execute(
                        """INSERT INTO meta(format, uuid, space, dimension, similarity, searcher)
                           VALUES (%s, %s, %s, %s, %s, %s)""",
                        (FORMAT, uuid.uuid4().hex, space, dimension, similarity, searcher),
                    )
            except errors.DuplicateTable as problem:
                raise IndexProblem(
                    f"{place.shown}: the schema {place.schema!r} holds other tables: give another '?index=NAME'"
                ) from problem
            except psycopg.Error as problem:
                raise place.complaint(problem) from problem

    def check(self) -> None:
        """Refuse a place that holds no index, or one of another version."""
        with self._telling(), contextlib.closing(self.place.connect()) as connection:
            if not exists(connection, self.place):
                raise NotAnIndex(f"{self.place.shown} holds no index: create one with 'suwen index ADDRESS SOURCE'")
            (version,) = connection.execute("SELECT format FROM meta").fetchone() or (None,)
        if version != FORMAT:
            raise NotAnIndex(
                f"{self.place.shown} has tables of version {version}, and this suwen reads {FORMAT}: use the suwen "
                "that made it, or 'suwen engine copy' it with that one to a folder"
            )

    # -- reading ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read transaction: everything read inside belongs to one moment."""
        own: _Own | None = getattr(self._local, "own", None)
        if own is not None and own.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            if own.connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                yield own.connection
                return
            own = None
        with self._telling():
            connection = self._begun(own)
            try:
                yield connection
            finally:
                with contextlib.suppress(psycopg.Error):
                    connection.execute("ROLLBACK")

    def _begun(self, own: _Own | None) -> Connection:
        """This thread's connection with a transaction begun; a server that came back is connected to again."""
        if own is not None and not self._closed:
            with contextlib.suppress(psycopg.OperationalError, psycopg.InterfaceError):
                own.connection.execute(_READ)
                return own.connection
        self._local.own = own = self._connect()
        own.connection.execute(_READ)
        return own.connection

    @contextlib.contextmanager
    def single(self) -> Iterator[Connection]:
        """A connection for one statement that is a transaction by itself, whatever this thread is reading."""
        own = self._connect()
        try:
            with self._telling():
                yield own.connection
        finally:
            own.connection.close()

    # -- writing ------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether this was opened for writing."""
        return self._epoch is not None

    def begin_writing(self) -> None:
        """Become the one writer: take the lock and begin an epoch."""
        with self._telling():
            connection = self._locked()
            (epoch,) = connection.execute("UPDATE meta SET epoch = epoch + 1 RETURNING epoch").fetchone() or (0,)
            self._epoch = int(epoch)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads from writing between the transactions of one change; other processes are fenced."""
        with self._mutex:
            yield

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[Connection, Meta]]:
        """A write transaction of the one writer, with the state it begins from: all of it, or none of it."""
        if self._closed:
            raise IndexProblem(f"{self.place.shown} was closed: open it again")
        if not self.writable:
            raise IndexProblem(f"{self.place.shown} was opened for reading: open it with write=True to change it")
        with self._mutex, self._telling():
            connection = self._writers()
            committing = False
            try:
                connection.execute("BEGIN")
                meta = read_meta(connection, "FOR UPDATE")
                if meta.epoch != self._epoch:
                    raise self._shut_out()
                yield connection, meta
                connection.execute("UPDATE meta SET sequence = sequence + 1")
                committing = True
                connection.execute("COMMIT")
            except BaseException as problem:
                with contextlib.suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                if not (committing and connection.closed and isinstance(problem, psycopg.OperationalError)):
                    raise
                self._settle(meta.sequence, problem)

    def _shut_out(self) -> IndexLocked:
        return IndexLocked(f"{self.place.shown} has another writer since: this one is shut out; open it again")

    # -- connections that broke, and what became of their commits -----------------------------------------------

    def _writers(self) -> Connection:
        """The writer's connection; where it broke, a new one that holds the lock again."""
        connection = self._still_open() or self._locked()
        if self._unsettled is not None:
            told = "was stored" if self._was_stored(connection) else "was not stored"
            log.warning("%s: the call whose commit was lost %s", self.place.shown, told)
        return connection

    def _still_open(self) -> Connection | None:
        if self._writer is not None and not self._writer.connection.closed:
            with contextlib.suppress(psycopg.OperationalError, psycopg.InterfaceError):
                self._writer.connection.execute("SELECT 1")
                return self._writer.connection
        return None

    def _settle(self, before: int, problem: psycopg.OperationalError) -> None:
        """Find out what became of a commit that was lost; one that was stored is as good as any other."""
        self._unsettled = before
        try:
            stored = self._was_stored(self._locked())
        except (psycopg.Error, IndexProblem) as second:
            said = " ".join(str(second).split())
            raise Unreachable(
                f"{self.place.shown} was lost during the commit: the call is stored whole or not at all. The next "
                f"write finds out and logs which, once the server answers; doing this one again is harmless ({said})"
            ) from problem
        if not stored:
            raise Unreachable(
                f"{self.place.shown} was lost during the commit: nothing of this call was stored. Do it again"
            ) from problem
        log.warning("%s was lost during a commit, which was stored all the same", self.place.shown)

    def _was_stored(self, connection: Connection) -> bool:
        """Whether the lost commit was stored. Its session is over: this connection has the lock that it held.

        The row is written once more, so that a standby that confirms this write has the other one too.
        """
        query = "UPDATE meta SET epoch = epoch RETURNING epoch, sequence"
        epoch, sequence = connection.execute(query).fetchone() or (None, None)
        if epoch != self._epoch:
            raise self._shut_out()
        before, self._unsettled = self._unsettled, None
        return sequence != before

    def _locked(self) -> Connection:
        own = self._connect()
        if self._session is not None:
            # A proxy may keep alive what this side gave up, and the lock with it.
            end_session(own.connection, self._session)
        until = time.monotonic() + _PATIENCE
        query = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
        while not own.connection.execute(query, (f"suwen {self.place.schema}",)).fetchone()[0]:  # type: ignore[index]
            if time.monotonic() >= until:
                own.connection.close()
                raise IndexLocked(f"{self.place.shown} is being written by another process: wait, or write through it")
            time.sleep(0.1)
        self._writer, self._session = own, own.connection.session
        return own.connection

    # -- connections --------------------------------------------------------------------------------------------

    def _connect(self) -> _Own:
        if self._closed:
            raise IndexProblem(f"{self.place.shown} was closed: open it again")
        own = _Own(self.place.connect())
        with self._guard:
            self._connections.add(own)
        return own

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as problem:
            raise self.place.complaint(problem) from problem

    def close(self) -> None:
        """Close every connection, and with the writer's give the lock up."""
        with self._guard:
            self._closed, self._writer, self._epoch = True, None, None
            for own in list(self._connections):
                own.connection.close()
            self._connections.clear()
        self._local = threading.local()


#: Seconds to wait for another writer to end.
_PATIENCE = 2.0
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def exists(connection: Connection, place: Place) -> bool:
    """Whether the schema holds an index."""
    found = connection.execute("SELECT to_regclass(%s)", (f'"{place.schema}".meta',)).fetchone()
    return found is not None and found[0] is not None
