"""The second pass over a large collection: what the fastest tier encoded is encoded again by the usual one.

``suwen index`` does it by itself, in the same command. Where that was stopped, it is done here, of what the index
holds: no source is read. What the index was told to keep (``--tier``) is left alone, and so is what waits for the
space's own document encoder beside passages that it has encoded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from suwen.encoders.cores import in_bulk
from suwen.encoders.who_encodes import encode_documents, tier_at_once
from suwen.index.engine import Reencoded, Vectors, Waiting
from suwen.retrieve.ingest import IngestProgress
from suwen.retrieve.retriever import Index

#: Documents between two writes: seconds of work, which is all that is lost when it is stopped.
_AT_ONCE = 64


def usual_tier(index: Index) -> str | None:
    """The tier that should encode again what the fastest one did; None where nothing waits for it."""
    usual, fastest = tier_at_once(index.pair), index.pair.fastest
    with index.engine.snapshot() as snapshot:
        there = set(snapshot.encoders)
    waits = fastest != usual and fastest in there <= {fastest, usual}
    # Empty: left to the pair. An index that says nothing may have been built with that tier.
    return usual if waits and index.engine.settings().get("tier") == "" else None


def second_pass(
    index: Index, *, progress: IngestProgress | None = None, stop: Callable[[], bool] = lambda: False
) -> int:
    """Encode again what waits for the usual tier, oldest first; searches go on meanwhile.

    Args:
        index: Open for writing.
        progress: Called with the number of documents done and of passages encoded.
        stop: Asked now and then whether to end; what was stored by then stays.

    Returns:
        How many documents were encoded again.
    """
    if (usual := usual_tier(index)) is None:
        return 0
    encoder, done, passages = in_bulk(index.pair, usual), 0, 0
    left: set[str] = set()
    while not stop() and (waiting := index.engine.waiting(usual, _AT_ONCE, left)):
        vectors = encode_documents(index.pair, encoder, [text for one in waiting for text in one.contents])
        outcomes = index.engine.reencode(_made(waiting, vectors), usual)
        left |= {id_ for id_, outcome in outcomes.items() if outcome != "stored"}
        done, passages = done + sum(outcome == "stored" for outcome in outcomes.values()), passages + len(vectors)
        if progress:
            progress(done, passages)
    if done and usual_tier(index) is None:
        # Half of what the files hold is hidden now, and scores are the other tier's.
        index.engine.compact()
        index.calibrate()
    return done


def _made(waiting: list[Waiting], vectors: Vectors) -> list[Reencoded]:
    ends = np.cumsum([len(one.contents) for one in waiting])
    parts = np.split(vectors, ends[:-1])
    return [Reencoded(one.id, one.version, part) for one, part in zip(waiting, parts, strict=True)]
