"""Dividing queries into train and test so that nothing of the test is trained on. Reads and writes no files."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.near_duplicates import Near, groups


class Split(NamedTuple):
    """Queries on either side, by id, in the order they came.

    ``dropped`` hold a whole test query inside a longer one, so they are on neither side; ``groups`` is how many groups
    of near-duplicates there were.
    """

    train: list[str]
    test: list[str]
    dropped: list[str]
    groups: int


def split_queries(
    texts: Mapping[str, str],
    train: float,
    *,
    seed: int = 0,
    near_duplicate: float = 0.7,
    links: Mapping[str, str] | None = None,
) -> Split:
    """Divide queries; near-duplicates, and what is linked, stay together.

    Args:
        texts: The queries by id.
        train: The share that goes to training, from 0 up to, but not with, 1.
        seed: Of the draw.
        near_duplicate: See :class:`suwen.curate.near_duplicates.Near`.
        links: Queries of one value stay together too, such as those about one dictionary entry.
    """
    if not 0 <= train < 1:
        raise CurateError(f"a share of {train} for training: give 0 up to, but not with, 1")
    together = groups(texts, near_duplicate, links)
    if not train:
        return Split([], list(texts), [], len(together))
    random.Random(f"{seed}:split").shuffle(together)
    wanted, chosen = round(train * len(texts)), set[str]()
    for group in together:
        if len(chosen) + len(group) <= wanted:
            chosen.update(group)
    test = [id_ for id_ in texts if id_ not in chosen]
    held_out = HeldOut(texts[id_] for id_ in test)
    dropped = [id_ for id_ in texts if id_ in chosen and held_out.hit(texts[id_]) is not None]
    kept = [id_ for id_ in texts if id_ in chosen and id_ not in set(dropped)]
    if not kept:
        raise CurateError(
            f"nothing is left to train on: of {len(texts)} queries, {len(together)} groups of near-duplicates, no "
            "group fits the share; ask for a larger one, or raise the near-duplicate threshold"
        )
    return Split(kept, test, dropped, len(together))


class Guard:
    """Keeps passages out of training that the test asks for: its positives and what is nearly the same as one."""

    def __init__(self, queries: Sequence[str], positives: Mapping[str, str], near_duplicate: float = 0.7) -> None:
        """Guard a test.

        Args:
            queries: The test's queries.
            positives: The test's positive passages by id.
            near_duplicate: See :class:`suwen.curate.near_duplicates.Near`.
        """
        self._ids, self._queries, self._near = set(positives), HeldOut(queries), Near(near_duplicate)
        for id_, text in positives.items():
            self._near.add(id_, text)

    def leaks(self, id_: str, text: str) -> bool:
        """Whether a passage must not be trained on."""
        return id_ in self._ids or self._queries.hit(text) is not None or bool(self._near.find(text))


def refuse_duplicates(texts: Mapping[str, str]) -> None:
    """Raise where two queries are the same but for spelling and marks: their labels would count twice."""
    seen: dict[str, str] = {}
    for id_, text in texts.items():
        other = seen.setdefault(comparable(text), id_)
        if other != id_:
            raise CurateError(f"the queries {other!r} and {id_!r} are the same ({text[:40]!r}): keep one of them")
