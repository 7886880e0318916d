"""Sign bits of vectors, and the scan that finds the nearest of them by Hamming distance. No files here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from suwen.index.engine import Vectors

#: Records that are worth a thread of their own: starting one takes as long as scanning a few thousand.
SLICE = 2_000_000
#: Of so many distances one is looked at to guess how far the candidates reach.
_SAMPLED = 64


def binarise(vectors: Vectors) -> npt.NDArray[np.uint8]:
    """Sign bits. Of vectors without their mean: real embeddings share a common direction that wastes bits."""
    return np.packbits(vectors > 0, axis=1)


def nearest(found_at: npt.NDArray[np.int32], wanted: int) -> npt.NDArray[np.int64]:
    """Positions of the ``wanted`` smallest distances, and of as many again that equal the last of them, ascending.

    By counting: unlike that of faiss' own search, its cost does not grow with the number wanted. No more than that of
    those alike: a collection of copies would all be rescored.
    """
    near = _near(found_at, wanted)
    found = found_at[near]
    counts = np.bincount(found)
    last = int(np.searchsorted(np.cumsum(counts), wanted))
    if counts[: last + 1].sum() <= 2 * wanted:
        return np.asarray(near[found <= last], dtype=np.int64)
    nearer, alike = near[found < last], near[found == last]
    return np.asarray(np.sort(np.concatenate([nearer, alike[: 2 * wanted - len(nearer)]])), dtype=np.int64)


def _near(found_at: npt.NDArray[np.int32], wanted: int) -> npt.NDArray[np.int64]:
    """Positions of at least the ``wanted`` smallest distances, ascending.

    A sample tells about how far they reach: counting them all took half as long as the scan. Where it is wrong, all.
    """
    share = wanted / _SAMPLED
    counts = np.cumsum(np.bincount(found_at[::_SAMPLED]))
    reach = int(np.searchsorted(counts, share + 4 * math.sqrt(share) + 4))
    near = np.flatnonzero(found_at <= reach)
    return near if len(near) >= wanted else np.arange(len(found_at))


def distances(code: npt.NDArray[np.uint8], bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """The Hamming distance of each record to a code; of many records in slices, on the cores this process may use."""
    import faiss

    found = np.empty(len(bits), dtype=np.int32)

    def scan(start: int, end: int) -> None:
        given, into = faiss.swig_ptr(bits[start:end]), faiss.swig_ptr(found[start:end])
        with _one_thread():
            faiss.hammings(faiss.swig_ptr(code), given, 1, end - start, bits.shape[1], into)  # type: ignore[attr-defined]

    if len(bits) < 2 * SLICE:
        scan(0, len(bits))
        return found
    from suwen.encoders.cores import cores  # which loads what begins threads of its own

    slices = min(len(bits) // SLICE, cores())
    ends = np.linspace(0, len(bits), slices + 1).astype(int).tolist()
    with ThreadPoolExecutor(slices) as threads:
        list(threads.map(scan, ends[:-1], ends[1:]))
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Scan in this thread alone.

    One query is one piece of work to faiss, and a second thread of its team only spins until the first is done: 2.7
    times the CPU, and where other processes keep the cores busy the scan ends when that thread gets its turn, 7 times
    as late.
    """
    # Here and above, and not with the module: an index that is searched exactly never needs it, and it takes as long
    # to load as all else of the engine.
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
