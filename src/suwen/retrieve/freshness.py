"""Fresh passages beside encoded ones: which is which, and scores of both that can be compared. Re-encodes nothing.

A document that arrives is encoded at once by a tier, and later by the space's document encoder. The tier's vectors sit
closer to its own queries than the document encoder's do, so by plain scores fresh passages crowd the others out. What
is taken away is measured by the index itself: of a sample of its encoded passages it also has the tier's vectors, so it
sees for every query by how much the same texts score higher when they are fresh. No labels and no queries are needed.
In a space of inner product the tier's vectors have one length; without a sample it counts as the encoded ones' mean.
"""

from __future__ import annotations

import hashlib
import io
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from zipfile import BadZipFile

import numpy as np

from suwen.encoders.blend import made_of
from suwen.encoders.pair import Pair
from suwen.encoders.who_encodes import best_maker, encode_documents, own_encoder, tier_at_once
from suwen.index.engine import Engine, IndexProblem, Ranking, Rows, Scale, Snapshot, Vectors
from suwen.index.filters import Where
from suwen.retrieve.fuse import WEIGHTS_BY, VectorsOf
from suwen.retrieve.relevance import MIXED

log = logging.getLogger("suwen.retrieve")
#: Passages in the sample. With half of a collection fresh, their share of the top 10 is off by 2 points at the most;
#: with a sample of 256 by 3.5, with 100 by 10, with none by 16 to 22 (benchmarks/fresh_documents.py).
SAMPLE = 1000
#: Fewer say too little about the best 1% of a query. Where vectors keep their lengths, plain scores are no way out: in
#: the space of the recipe bmretriever-tiny, fresh passages, 40% of all, were 1% of the top 10 with equal mean lengths,
#: and 47% with a sample of 24.
_LEAST, _LEAST_BY_DOT = 64, 16
#: Where two scales are made to meet: at the mean of the best 1% of the sample, and over the best 10% in how steeply
#: scores fall. What is ranked lies just above.
_TOP, _REACH = 0.01, 0.1
#: Of the sample, so many serve as queries to measure how steeply scores fall.
PROBES = 250
_STEEPEST = 2.0
_ENCODE_AT_ONCE = 16


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
        # In a space of inner product encoded vectors are longer than a tier's, and all their scores with them.
        longer = _length(encoded) / _length(fresh)
        slope = falls[0] / falls[1] if falls[1] > 1e-6 * _length(fresh) else longer
        return cls(encoded, fresh, float(np.clip(slope, longer / _STEEPEST, longer * _STEEPEST)))

    def scale(self, query: Vectors) -> Scale:
        """What brings a query's scores of fresh passages to the scale of encoded ones.

        The slope is the same for every query: measured for each alone it is noise. The offset is the query's own.
        """
        # By einsum: a matrix product would wake the threads of BLAS, which costs more than it brings.
        encoded, fresh = (
            float(_top_means(np.einsum("ij,j->i", vectors, query)[None, :], _TOP)[0])
            for vectors in (self.encoded, self.fresh)
        )
        return Scale(self.slope, encoded - self.slope * fresh)


def _length(vectors: Vectors) -> float:
    """The mean length of vectors; 1 where there are none, or they have none."""
    return float(np.linalg.norm(vectors, axis=1).mean()) or 1.0 if len(vectors) else 1.0


def _top_means(scores: Vectors, share: float) -> Vectors:
    """Of each row of scores the mean of the best."""
    count = min(max(2 if share == _TOP else 6, int(share * scores.shape[1])), scores.shape[1] - 1)
    return np.asarray(np.partition(scores, -count, axis=1)[:, -count:].mean(axis=1), dtype=np.float32)


class Freshness:
    """The calibrations of one index, kept by its engine: derived from it, and made again when they are lost.

    Args:
        engine: The index's.
        pair: The pair of the index.
    """

    def __init__(self, engine: Engine, pair: Pair) -> None:
        self._engine, self._pair = engine, pair
        self.own = own_encoder(pair)
        self._least = _LEAST if pair.space.normalise else _LEAST_BY_DOT
        self._known: dict[str, tuple[int | None, _Sample | None, Calibration | None]] = {}
        self._preparing = threading.Lock()

    def scales(self, encoders: Sequence[str], query: Vectors) -> dict[str, Scale]:
        """For an index with passages of these encoders: the scale of each that stands in for the own one."""
        if self.own not in encoders or len(encoders) < 2:
            return {}
        known = {name: self._load(name)[1] for name in encoders if name != self.own}
        plain = [name for name, calibration in known.items() if calibration is None]
        return self._as_long(plain) | {name: one.scale(query) for name, one in known.items() if one is not None}

    def _as_long(self, tiers: Sequence[str]) -> dict[str, Scale]:
        """Before a sample says more: in a space of inner product, a fresh passage has the encoded ones' mean length."""
        if self._pair.space.normalise or not tiers:
            return {}
        with self._engine.snapshot() as snapshot:
            lengths = {name: _length(snapshot.sample(_LEAST, name)[1]) for name in (self.own, *tiers)}
        return {name: Scale(lengths[self.own] / lengths[name], 0.0) for name in tiers}

    def scale(self, encoders: Sequence[str]) -> str:
        """Whose scores those of an index with these encoders are like; nobody's before all can be compared."""
        others = [name for name in encoders if name != self.own]
        if self.own not in encoders:
            return "+".join(sorted(others))
        return self.own if all(self._load(name)[1] is not None for name in others) else MIXED

    def weights(self, snapshot: Snapshot) -> Mapping[str, float]:
        """How much each leg of hybrid search counts by itself: as for the best encoder of any passage."""
        return WEIGHTS_BY[best_maker(self._pair, snapshot.encoders)]

    def vectors(self, snapshot: Snapshot) -> VectorsOf | None:
        """The passages' vectors, where they tell what is like what: those of several encoders do not."""
        return snapshot.vectors if len(snapshot.encoders) == 1 else None

    def dense(
        self, snapshot: Snapshot, vector: Vectors, k: int, where: Where | None = None, beside: Rows | None = None
    ) -> Ranking:
        """The nearest passages, their scores made comparable before the best are chosen. See :meth:`Snapshot.dense`."""
        return snapshot.dense(vector, k, where, self.scales(snapshot.encoders, vector), beside)

    def due(self, most: int = SAMPLE, *, ahead: bool = False) -> list[str]:
        """The tiers whose fresh passages are compared by no sample, or by one that is too small by now.

        Args:
            most: How many passages a sample should have.
            ahead: Count the tier that will encode what comes, though no passage of it may be there yet.
        """
        coming = {kept_tier(self._engine, self._pair) or tier_at_once(self._pair)} if ahead else set()
        with self._engine.snapshot() as snapshot:
            there = {*snapshot.encoders, *coming} - {self.own}
            wanted = snapshot.count(self.own, most) if there else 0
        tiers = [tier for tier in self._pair.tiers if tier in there]
        return [tier for tier in tiers if wanted >= self._least and 2 * self._size(tier) <= wanted]

    def prepare(self, tier: str, most: int = SAMPLE, stop: Callable[[], bool] = lambda: False) -> int:
        """Encode a sample of the index's encoded passages by a tier as well, and keep both vectors.

        Args:
            tier: The tier.
            most: How many passages; those of an earlier call are not encoded again.
            stop: Asked now and then whether to give up; what was encoded until then is not kept.

        Returns:
            How many passages the sample has now.
        """
        with self._preparing:
            known = self._load(tier)[0]
            with self._engine.snapshot() as snapshot:
                rows, encoded = snapshot.sample(most, self.own)
                new = _spread(np.flatnonzero(~np.isin(rows, [] if known is None else known.rows)))
                texts = [item.passage.content for item in snapshot.fetch(rows[new].tolist())]
            encoder = self._pair.encoder(tier)
            fresh = _encoded(partial(encode_documents, self._pair, encoder), texts, stop)
            asked = None if fresh is None else _encoded(encoder.encode_queries, texts[:PROBES], stop)
            if fresh is not None and asked is not None:
                made = _Sample(rows[new], encoded[new], fresh, asked)
                self._save(tier, made if known is None else known.joined(made, most))
            return self._size(tier)

    def _size(self, tier: str) -> int:
        sample = self._load(tier)[0]
        return 0 if sample is None else len(sample.rows)

    def _load(self, tier: str) -> tuple[_Sample | None, Calibration | None]:
        """The sample of a tier as the engine has it now: another process may have made it."""
        version = self._engine.blob_version(_blob(tier))
        known = self._known.get(tier)
        if known is None or known[0] != version:
            data = None if version is None else self._engine.get_blob(_blob(tier))
            sample = None if data is None else _Sample.unpacked(data, self._maker(tier))
            self._known[tier] = known = (version, sample, self._fitted(sample))
        return known[1], known[2]

    def _save(self, tier: str, sample: _Sample) -> None:
        try:
            self._engine.put_blob(_blob(tier), sample.packed(self._maker(tier)))
        except IndexProblem as problem:
            # A full disk or a folder that may not be written: it serves this process, and is made again by the next.
            log.warning("%s", problem)
            self._known[tier] = (self._engine.blob_version(_blob(tier)), sample, self._fitted(sample))

    def _fitted(self, sample: _Sample | None) -> Calibration | None:
        enough = sample is not None and len(sample.rows) >= self._least
        return Calibration.fit(sample.encoded, sample.fresh, sample.asked) if sample is not None and enough else None

    def _maker(self, tier: str) -> str:
        """What the sample depends on beside the index: a tier that was trained again makes other vectors."""
        files = made_of(self._pair.manifest, tier) if tier in self._pair.manifest.tiers else {}
        parts = repr((self._pair.space.id, self.own, sorted(files.items())))
        return hashlib.sha256(parts.encode()).hexdigest()


def _blob(tier: str) -> str:
    return f"freshness-{tier}.npz"


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
        """Both, the newer first: it is like the index as it is now."""
        whole = len(other.asked) == len(other.rows)  # else what was asked of the older ones has no place at the front
        return _Sample(
            np.concatenate([other.rows, self.rows])[:most],
            np.concatenate([other.encoded, self.encoded])[:most],
            np.concatenate([other.fresh, self.fresh])[:most],
            np.concatenate([other.asked, *([self.asked] if whole else [])])[: min(PROBES, most)],
        )

    @classmethod
    def unpacked(cls, data: bytes, maker: str) -> _Sample | None:
        """The sample that was kept; None where it cannot be used."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                if str(arrays["maker"]) != maker:
                    return None
                sides = [np.asarray(arrays[side], dtype=np.float32) for side in ("encoded", "fresh", "asked")]
                rows = np.asarray(arrays["rows"], dtype=np.int64)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        encoded, fresh, asked = sides
        sound = encoded.shape == fresh.shape and encoded.ndim == asked.ndim == 2 and len(rows) == len(encoded)
        sound = sound and 0 < len(asked) <= len(rows) and asked.shape[1] == fresh.shape[1]
        return cls(rows, *sides) if sound and all(np.isfinite(side).all() for side in sides) else None

    def packed(self, maker: str) -> bytes:
        """As it is kept, with who made it."""
        halves = {name: getattr(self, name).astype(np.float16) for name in ("encoded", "fresh", "asked")}
        packed = io.BytesIO()
        np.savez(packed, rows=self.rows, maker=np.array(maker), **halves)
        return packed.getvalue()


def kept_tier(engine: Engine, pair: Pair) -> str | None:
    """The tier that was asked for when the index was built; None where its documents' encoder was left to the pair.

    An index that says nothing of it, but that one tier other than the usual encoded, was built with that one.
    """
    asked = engine.settings().get("tier")
    if asked is None:
        # Not by the stats, which count all passages: a service asks this with every document that is posted.
        with engine.snapshot() as snapshot:
            encoders = list(snapshot.encoders)
        asked = encoders[0] if len(encoders) == 1 and encoders[0] != tier_at_once(pair) else ""
    return str(asked) if asked in pair.tiers else None
