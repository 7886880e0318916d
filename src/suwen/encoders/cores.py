"""Many texts at once: which of them go together, and how they share the cores. What encodes them lives elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from suwen.encoders.pair import Pair
from suwen.encoders.prompts import Form
from suwen.encoders.query import Encoder, Vectors

T = TypeVar("T")
#: Pieces a core gets of a batch: texts differ in length, and no core should wait long for the last.
_PIECES = 4


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def grouped(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Items in their order, as many together as have ``most`` of a size in all; one that has more by itself is alone.

    >>> list(grouped(["ab", "c", "defgh", "i"], len, 3))
    [['ab', 'c'], ['defgh'], ['i']]
    """
    group: list[T] = []
    held = 0
    for item in items:
        if group and held + size(item) > most:
            yield group
            group, held = [], 0
        group.append(item)
        held += size(item)
    if group:
        yield group


class OnAllCores(Encoder):
    """An encoder whose documents are shared out among threads. For bulk work: a service that searches keeps its cores.

    Args:
        encoder: May be used from several threads.
        workers: How many; a core each by default.
    """

    def __init__(self, encoder: Encoder, workers: int | None = None) -> None:
        self.name, self.dimension = encoder.name, encoder.dimension
        self._encoder, self._workers = encoder, workers or cores()
        self._pool = ThreadPoolExecutor(self._workers, "suwen-encode")

    def encode(self, texts: Sequence[str], *, form: Form = "document", instruction: str | None = None) -> Vectors:
        """Encode texts: documents in pieces, queries by the encoder itself."""
        size = -(-len(texts) // (self._workers * _PIECES))
        pieces = [texts[start : start + size] for start in range(0, len(texts), max(1, size))]
        if form == "query" or self._workers == 1 or len(pieces) < 2:
            return self._encoder.encode(texts, form=form, instruction=instruction)
        return np.concatenate(list(self._pool.map(self._encoder.encode_documents, pieces)))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has, neither cut nor with special tokens."""
        return self._encoder.count_tokens(texts)


def in_bulk(pair: Pair, tier: str | None = None) -> Encoder:
    """A tier (the default one where none is named) for many documents. A table of tokens is as fast in one thread."""
    name = tier or pair.default_tier
    encoder = pair.encoder(name)
    return OnAllCores(encoder) if pair.manifest.tiers[name].kind == "onnx" else encoder
