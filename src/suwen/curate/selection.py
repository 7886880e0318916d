"""Diversity selection over items of any kind, the first of the stream being seeds. The rule itself is ``diversify``'s.

The seeds fill the index before anything is judged, as in the paper (5,000 of them), and are passed on; what follows is
passed on where it is not redundant. Memory holds the vectors of what was kept and one batch.
"""

from __future__ import annotations

from collections import deque
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
    stream, told = iter(items), count or Selected()
    first = list(islice(stream, seeds))
    told.seeds = len(first)
    yield from first
    pending: deque[_T] = deque()

    def texts() -> Iterator[str]:
        for item in stream:
            told.judged += 1
            pending.append(item)
            yield text_of(item)

    for kept in diversify(texts(), encode, map(text_of, first), diversity):
        # Of two equal texts the earlier is kept if any, so the first pending one of this text is the one meant.
        while text_of(item := pending.popleft()) != kept.text:
            continue
        told.kept += 1
        yield item
