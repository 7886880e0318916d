"""From votes to verdicts: unanimous or by majority, with the grade cut. Asks nobody and measures no agreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from suwen.jury.current_votes import CurrentVotes, checked_jury
from suwen.jury.pooling import read_pool
from suwen.jury.verdicts import GRADES, Grade, JuryProblem, Label, Verdict, Vote
from suwen.jury.votes import Votes, by_pair

Mode = Literal["unanimous", "majority"]


@dataclass(frozen=True)
class Rule:
    """How votes become a label.

    Attributes:
        mode: ``unanimous``: a label only where all judges are on one side. ``majority``: where more than half of the
            whole jury is, so that an abstention helps neither side.
        worst: The worst grade that counts as positive.
    """

    mode: Mode = "unanimous"
    worst: Grade = "A"

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise JuryProblem(f"the mode {self.mode!r} is unknown: use {' or '.join(get_args(Mode))}")
        if self.worst not in GRADES[:-1]:
            raise JuryProblem(f"the cut {self.worst!r} leaves no negatives or is no grade: use one of S, A, B, C")

    @property
    def positive(self) -> frozenset[str]:
        """The grades that count as positive.

        >>> sorted(Rule(worst="A").positive)
        ['A', 'S']
        """
        return frozenset(GRADES[: GRADES.index(self.worst) + 1])

    def __str__(self) -> str:
        return f"{self.mode}, {' and '.join(GRADES[: GRADES.index(self.worst) + 1])} positive"


def decide(grades: Sequence[Grade | None], rule: Rule) -> Label:
    """The label of one pair.

    Args:
        grades: One for each judge of the jury; None for an abstention, or a vote that was never given.
        rule: How they are counted.
    """
    positive = sum(grade in rule.positive for grade in grades if grade is not None)
    negative = sum(grade not in rule.positive for grade in grades if grade is not None)
    needed = len(grades) if rule.mode == "unanimous" else len(grades) // 2 + 1
    if not grades:
        return "undecided"
    return "positive" if positive >= needed else "negative" if negative >= needed else "undecided"


def consensus(
    votes: Votes | CurrentVotes, rule: Rule | None = None, jury: Sequence[str] | None = None
) -> Iterator[Verdict]:
    """The verdict on every pair that has a vote, one at a time, by query and passage.

    Args:
        votes: The store, or what of it counts.
        rule: How votes become a label.
        jury: The judges that count; all that are enrolled unless given.
    """
    rule = rule or Rule()
    names = checked_jury(votes, jury)
    for (query_id, passage_id), cast in by_pair(votes):
        counted = tuple(vote for vote in cast if vote.judge in names)
        if not counted:
            continue
        grades = {vote.judge: vote.grade for vote in counted if vote.round == 0}
        label = decide([grades.get(name) for name in names], rule)
        event = {"by": "jury", "label": label, "rule": str(rule), "judges": names}
        yield Verdict(query_id, passage_id, label, counted, (event,))


@dataclass(frozen=True)
class Funnel:
    """How pairs fare, from the pool to the labels; the last five add up to ``pooled``.

    Attributes:
        queries: Queries in the pool.
        pooled: Pairs in the pool.
        judged: Pairs every judge of the jury has voted on, abstentions counted.
        positive: Pairs labelled positive.
        negative: Pairs labelled negative.
        split: Undecided: the judges disagree.
        abstained: Undecided: a judge abstained.
        unjudged: Undecided: a vote is missing.
        with_positive: Queries with at least one positive.
    """

    queries: int = 0
    pooled: int = 0
    judged: int = 0
    positive: int = 0
    negative: int = 0
    split: int = 0
    abstained: int = 0
    unjudged: int = 0
    with_positive: int = 0

    @property
    def undecided(self) -> int:
        """All undecided pairs."""
        return self.split + self.abstained + self.unjudged


def funnel(pool: Path, verdicts: Iterable[Verdict], jury: Sequence[str]) -> Funnel:
    """Count what became of the pairs of a pool. Verdicts on pairs outside the pool are not counted."""
    known = {(one.query_id, one.passage_id): (one.label, _kind(one.main, jury)) for one in verdicts}
    counts: Counter[str] = Counter()
    queries = pooled = judged = with_positive = 0
    for query in read_pool(pool):
        queries += 1
        fates = [known.get((query.id, one.passage_id), ("undecided", "unjudged")) for one in query.candidates]
        pooled += len(fates)
        judged += sum(kind != "unjudged" for _, kind in fates)
        with_positive += any(label == "positive" for label, _ in fates)
        counts.update(kind if label == "undecided" else label for label, kind in fates)
    return Funnel(queries, pooled, judged, with_positive=with_positive, **counts)


def _kind(votes: Sequence[Vote], jury: Sequence[str]) -> str:
    cast = {vote.judge: vote for vote in votes}
    if any(name not in cast for name in jury):
        return "unjudged"
    return "abstained" if any(cast[name].grade is None for name in jury) else "split"
