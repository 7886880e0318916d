"""Replies and the ledger of calls, in one SQLite file that processes may share. Knows no endpoint and no prompt.

A reply is committed, and synced to the disk, before ``put`` returns; the ledger's line of the call that brought it is
in the same transaction. Where two processes asked the same at once, the first reply to be stored is everyone's.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from suwen.llm.config import LLMError
from suwen.llm.requests import Finish

_VERSION = 1
_BUSY_SECONDS = 60.0
_APPLICATION = 0x53574C4D
_TABLES = """
CREATE TABLE replies (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, text TEXT NOT NULL, finish TEXT NOT NULL, served TEXT NOT NULL,
    tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, cost REAL NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, model TEXT NOT NULL, caller TEXT NOT NULL, key TEXT NOT NULL,
    outcome TEXT NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, cost REAL NOT NULL,
    seconds REAL NOT NULL
);
"""


class CacheProblem(LLMError):
    """The file of replies cannot be used."""


class Stored(NamedTuple):
    """One reply as it came over the wire: not yet held to any schema."""

    text: str
    finish: Finish
    served: str
    tokens_in: int
    tokens_out: int
    cost: float


class Call(NamedTuple):
    """One line of the ledger: a call, and ``reply`` or what went wrong."""

    model: str
    caller: str
    key: str
    outcome: str
    tokens_in: int
    tokens_out: int
    cost: float
    seconds: float


@dataclass(frozen=True)
class LedgerRow:
    """All calls to one model, over every run that used this file.

    Attributes:
        model: The configured name.
        calls: Calls made.
        replies: Those that brought a reply.
        tokens_in: Tokens of prompts.
        tokens_out: Tokens of replies.
        cost: What they cost.
        seconds: What they took, added up as if one after the other.
    """

    model: str
    calls: int
    replies: int
    tokens_in: int
    tokens_out: int
    cost: float
    seconds: float


class Cache:
    """The file of replies; made where there is none. May be used from any thread, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._set_up()
        except (sqlite3.DatabaseError, OSError) as problem:
            raise CacheProblem(f"{path} cannot be used for replies ({problem}): name another file") from None

    def _set_up(self) -> None:
        # Turning the log on needs the file for itself, and does not wait for others by itself.
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as problem:
                if "locked" not in str(problem) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._connection.execute("PRAGMA synchronous=FULL")
        with self._writing():
            (application,) = self._connection.execute("PRAGMA application_id").fetchone()
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not application and not tables:
                for statement in _TABLES.split(";\n"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA application_id={_APPLICATION}")
                self._connection.execute(f"PRAGMA user_version={_VERSION}")
            elif application != _APPLICATION:
                raise CacheProblem(f"{self.path} is a database of something else: name another file for the replies")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise CacheProblem(f"{self.path} was written by a newer suwen (form {version}): upgrade, or name another")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def get(self, key: str) -> Stored | None:
        """The reply of a key."""
        with self._lock:
            row = self._connection.execute(
                "SELECT text, finish, served, tokens_in, tokens_out, cost FROM replies WHERE key = ?", (key,)
            ).fetchone()
        return Stored(*row) if row else None

    def put(self, key: str, request: str, reply: Stored, call: Call) -> Stored:
        """Keep a reply and the call that brought it; on the disk when this returns.

        Returns:
            The reply that is kept under this key: another process's, if it was first.
        """
        with self._writing():
            values = (key, request, *reply, time.time())
            self._connection.execute("INSERT OR IGNORE INTO replies VALUES (?,?,?,?,?,?,?,?,?)", values)
            self._enter(call)
        kept = self.get(key)
        assert kept is not None
        return kept

    def enter(self, call: Call) -> None:
        """Write a call that brought no reply into the ledger."""
        with self._writing():
            self._enter(call)

    def _enter(self, call: Call) -> None:
        self._connection.execute("INSERT INTO calls VALUES (NULL,?,?,?,?,?,?,?,?,?)", (time.time(), *call))

    def ledger(self) -> list[LedgerRow]:
        """What was spent on each model, by name."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT model, count(*), sum(outcome = 'reply'), sum(tokens_in), sum(tokens_out), sum(cost), "
                "sum(seconds) FROM calls GROUP BY model ORDER BY model"
            ).fetchall()
        return [LedgerRow(*row) for row in rows]

    def __len__(self) -> int:
        with self._lock:
            return int(self._connection.execute("SELECT count(*) FROM replies").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()
