"""Diversity selection (CARE section 4.1, Table 14): a candidate that has too many near neighbours already is dropped.

Whether what is left is relevant to anything is not asked here; that is the jury's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from suwen.choices import SEEDS as SEEDS
from suwen.curate import CurateError

#: Turns texts into vectors, one row each; they are normalised here.
Encode = Callable[[list[str]], npt.NDArray[Any]]
_Vectors = npt.NDArray[np.float32]
_T = TypeVar("_T")


class Diversity(NamedTuple):
    """When a candidate is redundant: more than ``most`` of its ``k`` nearest kept texts are nearer than ``threshold``.

    The paper's names are k, t and n.
    """

    k: int = 5
    threshold: float = 0.85
    most: int = 1

    def check(self) -> None:
        """Refuse settings that make no sense."""
        if not 0 <= self.most < self.k:
            raise CurateError(f"most {self.most} of k {self.k}: with 0 <= most < k a candidate can be dropped")
        if not -1 <= self.threshold <= 1:
            raise CurateError(f"threshold {self.threshold}: it is a cosine, from -1 to 1")


#: Table 14.
QUERIES = Diversity(threshold=0.85)
DOCUMENTS = Diversity(threshold=0.78)


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
    batch: int = 256,
) -> Iterator[_T]:
    """Pass on the first items, the seeds, and then those that are not redundant among them and what was kept.

    Items are judged in order, one after the other, whatever the batch: one batch is encoded and looked up at once and
    its own members are then compared with each other. Memory holds the vectors of the seeds and of the kept items
    (4 bytes a dimension) and one batch.

    Args:
        items: Queries or documents, streamed.
        text_of: The text of one.
        encode: The encoder. The paper's is gte-multilingual-base.
        diversity: :data:`QUERIES` or :data:`DOCUMENTS`, or settings of one's own.
        seeds: How many of the first items are seeds; 0 judges every item.
        count: Is counted into as items pass.
        batch: Texts encoded at once.
    """
    diversity.check()
    if seeds < 0 or batch < 1:
        raise CurateError(f"{seeds} seeds in batches of {batch}: give 0 or more seeds, and batches of at least 1")
    stream, selected, index = iter(items), count or Selected(), None
    while part := list(islice(stream, min(batch, seeds - selected.seeds))):
        selected.seeds += len(part)
        index = _added(index, _vectors(encode, map(text_of, part)))
        yield from part
    while part := list(islice(stream, batch)):
        vectors = _vectors(encode, map(text_of, part))
        chosen = _chosen(vectors, _over(index, vectors, diversity), diversity)
        selected.judged += len(part)
        selected.kept += len(chosen)
        index = _added(index, vectors[chosen])
        yield from (part[place] for place in chosen)


def _chosen(vectors: _Vectors, counts: list[int], diversity: Diversity) -> list[int]:
    """The places of a batch that are kept, given how many are over the threshold outside it.

    Of the k nearest, as many are over the threshold as there are at all, but k at most: so the two counts simply add.
    """
    near = vectors @ vectors.T > diversity.threshold
    chosen: list[int] = []
    for place, outside in enumerate(counts):
        if outside + int(near[place, chosen].sum()) <= diversity.most:
            chosen.append(place)
    return chosen


def _over(index: Any, vectors: _Vectors, diversity: Diversity) -> list[int]:
    """How many of the nearest in the index are over the threshold, for each vector."""
    if index is None or not index.ntotal:
        return [0] * len(vectors)
    if index.d != vectors.shape[1]:
        raise CurateError(f"vectors of {index.d}, then of {vectors.shape[1]} dimensions; use one encoder throughout")
    scores, _ = index.search(vectors, min(diversity.k, index.ntotal))
    return [int(count) for count in (scores > diversity.threshold).sum(axis=1)]


def _added(index: Any, vectors: _Vectors) -> Any:
    import faiss

    if index is None:
        index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def _vectors(encode: Encode, texts: Iterable[str]) -> _Vectors:
    """The vectors of texts, normalised."""
    whole = list(texts)
    given = np.asarray(encode(whole), np.float32)
    if given.ndim != 2 or len(given) != len(whole):
        raise CurateError(
            f"{len(whole)} texts became an array of shape {given.shape}; encode must give one row per text"
        )
    length = np.linalg.norm(given, axis=1, keepdims=True)
    if not np.isfinite(length).all() or not length.all():
        raise CurateError("a text became a vector of length zero or not finite; leave empty texts out")
    return np.ascontiguousarray(given / length)
