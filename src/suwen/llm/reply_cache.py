"""Replies and the ledger of calls, in one SQLite file that processes may share. Knows no endpoint and no prompt.

A reply is committed, and synced to the disk, before ``put`` returns; the ledger's line of the call that brought it is
in the same transaction. A call stands in the ledger from its start, with its estimate, so that one whose end nobody
saw is known. Where two processes asked the same at once, the first reply to be stored is everyone's.
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


#: The outcome of a call that has begun; it stays where a kill kept its end from being seen.
STARTED = "started"


class Call(NamedTuple):
    """One line of the ledger: a call, and ``reply``, what went wrong, or ``started`` with an estimate."""

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
        unknown: More calls, whose end nobody saw: running now, or cut off by a kill.
        unknown_cost: What those may have cost, at the most by their estimates.
    """

    model: str
    calls: int
    replies: int
    tokens_in: int
    tokens_out: int
    cost: float
    seconds: float
    unknown: int = 0
    unknown_cost: float = 0.0


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

    def start(self, call: Call) -> int:
        """Write a call that is about to be made into the ledger, with its estimate; gives the number of its line."""
        with self.writing() as base:
            return _enter(base, call)

    def put(self, key: str, request: str, reply: Stored, call: Call, line: int | None = None) -> Stored:
        """Keep a reply and the call that brought it; on the disk when this returns.

        Args:
            key: What it is kept under.
            request: What was asked, in full.
            reply: What came.
            call: The call that brought it.
            line: The ledger's line of the call, from ``start``.

        Returns:
            The reply that is kept under this key: another process's, if it was first.
        """
        with self.writing() as base:
            values = (key, request, *reply, time.time())
            base.execute("INSERT OR IGNORE INTO replies VALUES (?,?,?,?,?,?,?,?,?)", values)
            _enter(base, call, line)
        return self.get(key) or reply

    def enter(self, call: Call, line: int | None = None) -> None:
        """Write a call that brought no reply into the ledger, on the line that it began."""
        with self.writing() as base:
            _enter(base, call, line)

    def ledger(self) -> list[LedgerRow]:
        """What was spent on each model, by name."""
        rows = self.rows(
            "SELECT model, sum(ended), sum(outcome = 'reply'), sum(ended * tokens_in), sum(ended * tokens_out), "
            "sum(ended * cost), sum(ended * seconds), sum(1 - ended), sum((1 - ended) * cost) "
            "FROM (SELECT *, outcome <> ? AS ended FROM calls) GROUP BY model ORDER BY model",
            (STARTED,),
        )
        return [LedgerRow(*row) for row in rows]

    def __len__(self) -> int:
        return int(self.rows("SELECT count(*) FROM replies")[0][0])


def _enter(base: sqlite3.Connection, call: Call, line: int | None = None) -> int:
    values = (line, time.time(), *call)
    return int(base.execute("INSERT OR REPLACE INTO calls VALUES (?,?,?,?,?,?,?,?,?,?)", values).lastrowid or 0)
