"""The store of votes, in one SQLite file: unique by query, passage, judge and round. Asks nobody, decides nothing.

The votes of a batch are written in one transaction that is on the disk when ``add`` returns. Vote and judge stay
together: a judge's name stands for one model and one prompt, and votes of another kind under it are refused.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Self

from suwen.jury.records import Judge, JuryProblem, Vote

_VERSION = 1
_APPLICATION = 0x5357564F
_BUSY_SECONDS = 60.0
_TABLES = """
CREATE TABLE judges (
    name TEXT PRIMARY KEY, model TEXT NOT NULL, served TEXT NOT NULL, prompt TEXT NOT NULL, fingerprint TEXT NOT NULL,
    enrolled INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE votes (
    query_id TEXT NOT NULL, passage_id TEXT NOT NULL, judge TEXT NOT NULL, round INTEGER NOT NULL, grade TEXT,
    abstained TEXT, reason TEXT NOT NULL, model TEXT NOT NULL, prompt TEXT NOT NULL, fingerprint TEXT NOT NULL,
    reply_key TEXT NOT NULL, position INTEGER NOT NULL, batch INTEGER NOT NULL, cut INTEGER NOT NULL,
    digest TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (query_id, passage_id, judge, round), CHECK ((grade IS NULL) <> (abstained IS NULL))
) WITHOUT ROWID;
"""


class VotesProblem(JuryProblem):
    """The file of votes cannot be used as asked."""


class Votes:
    """The file of votes; made where there is none, unless it is only to be read."""

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        if not create and not self.path.is_file():
            raise VotesProblem(f"there is no {self.path}: let judges vote first, with `suwen jury judge`")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=FULL")
            self._set_up()
        except (sqlite3.DatabaseError, OSError) as problem:
            raise VotesProblem(f"{self.path} cannot be used for votes ({problem}): name another file") from None

    def _set_up(self) -> None:
        with self._writing():
            (application,) = self._base.execute("PRAGMA application_id").fetchone()
            (tables,) = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not application and not tables:
                for statement in _TABLES.split(";\n"):
                    self._base.execute(statement)
                self._base.execute(f"PRAGMA application_id={_APPLICATION}")
                self._base.execute(f"PRAGMA user_version={_VERSION}")
            elif application != _APPLICATION:
                raise VotesProblem(f"{self.path} is a database of something else: name another file for the votes")
            (version,) = self._base.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise VotesProblem(f"{self.path} was written by a newer suwen (form {version}): upgrade, or name another")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Nothing is lost without it."""
        with self._lock:
            self._base.close()

    def enrol(self, judge: Judge, served: str, prompt: str, fingerprint: str) -> None:
        """Note who votes under a judge's name; another model or prompt under the same name is an error."""
        meant = (judge.model, served, prompt, fingerprint)
        with self._writing():
            self._base.execute(
                "INSERT OR IGNORE INTO judges SELECT ?, ?, ?, ?, ?, count(*) FROM judges", (judge.name, *meant)
            )
            row = self._base.execute(
                "SELECT model, served, prompt, fingerprint FROM judges WHERE name = ?", (judge.name,)
            ).fetchone()
        if tuple(row) != meant:
            told = " and ".join(f"{old} (now {new})" for old, new in zip(row, meant, strict=True) if old != new)
            raise VotesProblem(
                f"judge {judge.name!r} has voted in {self.path} as {told}: give the changed judge another name "
                f"(NAME={judge.model}:{judge.language}), or start another file of votes"
            )

    def judges(self) -> list[str]:
        """The names of all judges, in the order in which they were enrolled."""
        with self._lock:
            return [name for (name,) in self._base.execute("SELECT name FROM judges ORDER BY enrolled, name")]

    def roll(self) -> dict[str, dict[str, str]]:
        """Each judge's model and prompt."""
        with self._lock:
            rows = self._base.execute(
                "SELECT name, model, served, prompt FROM judges ORDER BY enrolled, name"
            ).fetchall()
        return {name: {"model": model, "served": served, "prompt": prompt} for name, model, served, prompt in rows}

    def voted(self, query_id: str, judge: str, round_: int = 0) -> set[str]:
        """The passages of a query that a judge has voted on."""
        with self._lock:
            rows = self._base.execute(
                "SELECT passage_id FROM votes WHERE query_id = ? AND judge = ? AND round = ?", (query_id, judge, round_)
            ).fetchall()
        return {id_ for (id_,) in rows}

    def add(self, votes: Iterable[Vote]) -> int:
        """Keep votes, all or none; on the disk when this returns. A vote that is there already stays as it is.

        Returns:
            How many were new.
        """
        with self._writing():
            before = self._base.total_changes
            marks = ",".join("?" * len(Vote._fields))
            # Not OR IGNORE: that would drop a vote that breaks a rule without a word.
            self._base.executemany(
                f"INSERT INTO votes VALUES ({marks}) ON CONFLICT (query_id, passage_id, judge, round) DO NOTHING", votes
            )
            return self._base.total_changes - before

    def __iter__(self) -> Iterator[Vote]:
        """Every vote, by query, passage, judge and round."""
        yield from self._read("", ())

    def of(self, query_id: str) -> list[Vote]:
        """The votes on one query's passages."""
        return list(self._read("WHERE query_id = ?", (query_id,)))

    def pairs(self) -> Iterator[tuple[tuple[str, str], tuple[Vote, ...]]]:
        """Each pair of query and passage with its votes, one at a time."""
        for pair, votes in groupby(self, key=lambda vote: (vote.query_id, vote.passage_id)):
            yield pair, tuple(votes)

    def _read(self, where: str, values: tuple[str, ...]) -> Iterator[Vote]:
        # A connection of its own: the stream stays one moment of the file while votes are added.
        reader = sqlite3.connect(self.path, timeout=_BUSY_SECONDS)
        try:
            columns = ", ".join(Vote._fields)
            for row in reader.execute(
                f"SELECT {columns} FROM votes {where} ORDER BY query_id, passage_id, judge, round", values
            ):
                vote = Vote(*row)
                yield vote._replace(cut=bool(vote.cut))
        finally:
            reader.close()

    def __len__(self) -> int:
        with self._lock:
            return int(self._base.execute("SELECT count(*) FROM votes").fetchone()[0])
