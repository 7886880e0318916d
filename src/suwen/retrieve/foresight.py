"""How long indexing will take, foreseen from one reading of the sources and a few texts encoded. Stores nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from suwen.corpora.records import Document
from suwen.encoders.cores import cores, in_bulk
from suwen.encoders.pair import Pair
from suwen.index.engine import Engine
from suwen.retrieve.ingest import OVERLAP, SIZE

#: Seconds past which a tier is too slow to wait for: the fastest one encodes first, so that all can be searched.
LONG = 600.0
#: Seconds past which a user is told that there is a faster way.
NOTABLE = 120.0
#: What cutting, storing and indexing the words of a passage takes beside its vector, in seconds (two cores, 65 tokens).
_STORING = 0.001
#: Fewer passages than these take no time worth foreseeing.
_FEW = 1000
_SAMPLE = 64
_PROBED = 32
_LOOKED_UP = 1000


class Foresight(NamedTuple):
    """What there is to do."""

    documents: int
    #: About as many passages have documents that the index does not have yet.
    passages: int
    #: About how long they take with each tier that was asked about; empty where they are few.
    seconds: Mapping[str, float]


def foresee(
    engine: Engine, pair: Pair, documents: Iterable[Document], tiers: Sequence[str], size: int | None = None
) -> Foresight:
    """Read the sources once and time each tier on a few of their texts: a second or two, beside minutes.

    Args:
        engine: What it knows already need not be encoded.
        pair: Whose tiers they are.
        documents: All that will be indexed.
        tiers: Whose time is wanted.
        size: Tokens of a passage.
    """
    stream = iter(documents)
    sample = list(islice(stream, _SAMPLE))
    texts = [document.content[:2000] for document in sample] or [""]
    tokens = sum(pair.count_tokens(texts)) / max(1, sum(map(len, texts)))
    most = size or int(engine.settings().get("size", SIZE))
    count, passages = 0, 0
    whole = chain(sample, stream)
    while batch := list(islice(whole, _LOOKED_UP)):
        count += len(batch)
        known = engine.known([document.id for document in batch])
        passages += sum(
            _passages(len(one.content) * tokens, most, min(OVERLAP, most - 1)) for one in batch if one.id not in known
        )
    characters = max(1, int(most / max(tokens, 1e-3)))
    probed = [document.content[:characters] for document in sample[:_PROBED]]
    seconds = {tier: passages * (_STORING + _each(pair, tier, probed)) for tier in tiers if passages >= _FEW}
    return Foresight(count, passages, seconds)


def _passages(tokens: float, size: int, overlap: int) -> int:
    return max(1, math.ceil((tokens - overlap) / (size - overlap)))


def _each(pair: Pair, tier: str, texts: Sequence[str]) -> float:
    """Seconds that one text takes among many, with the cores to itself: what else runs now may soon be done."""
    encoder, kind = in_bulk(pair, tier), pair.manifest.tiers[tier].kind
    encoder.encode_documents(texts[:2])
    began, worked = time.perf_counter(), time.process_time()
    encoder.encode_documents(texts)
    spent, work = time.perf_counter() - began, time.process_time() - worked
    if kind != "torch":  # which may work on a GPU
        spent = min(spent, work / (cores() if kind == "onnx" else 1))
    return spent / max(1, len(texts))


def in_turn(engine: Engine, pair: Pair, tier: str, foreseen: Foresight) -> list[str]:
    """The tiers that encode a collection, one after the other: where one alone takes long, the fastest comes first.

    All of it can then be searched soon, and better as the second gets on. Only where the index holds nothing else: what
    a better encoder has encoded is never encoded by a worse one.
    """
    with engine.snapshot() as snapshot:
        new = set(snapshot.encoders) <= {pair.fastest}
    long = foreseen.seconds.get(tier, 0.0) > LONG
    return [pair.fastest, tier] if new and long and pair.fastest != tier else [tier]
