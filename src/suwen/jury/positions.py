"""Position effects: what a passage's place in the batch does to its grade. Measures votes; asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from suwen.jury.agreement import cohen_kappa
from suwen.jury.verdicts import POSITIVE, VALUES, Grade, Vote


class PositionEffect(NamedTuple):
    """What order does to one judge.

    Attributes:
        judge: Its name.
        twice: Pairs it graded in both orders.
        same_grade: The share with the same grade both times.
        same_side: The share on the same side of the cut both times.
        kappa: Cohen's kappa of the two orders, on the two sides.
        first_half: The mean grade, over both orders, in the first half of a batch.
        second_half: The same in the second half; what both orders have in common cancels out.
        means: By position from 1: the mean grade of all votes there, and their number.
    """

    judge: str
    twice: int
    same_grade: float
    same_side: float
    kappa: float
    first_half: float
    second_half: float
    means: dict[int, tuple[float, int]]


def position_effects(
    votes: Iterable[Vote], judges: Sequence[str], positive: frozenset[str] = POSITIVE
) -> list[PositionEffect]:
    """Measure, for each judge, how far two orders agree and how grades change with the position.

    Means by position are over random orders, so that with many votes a slope is the judge's and not the passages'.
    """
    by_judge: dict[str, _Gathered] = {name: _Gathered() for name in judges}
    for vote in votes:
        if vote.grade is not None and vote.judge in by_judge:
            by_judge[vote.judge].take(vote)
    return [gathered.effect(name, positive) for name, gathered in by_judge.items()]


class _Gathered:
    """One judge's votes, added up."""

    def __init__(self) -> None:
        self._places: dict[int, list[int]] = {}
        self._once: dict[tuple[str, str], Vote] = {}
        self._twice: list[tuple[Grade, Grade]] = []
        self._halves: tuple[list[int], list[int]] = ([], [])

    def take(self, vote: Vote) -> None:
        assert vote.grade is not None
        self._places.setdefault(vote.position, []).append(VALUES[vote.grade])
        other = self._once.pop((vote.query_id, vote.passage_id), None)
        if other is None:
            self._once[vote.query_id, vote.passage_id] = vote
            return
        assert other.grade is not None
        self._twice.append((other.grade, vote.grade))
        for one in (other, vote):
            middle = (one.batch + 1) / 2
            if one.grade is not None and one.position != middle:
                self._halves[one.position > middle].append(VALUES[one.grade])

    def effect(self, judge: str, positive: frozenset[str]) -> PositionEffect:
        same = [left == right for left, right in self._twice]
        left, right = ([pair[place] in positive for pair in self._twice] for place in (0, 1))
        return PositionEffect(
            judge,
            len(self._twice),
            _mean(same),
            _mean([a == b for a, b in zip(left, right, strict=True)]),
            cohen_kappa(left, right),
            _mean(self._halves[0]),
            _mean(self._halves[1]),
            {place: (_mean(values), len(values)) for place, values in sorted(self._places.items())},
        )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
