"""Which votes and judges count: votes on the texts as they are now, and judges who have finished. Decides no label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from suwen.jury.pooling import read_pool
from suwen.jury.texts import Texts
from suwen.jury.verdicts import JuryProblem, Vote, is_on
from suwen.jury.votes import Votes


@dataclass(frozen=True)
class LeftOut:
    """What a consensus did not count.

    Attributes:
        stale: Votes on a query or a passage whose text has changed since.
        outside: Votes on pairs that are not in the pool.
        judges: Judges who have not finished, with how many pairs of the pool they have voted on.
        pairs: Pairs in the pool.
        include: Whether unfinished judges were counted all the same.
    """

    stale: int = 0
    outside: int = 0
    judges: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    include: bool = False

    def lines(self) -> list[str]:
        """What was left out, in words; nothing where that is nothing."""
        said = []
        if self.stale:
            said.append(
                f"{self.stale:,} votes were left out: the texts have changed since; judge again to have votes on them"
            )
        if self.outside:
            said.append(f"{self.outside:,} votes were left out: their pairs are not in the pool")
        for judge, voted in self.judges.items():
            done = f"{judge} has voted on {voted:,} of {self.pairs:,} pairs"
            end = (
                "was counted: pairs it has not voted on can have no unanimous label" if self.include else "was left out"
            )
            said.append(f"{done} and {end}" + ("" if self.include else " (--include-incomplete counts it)"))
        return said


class CurrentVotes:
    """The votes of a store that were cast on the texts of a pool as they are; to be read like the store."""

    def __init__(self, votes: Votes, pool: Path, texts: Texts) -> None:
        """Look through all votes once.

        Args:
            votes: The store.
            pool: The pool, with the queries' texts.
            texts: The passages' texts.
        """
        self._votes, self.path, self.judges, self.roll = votes, votes.path, votes.judges, votes.roll
        self._pool = {
            pooled.id: (pooled.text, {one.passage_id for one in pooled.candidates}) for pooled in read_pool(pool)
        }
        self.pairs_pooled = sum(len(ids) for _, ids in self._pool.values())
        self.outside = 0
        self._stale: set[tuple[str, str, str, int]] = set()
        #: How many pairs of the pool each judge has voted on, whatever the texts were then.
        self.voted: Counter[str] = Counter()
        for query_id, cast in groupby(votes, key=lambda vote: vote.query_id):
            self._look(query_id, list(cast), texts)

    def _look(self, query_id: str, cast: Sequence[Vote], texts: Texts) -> None:
        query, pooled = self._pool.get(query_id, ("", set[str]()))
        here = [vote for vote in cast if vote.passage_id in pooled]
        self.outside += len(cast) - len(here)
        known = texts.get(list({vote.passage_id for vote in here}))
        for vote in here:
            self.voted[vote.judge] += vote.round == 0
            if not is_on(vote, query, known[vote.passage_id]):
                self._stale.add((vote.query_id, vote.passage_id, vote.judge, vote.round))

    def __iter__(self) -> Iterator[Vote]:
        """Every vote that counts, in the order of the store."""
        for vote in self._votes:
            pooled = self._pool.get(vote.query_id, ("", ()))[1]
            if vote.passage_id in pooled and vote[:4] not in self._stale:
                yield vote

    def jury(self, named: Sequence[str] | None = None, *, include: bool = False) -> tuple[list[str], LeftOut]:
        """The judges that count and what is left out.

        A judge who has not voted on every pair of the pool would leave pairs undecided that all others agree on, so
        only those who have finished count.

        Args:
            named: Only these; one of them that has not finished is an error.
            include: Count judges who have not finished, too.
        """
        names = checked_jury(self, named)
        unfinished = {name: self.voted[name] for name in names if self.voted[name] < self.pairs_pooled}
        finished = [name for name in names if include or name not in unfinished]
        if unfinished and not include and (named or not finished):
            said = ", ".join(f"{name} {voted:,}" for name, voted in unfinished.items())
            raise JuryProblem(
                f"of {self.pairs_pooled:,} pairs in the pool {said} have been voted on: run `suwen jury judge` again "
                "until the judges have finished, or count them as they are with --include-incomplete"
            )
        return finished, LeftOut(len(self._stale), self.outside, unfinished, self.pairs_pooled, include)


def checked_jury(votes: Votes | CurrentVotes, jury: Sequence[str] | None) -> list[str]:
    """The judges that count, all of whom must be enrolled."""
    enrolled = votes.judges()
    if not enrolled:
        raise JuryProblem(f"no judge has voted in {votes.path}: run `suwen jury judge` first")
    if unknown := [name for name in jury or () if name not in enrolled]:
        raise JuryProblem(f"{unknown[0]!r} has not voted: the judges are {', '.join(enrolled)}")
    return list(jury or enrolled)
