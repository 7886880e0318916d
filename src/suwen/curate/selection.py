"""Diversity selection over items of any kind, the first of the stream being seeds. The rule itself is ``diversify``'s.

The seeds fill the index before anything is judged, as in the paper (5,000 of them), and are passed on; what follows is
passed on where it is not redundant. Memory holds the vectors of what was kept and one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from suwen.corpora.readers import read_documents
from suwen.curate.asking import CurateError
from suwen.curate.diversify import QUERIES, SEEDS, Diversity, Encode, diversify
from suwen.curate.verify import read_queries
from suwen.durable import write_lines
from suwen.encoders.query import Encoder

_T = TypeVar("_T")


@dataclass
class Selected:
    """What a selection came to: items that were seeds, items judged, and of these the kept ones."""

    seeds: int = 0
    judged: int = 0
    kept: int = 0


def select_file(
    source: Path,
    to: Path,
    kind: Literal["queries", "documents"],
    encoder: Encoder,
    diversity: Diversity = QUERIES,
    *,
    seeds: int = SEEDS,
) -> Selected:
    """Choose diverse queries or documents of a source, as :func:`select` does, into a file of JSON lines."""
    count = Selected()
    lines: Iterator[dict[str, Any]]
    if kind == "queries":
        rows = select(
            read_queries(source), lambda row: row.query, encoder.encode_queries, diversity, seeds=seeds, count=count
        )
        lines = ({name: value for name, value in row._asdict().items() if value} for row in rows)
    else:
        documents = select(
            read_documents(source),
            lambda document: f"{document.title}\n{document.text}",
            encoder.encode_documents,
            diversity,
            seeds=seeds,
            count=count,
        )
        lines = (
            {"_id": one.id, "title": one.title, "text": one.text, "metadata": dict(one.metadata)} for one in documents
        )
    write_lines(to, lines)
    return count


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
