"""Diversity selection over items of any kind, the first of the stream being seeds. The rule itself is ``diversify``'s.

The seeds fill the index before anything is judged, as in the paper (5,000 of them), and are passed on; what follows is
passed on where it is not redundant. Memory holds the vectors of what was kept and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from suwen.curate import CurateError
from suwen.curate.diversify import QUERIES, SEEDS, Diversity, Encode, diversify

_T = TypeVar("_T")


@dataclass
class Selected:
    """What a selection came to: items that were seeds, items judged, and of these the kept ones."""

    seeds: int = 0
    judged: int = 0
    kept: int = 0


def select(
    items: Iterable[_T],
    text_of: Callable[[_T], str],
    encode: Encode,
    diversity: Diversity = QUERIES,
    *,
    seeds: int = SEEDS,
    count: Selected | None = None,
) -> Iterator[_T]:
    """Pass on the seeds and the items that are not redundant among them and what was kept.

    Args:
        items: Queries or documents, streamed.
        text_of: The text of one.
        encode: The encoder.
        diversity: When an item is redundant.
        seeds: How many of the first items are seeds; 0 judges every item.
        count: Is counted into as items pass.
    """
    if seeds < 0:
        raise CurateError(f"{seeds} seeds: give 0 or more")
    stream, selected = iter(items), count or Selected()
    first = list(islice(stream, seeds))
    selected.seeds = len(first)
    yield from first

    def counted() -> Iterator[_T]:
        for item in stream:
            selected.judged += 1
            yield item

    for kept in diversify(counted(), encode, first, diversity, text_of=text_of):
        selected.kept += 1
        yield kept.item
