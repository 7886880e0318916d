"""Fresh passages beside encoded ones: which is which, and scores of both that can be compared. Re-encodes nothing.

A document that arrives is encoded at once by a tier, and later by the space's document encoder. The tier's vectors sit
closer to its own queries than the document encoder's do, so by plain scores fresh passages crowd the others out. What
is taken away is measured by the index itself: of a sample of its encoded passages it also has the tier's vectors, so it
sees for every query by how much the same texts score higher when they are fresh. No labels and no queries are needed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from suwen.encoders.blend import made_of
from suwen.encoders.pair import Pair
from suwen.encoders.who_encodes import own_encoder
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import Ranking, Rows, Scale, StoredPassage, Vectors
from suwen.index.filters import Where
from suwen.index.snapshot import EmbeddedSnapshot
from suwen.index.vectors import products
from suwen.retrieve.relevance import MIXED

log = logging.getLogger("suwen.retrieve")
#: Passages in the sample. With half of a collection fresh, their share of the top 10 is off by 2 points at the most;
#: with a sample of 256 by 3.5, with 100 by 10, with none by 16 to 22 (benchmarks/fresh_documents.py).
SAMPLE = 1000
#: Fewer say too little about the best 1% of a query.
_LEAST = 64
#: Where two scales are made to meet: at the mean of the best 1% of the sample, and over the best 10% in how steeply
#: scores fall. What is ranked lies just above.
_TOP, _REACH = 0.01, 0.1
#: Of the sample, so many serve as queries to measure how steeply scores fall.
PROBES = 250
_STEEPEST = 2.0
_ENCODE_AT_ONCE = 16
_NO_FILE = -1


@dataclass(frozen=True)
class Calibration:
    """Vectors of the same texts by the document encoder and by a tier, and what follows from them.

    Attributes:
        encoded: By the document encoder.
        fresh: By the tier, a row for each of the same texts.
        slope: How much more steeply encoded scores fall among the best than fresh ones.
    """

    encoded: Vectors
    fresh: Vectors
    slope: float

    @classmethod
    def fit(cls, encoded: Vectors, fresh: Vectors, asked: Vectors) -> Calibration:
        """Measure the slope, with some of the texts as queries for the others.

        Args:
            encoded: Vectors of the texts by the document encoder.
            fresh: By the tier.
            asked: Of the first of them, by the tier in the form of queries: what is asked is closer to that.
        """
        chosen = np.arange(len(asked))
        falls = []
        for vectors in (encoded, fresh):
            scores = asked @ vectors.T
            scores[chosen, chosen] = -np.inf
            falls.append(float((_top_means(scores, _TOP) - _top_means(scores, _REACH)).mean()))
        slope = falls[0] / falls[1] if falls[1] > 1e-6 else 1.0
        return cls(encoded, fresh, float(np.clip(slope, 1 / _STEEPEST, _STEEPEST)))

    def scale(self, query: Vectors) -> Scale:
        """What brings a query's scores of fresh passages to the scale of encoded ones.

        The slope is the same for every query: measured for each alone it is noise. The offset is the query's own.
        """
        encoded, fresh = (
            float(_top_means(products(vectors, query)[None, :], _TOP)[0]) for vectors in (self.encoded, self.fresh)
        )
        return Scale(self.slope, encoded - self.slope * fresh)


def _top_means(scores: Vectors, share: float) -> Vectors:
    """Of each row of scores the mean of the best."""
    count = min(max(2 if share == _TOP else 6, int(share * scores.shape[1])), scores.shape[1] - 1)
    return np.asarray(np.partition(scores, -count, axis=1)[:, -count:].mean(axis=1), dtype=np.float32)


class Freshness:
    """The calibrations of one index, kept in its folder: derived from it, and made again when they are lost.

    Args:
        folder: The index folder.
        pair: The pair of the index.
    """

    def __init__(self, folder: Path, pair: Pair) -> None:
        self._folder, self._pair = folder, pair
        self.own = own_encoder(pair)
        self._known: dict[str, tuple[int, _Sample | None, Calibration | None]] = {}
        self._preparing = threading.Lock()

    def scales(self, encoders: Sequence[str], query: Vectors) -> dict[str, Scale]:
        """For an index with passages of these encoders: the scale of each that stands in for the own one."""
        if self.own not in encoders or len(encoders) < 2:
            return {}
        found = {name: self._load(name)[1] for name in encoders if name != self.own}
        return {name: calibration.scale(query) for name, calibration in found.items() if calibration is not None}

    def scale(self, encoders: Sequence[str]) -> str:
        """Whose scores those of an index with these encoders are like; nobody's before all can be compared."""
        others = [name for name in encoders if name != self.own]
        if self.own not in encoders:
            return "+".join(sorted(others))
        return self.own if all(self._load(name)[1] is not None for name in others) else MIXED

    def due(self, engine: EmbeddedEngine, most: int = SAMPLE, ahead: Sequence[str] = ()) -> list[str]:
        """The tiers whose fresh passages are compared by no sample, or by one that is too small by now.

        Args:
            engine: The index's.
            most: How many passages a sample should have.
            ahead: Tiers of which no fresh passage is there yet, but will be.
        """
        with engine.snapshot() as snapshot:
            there = {*snapshot.encoders, *ahead} - {self.own}
            wanted = snapshot.count(self.own, most) if there else 0
        tiers = [tier for tier in self._pair.tiers if tier in there]
        return [tier for tier in tiers if wanted >= _LEAST and 2 * self._size(tier) <= wanted]

    def prepare(
        self, engine: EmbeddedEngine, tier: str, most: int = SAMPLE, stop: Callable[[], bool] = lambda: False
    ) -> int:
        """Encode a sample of the index's encoded passages by a tier as well, and keep both vectors.

        Args:
            engine: The index's.
            tier: The tier.
            most: How many passages; those of an earlier call are not encoded again.
            stop: Asked now and then whether to give up; what was encoded until then is not kept.

        Returns:
            How many passages the sample has now.
        """
        with self._preparing:
            known = self._load(tier)[0]
            with engine.snapshot() as snapshot:
                rows, encoded = snapshot.sample(most, self.own)
                new = _spread(np.flatnonzero(~np.isin(rows, [] if known is None else known.rows)))
                texts = [item.passage.content for item in snapshot.fetch(rows[new].tolist())]
            encoder = self._pair.encoder(tier)
            fresh = _encoded(encoder.encode_documents, texts, stop)
            asked = None if fresh is None else _encoded(encoder.encode_queries, texts[:PROBES], stop)
            if fresh is not None and asked is not None:
                made = _Sample(rows[new], encoded[new], fresh, asked)
                self._save(tier, made if known is None else known.joined(made, most))
            return self._size(tier)

    def _size(self, tier: str) -> int:
        sample = self._load(tier)[0]
        return 0 if sample is None else len(sample.rows)

    def _file(self, tier: str) -> Path:
        return self._folder / f"freshness-{tier}.npz"

    def _load(self, tier: str) -> tuple[_Sample | None, Calibration | None]:
        """The sample of a tier as it lies in the folder now: another process may have made it."""
        try:
            changed = self._file(tier).stat().st_mtime_ns
        except OSError:
            changed = _NO_FILE
        known = self._known.get(tier)
        if known is None or known[0] != changed:
            sample = None if changed == _NO_FILE else _Sample.read(self._file(tier), self._maker(tier))
            self._known[tier] = known = (changed, sample, _fitted(sample))
        return known[1], known[2]

    def _save(self, tier: str, sample: _Sample) -> None:
        try:
            sample.write(self._file(tier), self._maker(tier))
        except OSError as problem:
            # A full disk or a folder that may not be written: it serves this process, and is made again by the next.
            log.warning("%s could not be written: %s", self._file(tier), problem)
            self._known[tier] = (_NO_FILE, sample, _fitted(sample))

    def _maker(self, tier: str) -> str:
        """What the sample depends on beside the index: a tier that was trained anew makes other vectors."""
        files = made_of(self._pair.manifest, tier) if tier in self._pair.manifest.tiers else {}
        told = repr((self._pair.space.id, self.own, sorted(files.items())))
        return hashlib.sha256(told.encode()).hexdigest()


def _spread(rows: Rows) -> Rows:
    """The same rows, with those that serve as queries first: from all over."""
    first = np.unique(np.linspace(0, len(rows) - 1, min(PROBES, len(rows))).astype(np.int64)) if len(rows) else rows
    return np.concatenate([rows[first], np.delete(rows, first)])


def _encoded(
    encode: Callable[[Sequence[str]], Vectors], texts: Sequence[str], stop: Callable[[], bool]
) -> Vectors | None:
    """The vectors of texts, a few at a time; None where there are none, or it was stopped."""
    parts = []
    for start in range(0, len(texts), _ENCODE_AT_ONCE):
        if stop():
            return None
        parts.append(encode(texts[start : start + _ENCODE_AT_ONCE]))
    return np.concatenate(parts) if parts else None


def _fitted(sample: _Sample | None) -> Calibration | None:
    enough = sample is not None and len(sample.rows) >= _LEAST
    return Calibration.fit(sample.encoded, sample.fresh, sample.asked) if sample is not None and enough else None


@dataclass(frozen=True)
class _Sample:
    """Passages of the index and their two vectors; a passage that was deleted since is as good as any.

    ``asked`` are the tier's vectors of the first of them in the form of queries.
    """

    rows: Rows
    encoded: Vectors
    fresh: Vectors
    asked: Vectors

    def joined(self, other: _Sample, most: int) -> _Sample:
        """Both, the newer first: it speaks for the index as it is."""
        whole = len(other.asked) == len(other.rows)  # else what was asked of the older ones has no place at the front
        return _Sample(
            np.concatenate([other.rows, self.rows])[:most],
            np.concatenate([other.encoded, self.encoded])[:most],
            np.concatenate([other.fresh, self.fresh])[:most],
            np.concatenate([other.asked, *([self.asked] if whole else [])])[: min(PROBES, most)],
        )

    @classmethod
    def read(cls, file: Path, maker: str) -> _Sample | None:
        """The stored sample; None where there is none that can be used."""
        try:
            with np.load(file, allow_pickle=False) as found:
                if str(found["maker"]) != maker:
                    return None
                sides = [np.asarray(found[side], dtype=np.float32) for side in ("encoded", "fresh", "asked")]
                rows = np.asarray(found["rows"], dtype=np.int64)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        encoded, fresh, asked = sides
        sound = encoded.shape == fresh.shape and encoded.ndim == asked.ndim == 2 and len(rows) == len(encoded)
        sound = sound and 0 < len(asked) <= len(rows) and asked.shape[1] == fresh.shape[1]
        return cls(rows, *sides) if sound and all(np.isfinite(side).all() for side in sides) else None

    def write(self, file: Path, maker: str) -> None:
        """Store it under its name in one step."""
        unfinished = file.with_suffix(f".{os.getpid()}.new")
        names = ("encoded", "fresh", "asked")
        halves = {name: getattr(self, name).astype(np.float16) for name in names}
        try:
            with unfinished.open("wb") as stream:
                np.savez(stream, rows=self.rows, maker=np.array(maker), **halves)
            unfinished.replace(file)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


class Calibrated:
    """A snapshot whose dense search gives fresh and encoded passages comparable scores."""

    def __init__(self, snapshot: EmbeddedSnapshot, freshness: Freshness) -> None:
        self._snapshot, self._freshness = snapshot, freshness

    @property
    def last_row(self) -> int:
        """The highest row given out by this moment."""
        return self._snapshot.last_row

    @property
    def scale(self) -> str:
        """Whose scores the dense ones are like."""
        return self._freshness.scale(self._snapshot.encoders)

    def dense(self, vector: Vectors, k: int, where: Where | None = None) -> Ranking:
        """The nearest passages, calibrated before the best are chosen."""
        scales = self._freshness.scales(self._snapshot.encoders, vector)
        return self._snapshot.dense(vector, k, where, scales)

    def lexical(self, text: str, k: int, where: Where | None = None) -> Ranking:
        """The best passages by BM25: words are the same whoever encoded them."""
        return self._snapshot.lexical(text, k, where)

    def fetch(self, rows: Sequence[int]) -> list[StoredPassage]:
        """The passages of these rows, in this order."""
        return self._snapshot.fetch(rows)
