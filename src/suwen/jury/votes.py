"""The store of votes, in one SQLite file: unique by query, passage, judge and round. Asks nobody, decides nothing.

The votes of a batch are written in one transaction that is on the disk when ``add`` returns. Vote and judge stay
together: a judge's name stands for one model and one prompt, and votes of another kind under it are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from suwen.jury.verdicts import Judge, JuryProblem, Vote
from suwen.sqlite_file import SqliteFile


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

    def voted(self, query_id: str, judge: str, round_: int = 0) -> set[str]:
        """The passages of a query that a judge has voted on."""
        where = "query_id = ? AND judge = ? AND round = ?"
        return {id_ for (id_,) in self.rows(f"SELECT passage_id FROM votes WHERE {where}", (query_id, judge, round_))}

    def add(self, votes: Iterable[Vote]) -> int:
        """Keep votes, all or none; on the disk when this returns. A vote that is there already stays as it is.

        Returns:
            How many were new.
        """
        with self.writing() as base:
            before = base.total_changes
            marks = ",".join("?" * len(Vote._fields))
            # Not OR IGNORE: that would drop a vote that breaks a rule without a word.
            base.executemany(
                f"INSERT INTO votes VALUES ({marks}) ON CONFLICT (query_id, passage_id, judge, round) DO NOTHING", votes
            )
            return base.total_changes - before

    def __iter__(self) -> Iterator[Vote]:
        """Every vote, by query, passage, judge and round; one moment of the file while votes are added."""
        columns = ", ".join(Vote._fields)
        for row in self.stream(f"SELECT {columns} FROM votes ORDER BY query_id, passage_id, judge, round"):
            vote = Vote(*row)
            yield vote._replace(cut=bool(vote.cut))

    def pairs(self) -> Iterator[tuple[tuple[str, str], tuple[Vote, ...]]]:
        """Each pair of query and passage with its votes, one at a time."""
        for pair, votes in groupby(self, key=lambda vote: (vote.query_id, vote.passage_id)):
            yield pair, tuple(votes)

    def __len__(self) -> int:
        return int(self.rows("SELECT count(*) FROM votes")[0][0])
