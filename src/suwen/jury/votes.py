"""The store of votes, in one SQLite file: unique by query, passage, judge and round. Asks nobody, decides nothing.

The votes of a batch are written in one transaction that is on the disk when ``add`` returns. Vote and judge stay
together: a judge's name stands for one model and one prompt, and votes of another kind under it are refused. A vote
that another takes the place of, since the text has changed or an abstention was asked about again, is kept under a
round below 0, which nothing else has: -1 for the first one of round 0, -2 of round 1, -3 for the second one of round 0.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from suwen.jury.verdicts import Judge, JuryProblem, Vote, known_abstention
from suwen.sqlite_file import SqliteFile

_COLUMNS = ", ".join(Vote._fields)
#: The rounds a vote may be of.
_ROUNDS = 2
_SAME_PAIR = "query_id = ? AND passage_id = ? AND judge = ?"
#: Of a superseded vote: which round it was of.
_WAS_ROUND = f"round < 0 AND (-round - 1) % {_ROUNDS} = ?"


class VotesProblem(JuryProblem):
    """The file of votes cannot be used as asked."""


class Votes(SqliteFile):
    """The file of votes; made where there is none, unless it is only to be read."""

    holds = "votes"
    made_by = "let judges vote first, with `suwen jury judge`"
    problem = VotesProblem
    application, version = 0x5357564F, 1
    tables = (
        """CREATE TABLE IF NOT EXISTS judges (
    name TEXT PRIMARY KEY, model TEXT NOT NULL, served TEXT NOT NULL, prompt TEXT NOT NULL, fingerprint TEXT NOT NULL,
    enrolled INTEGER NOT NULL
) WITHOUT ROWID""",
        """CREATE TABLE IF NOT EXISTS votes (
    query_id TEXT NOT NULL, passage_id TEXT NOT NULL, judge TEXT NOT NULL, round INTEGER NOT NULL, grade TEXT,
    abstained TEXT, reason TEXT NOT NULL, model TEXT NOT NULL, prompt TEXT NOT NULL, fingerprint TEXT NOT NULL,
    reply_key TEXT NOT NULL, position INTEGER NOT NULL, batch INTEGER NOT NULL, cut INTEGER NOT NULL,
    digest TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (query_id, passage_id, judge, round), CHECK ((grade IS NULL) <> (abstained IS NULL))
) WITHOUT ROWID""",
    )

    def enrol(self, judge: Judge, served: str, prompt: str, fingerprint: str) -> None:
        """Note who votes under a judge's name; another model or prompt under the same name is an error."""
        meant = (judge.model, served, prompt, fingerprint)
        with self.writing() as base:
            base.execute(
                "INSERT OR IGNORE INTO judges SELECT ?, ?, ?, ?, ?, count(*) FROM judges", (judge.name, *meant)
            )
        (row,) = self.rows("SELECT model, served, prompt, fingerprint FROM judges WHERE name = ?", (judge.name,))
        if row != meant:
            change = " and ".join(f"{old} (now {new})" for old, new in zip(row, meant, strict=True) if old != new)
            raise VotesProblem(
                f"judge {judge.name!r} has voted in {self.path} as {change}: give the changed judge another name "
                f"(NAME={judge.model}:{judge.language}), or start another file of votes"
            )

    def judges(self) -> list[str]:
        """The names of all judges, in the order in which they were enrolled."""
        return list(self.roll())

    def roll(self) -> dict[str, dict[str, str]]:
        """Each judge's model and prompt, in the order in which they were enrolled."""
        rows = self.rows("SELECT name, model, served, prompt FROM judges ORDER BY enrolled, name")
        return {name: {"model": model, "served": served, "prompt": prompt} for name, model, served, prompt in rows}

    def of(self, query_id: str, judge: str, round_: int = 0) -> dict[str, Vote]:
        """The votes of a judge on the passages of a query, by passage."""
        where = "query_id = ? AND judge = ? AND round = ?"
        rows = self.rows(f"SELECT {_COLUMNS} FROM votes WHERE {where}", (query_id, judge, round_))
        return {vote.passage_id: vote for vote in map(_vote, rows)}

    def asked_again(self, query_id: str, judge: str, round_: int = 0) -> Counter[str]:
        """How often a judge was asked again about each passage of a query on which it had abstained."""
        question = (
            f"SELECT passage_id, count(*) FROM votes WHERE query_id = ? AND judge = ? AND {_WAS_ROUND} "
            "AND abstained IS NOT NULL GROUP BY passage_id"
        )
        return Counter(dict(self.rows(question, (query_id, judge, round_))))

    def abstained(self) -> frozenset[tuple[str, str, str, int]]:
        """The query, passage, judge and round of every abstention."""
        question = "SELECT query_id, passage_id, judge, round FROM votes WHERE abstained IS NOT NULL AND round >= 0"
        return frozenset((query, passage, judge, round_) for query, passage, judge, round_ in self.rows(question))

    def superseded(self) -> list[Vote]:
        """The votes that others have taken the place of, with the rounds they had, oldest first."""
        rows = self.rows(f"SELECT {_COLUMNS} FROM votes WHERE round < 0 ORDER BY at, round DESC")
        return [vote._replace(round=(-vote.round - 1) % _ROUNDS) for vote in map(_vote, rows)]

    def add(self, votes: Iterable[Vote]) -> int:
        """Keep votes, all or none; on the disk when this returns. A vote that is there already stays as it is.

        Returns:
            How many were new.
        """
        with self.writing() as base:
            return _insert(base, votes)

    def replace(self, votes: Iterable[Vote]) -> int:
        """Keep votes like ``add``, in the place of those that are there, which are kept as superseded."""
        cast = list(votes)
        with self.writing() as base:
            for vote in cast:
                earlier = f"SELECT count(*) FROM votes WHERE {_SAME_PAIR} AND {_WAS_ROUND}"
                (count,) = base.execute(earlier, vote[:4]).fetchone()
                aside = -(_ROUNDS * count + vote.round + 1)
                base.execute(f"UPDATE votes SET round = ? WHERE {_SAME_PAIR} AND round = ?", (aside, *vote[:4]))
            return _insert(base, cast)

    def __iter__(self) -> Iterator[Vote]:
        """Every vote, by query, passage, judge and round; one moment of the file while votes are added."""
        question = f"SELECT {_COLUMNS} FROM votes WHERE round >= 0 ORDER BY query_id, passage_id, judge, round"
        return map(_vote, self.stream(question))

    def __len__(self) -> int:
        return int(self.rows("SELECT count(*) FROM votes WHERE round >= 0")[0][0])


def by_pair(votes: Iterable[Vote]) -> Iterator[tuple[tuple[str, str], tuple[Vote, ...]]]:
    """Each pair of query and passage with its votes, one at a time; votes come in the order of a store."""
    for pair, cast in groupby(votes, key=lambda vote: (vote.query_id, vote.passage_id)):
        yield pair, tuple(cast)


def _vote(row: Sequence[Any]) -> Vote:
    vote = Vote(*row)
    return known_abstention(vote._replace(cut=bool(vote.cut)))


def _insert(base: sqlite3.Connection, votes: Iterable[Vote]) -> int:
    before, marks = base.total_changes, ",".join("?" * len(Vote._fields))
    # Not OR IGNORE: that would drop a vote that breaks a rule without a word.
    base.executemany(
        f"INSERT INTO votes VALUES ({marks}) ON CONFLICT (query_id, passage_id, judge, round) DO NOTHING", votes
    )
    return base.total_changes - before
