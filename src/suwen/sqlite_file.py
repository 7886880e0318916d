"""One small SQLite file that is a store: opening and checking it, one writer at a time, reading. Knows no table.

Every transaction is on the disk when it ends. Processes and threads may share a file: who finds it busy waits.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from suwen.errors import SuwenError

_BUSY_SECONDS = 60.0
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")


class SqliteFile:
    """The file of a store; a kind of store derives from it.

    Attributes:
        holds: What the file is for, in messages.
        made_by: How to get one where there is none, in messages.
        problem: The error that says why a file cannot be used.
        tables: The statements that make a new file, each of which does nothing where its table is there.
        application: The number that marks files of this kind; 0 for a kind that carries no mark.
        version: The newest form of the tables that this code knows.
        wal: Whether a write-ahead log lets others read during a write.
    """

    holds: ClassVar[str]
    made_by: ClassVar[str] = "name another"
    problem: ClassVar[type[SuwenError]]
    tables: ClassVar[tuple[str, ...]]
    application: ClassVar[int] = 0
    version: ClassVar[int] = 0
    wal: ClassVar[bool] = True

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        if not create and not self.path.is_file():
            raise self.problem(f"there is no {path}: {self.made_by}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = self._connect()
            self._make()
            self._check()
            if self.wal:
                self._turn_on_log()
        except (sqlite3.DatabaseError, OSError) as problem:
            raise self.problem(f"{path} cannot be used for {self.holds} ({problem}): name another file") from None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def _make(self) -> None:
        self._base.execute("PRAGMA synchronous=FULL")
        if self.rows("SELECT 1 FROM sqlite_master LIMIT 1"):
            return
        with self.writing() as base:
            for statement in self.tables:
                base.execute(statement)
            base.execute(f"PRAGMA application_id={self.application}")
            base.execute(f"PRAGMA user_version={self.version}")

    def _check(self) -> None:
        ((application,),), ((version,),) = self.rows("PRAGMA application_id"), self.rows("PRAGMA user_version")
        there = {name for (name,) in self.rows("SELECT name FROM sqlite_master")}
        if application != self.application or not there.issuperset(_TABLE.findall(" ".join(self.tables))):
            raise self.problem(f"{self.path} is a database of something else: name another file for {self.holds}")
        if version > self.version:
            raise self.problem(f"{self.path} was written by a newer suwen (form {version}): upgrade, or name another")

    def _turn_on_log(self) -> None:
        # This needs the file for itself, and does not wait for others on its own.
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._base.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as problem:
                if "locked" not in str(problem) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, this process's and thread's alone; it ends on the disk, or leaves everything as it was."""
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    def rows(self, question: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that answer a question."""
        with self._lock:
            return self._base.execute(question, values).fetchall()

    def stream(self, question: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The same one by one: one moment of the file, whatever is written meanwhile."""
        reader = self._connect()
        try:
            yield from reader.execute(question, values)
        finally:
            reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Nothing is lost without it."""
        with self._lock:
            self._base.close()
