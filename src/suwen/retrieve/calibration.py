"""What off-topic questions find in an index, per tier: measured, kept in the index, and measured again as it grows."""

from __future__ import annotations

import threading
from functools import partial

from suwen.encoders.pair import Pair
from suwen.index.engine import Engine, Snapshot
from suwen.retrieve.freshness import Freshness
from suwen.retrieve.relevance import Null, measure_null


class Calibration:
    """The measures of one open index.

    Args:
        engine: Where they are kept.
        pair: Whose tiers they are of.
        freshness: Searches fresh passages beside encoded ones.
    """

    def __init__(self, engine: Engine, pair: Pair, freshness: Freshness) -> None:
        self._engine, self._pair, self._freshness = engine, pair, freshness
        self._nulls: dict[str, Null] = {}
        self._measuring = threading.Lock()

    def measure(self) -> None:
        """Measure every tier, and keep what was found in the index: see :mod:`.relevance`."""
        with self._engine.snapshot() as snapshot:
            self._nulls = {tier: self._measured(snapshot, tier) for tier in self._pair.tiers}
        self._engine.remember(**{f"null:{tier}": null.to_json() for tier, null in self._nulls.items()})

    def fits(self) -> bool:
        """Whether what was measured still fits the index as it is."""
        with self._engine.snapshot() as snapshot:
            known = [self._known(tier) for tier in self._pair.tiers]
            return all(null is not None and null.fits(*self._of(snapshot)) for null in known)

    def null(self, snapshot: Snapshot, tier: str) -> Null:
        """The measure of a tier, made now where there is none that fits."""
        null, of = self._known(tier), self._of(snapshot)
        if null is not None and null.fits(*of):
            return null
        # One thread measures; the others, where they have an older measure, do not wait for it.
        if not self._measuring.acquire(blocking=null is None):
            assert null is not None
            return null
        try:
            null = self._nulls.get(tier)
            if null is None or not null.fits(*of):
                null = self._nulls[tier] = self._measured(snapshot, tier)
            return null
        finally:
            self._measuring.release()

    def _of(self, snapshot: Snapshot) -> tuple[int, str]:
        """What a measure depends on: how large the index is, and whose scores its dense ones are like."""
        return snapshot.last_row, self._freshness.scale(snapshot.encoders)

    def _measured(self, snapshot: Snapshot, tier: str) -> Null:
        dense = partial(self._freshness.dense, snapshot)
        encoder, of = self._pair.encoder(tier), self._of(snapshot)
        weights, static = self._freshness.weights(snapshot), self._pair.manifest.tiers[tier].kind == "static"
        return measure_null(dense, snapshot.lexical, encoder, *of, self._pair.space, weights, static)

    def _known(self, tier: str) -> Null | None:
        null = self._nulls.get(tier)
        if null is None and (kept := self._engine.settings().get(f"null:{tier}")):
            null = self._nulls[tier] = Null.from_json(str(kept))
        return null
