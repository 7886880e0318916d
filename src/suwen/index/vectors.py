"""Derived vector files of one generation: sign bits to scan, int8 codes to rescore, row numbers. No SQLite here.

Sign bits tell directions. Where vectors are compared by their inner product, a fourth file has their lengths.

Files are of format 2: they have vectors without their mean, in other axes (:mod:`suwen.index.turning`). Those of format
1, which older releases wrote, have codes of vectors as they are; they are read, and grow, as they were until a rebuild.

The files only grow. How many of their records count is a watermark kept in the truth, so bytes past it (an append
that was cut off) mean nothing and are written over.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.durable import write_bytes
from suwen.index.bit_scan import binarise, distances, nearest
from suwen.index.engine import DamagedIndex, Ranking, Rows, Similarity, Vectors
from suwen.index.turning import turned

_HEADER = 4096
_KINDS: dict[Similarity, tuple[str, ...]] = {
    "cosine": ("bits", "codes", "rows"),
    "dot": ("bits", "codes", "rows", "lengths"),
}

#: Vectors taken into memory at once: whoever asks for a hundred thousand hits does not get them all there.
IN_MEMORY = 8192
#: Bytes of int8 codes that are rescored after the bit scan: 1,000 candidates of 768 dimensions, 3,000 of 256: narrow
#: vectors need more (of 160k spans 1,000 of 512 dimensions hold 0.996 of the top 10, of 256 0.986).
RESCORED_BYTES = 768_000
#: Up to this many passages; from here on with the root of their number (benchmarks/vector_scale.py).
RESCORED_AT = 40_000
#: Up to this many bytes of codes every admitted passage is scored: past it a scan is cheaper (filter_cost.py).
SCORED_BYTES = 2 * RESCORED_BYTES
#: Filters whose places in the files are kept at hand.
_PLACED = 8


class Block(NamedTuple):
    """One append: where it starts, how many records, and each file's checksum."""

    position: int
    size: int
    checksums: dict[str, int]


class VectorFiles:
    """The files of a generation, open for reading up to ``count`` records."""

    def __init__(
        self,
        folder: Path,
        index_id: str,
        dimension: int,
        count: int,
        mean: Vectors,
        similarity: Similarity = "cosine",
        repeated: bool = False,
    ) -> None:
        self.folder, self.dimension, self.count, self.mean = folder, dimension, count, mean
        #: Whether a row may have several records, one after the other: of a passage and of questions it answers.
        self.repeated = repeated
        self._index_id, self._kinds = index_id, _KINDS[similarity]
        self._plain = b'"format": 1,' in self._begins("bits")
        self._centre = self._axes(mean)
        self._way = self._centre / max(float(np.linalg.norm(mean)), 1e-12)
        for kind in self._kinds:
            self._check(kind)
        self.bits: npt.NDArray[np.uint8] = self._map("bits", np.dtype((np.uint8, (self.bit_width,))))
        self.codes = self._map("codes", self._record)
        self.rows: Rows = self._map("rows", np.dtype("<i8"))
        #: Of vectors without the mean; in format 2 of what is across the mean, and then, signed, of what is along it.
        self.lengths: Vectors | None = None
        if "lengths" in self._kinds:
            self.lengths = self._map("lengths", np.dtype("<f4") if self._plain else np.dtype(("<f4", (2,))))
        self._placed: list[tuple[Rows, npt.NDArray[np.int64], npt.NDArray[np.bool_]]] = []

    @property
    def bit_width(self) -> int:
        """Bytes of one binary code."""
        return (self.dimension + 7) // 8

    @property
    def _record(self) -> np.dtype[np.void]:
        return np.dtype([("scale", "<f4"), ("code", "i1", (self.dimension,))])

    def _widths(self) -> dict[str, int]:
        lengths = 4 if self._plain else 8
        return {"bits": self.bit_width, "codes": self._record.itemsize, "rows": 8, "lengths": lengths}

    def _header(self, kind: str) -> bytes:
        format = 1 if self._plain else 2
        about = {"suwen": kind, "format": format, "index": self._index_id, "folder": self.folder.name.split(".")[0]}
        return json.dumps(about | {"width": self._widths()[kind]}).encode().ljust(_HEADER, b"\n")

    def _begins(self, kind: str) -> bytes:
        path = self.folder / kind
        try:
            with path.open("rb") as file:
                return file.read(_HEADER)
        except FileNotFoundError as problem:
            raise DamagedIndex(f"{path} is missing: run 'suwen rebuild {self.folder.parent}'") from problem

    def _axes(self, vectors: Vectors) -> Vectors:
        return vectors if self._plain else turned(vectors)

    def _check(self, kind: str) -> None:
        """Refuse a file that is missing, short, or of another index or generation."""
        path, header = self.folder / kind, self._begins(kind)
        size = path.stat().st_size
        if header != self._header(kind):
            raise DamagedIndex(
                f"{path} does not belong to this index (foreign or damaged header): "
                f"run 'suwen rebuild {self.folder.parent}'"
            )
        if size < _HEADER + self.count * self._widths()[kind]:
            raise DamagedIndex(f"{path} is cut off: run 'suwen rebuild {self.folder.parent}'")

    def _map(self, kind: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        if self.count == 0:
            return np.empty(0, dtype=dtype)
        base, shape = (dtype.base, (self.count, *dtype.shape)) if dtype.shape else (dtype, (self.count,))
        # As a plain array: indexing an np.memmap goes through Python every time.
        return np.asarray(np.memmap(self.folder / kind, dtype=base, mode="r", offset=_HEADER, shape=shape))

    # -- writing ------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, index_id: str, dimension: int, similarity: Similarity = "cosine") -> None:
        """Make the files with nothing in them, durably."""
        blank = cls.__new__(cls)
        blank.folder, blank.dimension, blank._index_id, blank._plain = folder, dimension, index_id, False
        for kind in _KINDS[similarity]:
            write_bytes(folder / kind, blank._header(kind))

    def append(self, rows: Rows, vectors: Vectors) -> Block:
        """Write records after the watermark and wait until they are on disk; the caller moves the watermark."""
        around = self._axes(vectors - self.mean)
        signed, parts = around, dict[str, npt.NDArray[Any]]()
        if self.lengths is not None and self._plain:
            parts["lengths"] = np.linalg.norm(around, axis=1).astype("<f4")
        elif self.lengths is not None:
            along = around @ self._way
            signed = around - np.outer(along, self._way)
            parts["lengths"] = np.stack([np.linalg.norm(signed, axis=1), along], axis=1).astype("<f4")
        records = np.empty(len(rows), dtype=self._record)
        records["scale"], records["code"] = quantise(vectors if self._plain else around)
        parts |= {"bits": binarise(signed), "codes": records, "rows": rows.astype("<i8")}
        checksums = {}
        for kind in self._kinds:
            data = parts[kind].tobytes()
            checksums[kind] = zlib.crc32(data)
            handle = os.open(self.folder / kind, os.O_WRONLY)
            try:
                write_all(handle, data, _HEADER + self.count * self._widths()[kind])
                os.fsync(handle)
            finally:
                os.close(handle)
        return Block(self.count, len(rows), checksums)

    def check_block(self, block: Block) -> list[str]:
        """The files whose bytes are not what the append wrote."""
        bad = []
        for kind in self._kinds:
            data = getattr(self, kind)[block.position : block.position + block.size].tobytes()
            if zlib.crc32(data) != block.checksums.get(kind):
                bad.append(kind)
        return bad

    # -- searching ----------------------------------------------------------------------------------------------

    def search(self, query: Vectors, k: int, admitted: Rows | None, dead: npt.NDArray[np.bool_] | None) -> Ranking:
        """The best ``k`` by int8 score, with no dead record and only admitted rows among them.

        Args:
            query: One vector.
            k: How many.
            admitted: Ascending rows a filter lets through, or None for all; holds no dead row.
            dead: A flag for each record, or None when there are no tombstones.
        """
        query = self._axes(query)
        if admitted is not None:
            positions, outside = self._places(admitted)
            if len(positions) * self.dimension > SCORED_BYTES:
                positions = self._scan(query, self._candidates(k), outside, len(positions))
        else:
            alive = self.count - (int(np.count_nonzero(dead)) if dead is not None else 0)
            positions = self._scan(query, self._candidates(k), dead, alive)
        return self._rescore(query, positions, k)

    def _candidates(self, k: int) -> int:
        # With the root of the passages: the nearest hide among ever more near ones, but a smaller share of them is
        # enough. One in 250 missed most at 300,000 (recall@10 of 0.9957, now 0.9993).
        grown = math.sqrt(max(1.0, self.count / RESCORED_AT))
        return max(int(RESCORED_BYTES / self.dimension * grown), 10 * k)

    def _places(self, admitted: Rows) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Where admitted rows stand, and a flag for each record that is none of them.

        A filter is asked for again with the next query and the next page, with the same array: finding its places
        took longer than the search where it admits much.
        """
        for rows, positions, outside in self._placed:
            if rows is admitted:
                return positions, outside
        positions = self.positions(admitted)
        outside = np.ones(self.count, dtype=bool)
        outside[positions] = False
        # A new list each time: other threads read the old one.
        self._placed = [(admitted, positions, outside), *self._placed[: _PLACED - 1]]
        return positions, outside

    def positions(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Where these ascending rows stand in the files; rows that are not there are left out."""
        if self.repeated:
            first, end = (np.searchsorted(self.rows, rows, side) for side in ("left", "right"))
            counts = end - first
            return np.asarray(np.repeat(end - np.cumsum(counts), counts) + np.arange(counts.sum()), dtype=np.int64)
        places = np.searchsorted(self.rows, rows)
        inside = places < self.count
        places, rows = places[inside], rows[inside]
        return np.asarray(places[self.rows[places] == rows], dtype=np.int64)

    def _scan(
        self, query: Vectors, wanted: int, dead: npt.NDArray[np.bool_] | None, alive: int
    ) -> npt.NDArray[np.int64]:
        """Positions of the ``wanted`` living records nearest in Hamming distance, and of those as near as the last.

        In a space of inner product, the ``wanted`` best by :meth:`_estimates`.
        """
        wanted = min(wanted, alive)
        if wanted == 0:
            return np.empty(0, dtype=np.int64)
        if self.lengths is not None:
            estimates = self._estimates(query, self.lengths)
            if dead is not None:
                estimates[dead] = -np.inf
            return np.asarray(np.argpartition(estimates, -wanted)[-wanted:], dtype=np.int64)
        code = binarise((query - self._centre)[None, :])
        if dead is not None and alive <= self.count // 4:  # cheaper to lay these side by side than to scan all
            living = np.flatnonzero(~dead)
            return np.asarray(living[nearest(distances(code, self.bits[living]), wanted)], dtype=np.int64)
        found = distances(code, self.bits)
        if dead is not None:
            found[dead] = 8 * self.bit_width + 1  # farther than any
        return nearest(found, wanted)

    def _estimates(self, query: Vectors, lengths: Vectors) -> Vectors:
        """About the inner product of each record with the query, up to a factor and a term that all of them share.

        By Hamming distance alone, no more than 0.42 of the top 10 is among the candidates once lengths differ by a
        third, and next to nothing where they differ by a factor of two. What differs is ``query @ (vector - mean)``.
        What a vector has of it along the mean, of which a decoder's queries may consist nearly all, is known. For the
        rest it is the length, times the cosine with the query, which its signs around zero tell, not those around the
        mean. That finds 0.999 and more (benchmarks/inner_product_scan.py).
        """
        if self._plain:
            found = distances(binarise(query[None, :]), self.bits)
            return np.asarray(lengths * (np.float32(self.dimension / 2) - found), dtype=np.float32)
        along = query @ self._way
        across = query - along * self._way
        cosines = np.cos(np.linspace(0, np.pi, self.dimension + 1)).astype(np.float32) * np.linalg.norm(across)
        found = distances(binarise(across[None, :]), self.bits)
        return np.asarray(along * lengths[:, 1] + cosines[found] * lengths[:, 0], dtype=np.float32)

    def _rescore(self, query: Vectors, positions: npt.NDArray[np.int64], k: int) -> Ranking:
        # Ascending positions read the memory map forwards.
        positions = np.sort(positions)
        parts = [positions[start : start + IN_MEMORY] for start in range(0, max(1, len(positions)), IN_MEMORY)]
        rows, scores = self.rows[positions], np.concatenate([self._scores(query, part) for part in parts])
        if self.repeated:
            rows, scores = folded(rows, scores)
        return best(rows, scores, k)

    def _scores(self, query: Vectors, positions: npt.NDArray[np.int64]) -> Vectors:
        records = self.codes[positions]
        scores = products(records["code"].astype(np.float32), query) * records["scale"]
        return np.asarray(scores if self._plain else scores + query @ self._centre, dtype=np.float32)


def best(rows: Rows, scores: Vectors, k: int, beside: Rows | None = None) -> Ranking:
    """The ``k`` highest scores, equal ones in row order, so that a rebuild answers alike; below them ``beside``'s.

    >>> best(np.array([7, 3, 5, 9]), np.array([0.2, 0.5, 0.1, 0.3], np.float32), 1, np.array([3, 5, 7])).rows
    array([3, 7, 5])
    """
    if len(scores) > 2 * k:  # few more are sorted as they are in less time
        # Everything equal to the k-th score stays in: which of the equal ones goes must not depend on the partition.
        high = scores >= np.partition(scores, -k)[-k]
        kept = np.flatnonzero(high if beside is None else high | among(rows, beside))
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))
    order, low = order[:k], order[k:]
    if beside is not None:
        order = np.concatenate([order, low[among(rows[low], beside)]])
    return Ranking(np.asarray(rows[order], dtype=np.int64), np.asarray(scores[order], dtype=np.float32))


def folded(rows: Rows, scores: Vectors) -> tuple[Rows, Vectors]:
    """Each row once, ascending, with the best of its scores.

    >>> folded(np.array([7, 3, 7]), np.array([0.2, 0.5, 0.4], np.float32))
    (array([3, 7]), array([0.5, 0.4], dtype=float32))
    """
    if not len(rows):
        return rows, scores
    order = np.argsort(rows, kind="stable")
    every, starts = np.unique(rows[order], return_index=True)
    return every, np.asarray(np.maximum.reduceat(scores[order], starts), dtype=np.float32)


def among(rows: Rows, ascending: Rows) -> npt.NDArray[np.bool_]:
    """Of each row, whether it is among these."""
    if len(ascending) == 0 or len(rows) == 0:
        return np.zeros(len(rows), dtype=bool)
    places = ascending.searchsorted(rows)
    places[places == len(ascending)] = 0
    return np.asarray(ascending[places] == rows)


def products(vectors: Vectors, query: Vectors) -> Vectors:
    """The inner product of each row with the query, by this thread alone.

    ``vectors @ query`` wakes the threads of BLAS, which costs more than it brings: 4.5 ms of CPU against 0.3 at 3,000
    rows of 256, where both of two cores are busy. And equal rows get equal products, whatever stands beside them.
    """
    return np.asarray(np.einsum("ij,j->i", vectors, query))


def quantise(vectors: Vectors) -> tuple[Vectors, npt.NDArray[np.int8]]:
    """One scale per vector and int8 codes: ``vector ≈ scale * code``."""
    scales = np.maximum(np.abs(vectors).max(axis=1), 1e-12).astype(np.float32) / np.float32(127)
    return scales, np.rint(vectors / scales[:, None]).astype(np.int8)


def write_all(handle: int, data: bytes, offset: int) -> None:
    """``pwrite`` until everything is written: a single call may stop at 2 GiB or at a full disk."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
