"""Replies and the ledger of calls, in one SQLite file that processes may share. Knows no endpoint and no prompt.

A reply is committed, and synced to the disk, before ``put`` returns; the ledger's line of the call that brought it is
in the same transaction. Where two processes asked the same at once, the first reply to be stored is everyone's.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import NamedTuple

from suwen.llm.config import LLMError
from suwen.llm.requests import Finish
from suwen.sqlite_file import SqliteFile


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


class Cache(SqliteFile):
    """The file of replies; made where there is none. May be used from any thread, one at a time."""

    holds = "replies"
    problem = CacheProblem
    application, version = 0x53574C4D, 1
    tables = (
        """CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, text TEXT NOT NULL, finish TEXT NOT NULL, served TEXT NOT NULL,
    tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, cost REAL NOT NULL, at REAL NOT NULL
) WITHOUT ROWID""",
        """CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, model TEXT NOT NULL, caller TEXT NOT NULL, key TEXT NOT NULL,
    outcome TEXT NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, cost REAL NOT NULL,
    seconds REAL NOT NULL
)""",
    )

    def get(self, key: str) -> Stored | None:
        """The reply of a key."""
        rows = self.rows("SELECT text, finish, served, tokens_in, tokens_out, cost FROM replies WHERE key = ?", (key,))
        return Stored(*rows[0]) if rows else None

    def put(self, key: str, request: str, reply: Stored, call: Call) -> Stored:
        """Keep a reply and the call that brought it; on the disk when this returns.

        Returns:
            The reply that is kept under this key: another process's, if it was first.
        """
        with self.writing() as base:
            values = (key, request, *reply, time.time())
            base.execute("INSERT OR IGNORE INTO replies VALUES (?,?,?,?,?,?,?,?,?)", values)
            _enter(base, call)
        return self.get(key) or reply

    def enter(self, call: Call) -> None:
        """Write a call that brought no reply into the ledger."""
        with self.writing() as base:
            _enter(base, call)

    def ledger(self) -> list[LedgerRow]:
        """What was spent on each model, by name."""
        rows = self.rows(
            "SELECT model, count(*), sum(outcome = 'reply'), sum(tokens_in), sum(tokens_out), sum(cost), "
            "sum(seconds) FROM calls GROUP BY model ORDER BY model"
        )
        return [LedgerRow(*row) for row in rows]

    def __len__(self) -> int:
        return int(self.rows("SELECT count(*) FROM replies")[0][0])


def _enter(base: sqlite3.Connection, call: Call) -> None:
    base.execute("INSERT INTO calls VALUES (NULL,?,?,?,?,?,?,?,?,?)", (time.time(), *call))
