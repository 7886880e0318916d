"""Diversity selection (CARE section 4.1, Table 14): a candidate that has too many near neighbours already is dropped.

Whether what is left is relevant to anything is not asked here; that is the jury's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from suwen.errors import SuwenError

#: The paper seeds its index with so many samples.
SEEDS = 5000
#: Turns texts into vectors, one row each; they are normalised here.
Encode = Callable[[list[str]], npt.NDArray[Any]]
_Vectors = npt.NDArray[np.float32]
_T = TypeVar("_T")


class DiversityError(SuwenError):
    """Settings under which nothing would be dropped or kept, or vectors that cannot be compared."""


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
            raise DiversityError(f"most {self.most} of k {self.k}: with 0 <= most < k a candidate can be dropped")
        if not -1 <= self.threshold <= 1:
            raise DiversityError(f"threshold {self.threshold}: it is a cosine, from -1 to 1")


#: Table 14.
QUERIES = Diversity(threshold=0.85)
DOCUMENTS = Diversity(threshold=0.78)


class Kept(NamedTuple, Generic[_T]):
    """A candidate that was kept, and how many of its nearest kept texts were over the threshold (at most k)."""

    item: _T
    neighbours: int


def diversify(
    candidates: Iterable[_T],
    encode: Encode,
    seeds: Iterable[_T] = (),
    diversity: Diversity = QUERIES,
    *,
    text_of: Callable[[_T], str] = str,
    batch: int = 256,
) -> Iterator[Kept[_T]]:
    """Pass on the candidates that are not redundant among the seeds and what was kept before them.

    Candidates are judged in order, one after the other, whatever the batch: one batch is encoded and looked up at once
    and its own members are then compared with each other. Memory holds the vectors of the seeds and of the kept texts
    (4 bytes a dimension) and one batch.

    Args:
        candidates: Texts or whatever has one, streamed.
        encode: The encoder. The paper's is gte-multilingual-base.
        seeds: What the index starts with, judged by nobody and not passed on; the paper takes :data:`SEEDS`.
        diversity: :data:`QUERIES` or :data:`DOCUMENTS`, or settings of one's own.
        text_of: The text of a candidate.
        batch: Texts encoded at once.
    """
    diversity.check()
    index: Any = None
    for part in _batches(seeds, batch):
        index = _added(index, _vectors(encode, map(text_of, part)))
    for part in _batches(candidates, batch):
        vectors = _vectors(encode, map(text_of, part))
        chosen, counts = _chosen(vectors, _over(index, vectors, diversity), diversity)
        index = _added(index, vectors[chosen])
        yield from (Kept(part[place], counts[place]) for place in chosen)


def _chosen(vectors: _Vectors, counts: list[int], diversity: Diversity) -> tuple[list[int], list[int]]:
    """The places of a batch that are kept, and everyone's neighbours over the threshold, those of the batch included.

    Of the k nearest, as many are over the threshold as there are at all, but k at most: so the two counts simply add.
    """
    near = vectors @ vectors.T > diversity.threshold
    chosen: list[int] = []
    for place in range(len(vectors)):
        counts[place] = min(diversity.k, counts[place] + int(near[place, chosen].sum()))
        if counts[place] <= diversity.most:
            chosen.append(place)
    return chosen, counts


def _over(index: Any, vectors: _Vectors, diversity: Diversity) -> list[int]:
    """How many of the nearest in the index are over the threshold, for each vector."""
    if index is None or not index.ntotal:
        return [0] * len(vectors)
    if index.d != vectors.shape[1]:
        raise DiversityError(f"vectors of {index.d}, then of {vectors.shape[1]} dimensions; use one encoder throughout")
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
        raise DiversityError(
            f"{len(whole)} texts became an array of shape {given.shape}; encode must give one row per text"
        )
    length = np.linalg.norm(given, axis=1, keepdims=True)
    if not np.isfinite(length).all() or not length.all():
        raise DiversityError("a text became a vector of length zero or not finite; leave empty texts out")
    return np.ascontiguousarray(given / length)


def _batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    if size < 1:
        raise DiversityError(f"batches of {size}: give at least 1")
    stream = iter(items)
    while part := list(islice(stream, size)):
        yield part
