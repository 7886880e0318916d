"""Texts to vectors for the API, in turns: a large batch keeps neither searches nor small batches waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from suwen.encoders.pair import Pair
from suwen.encoders.prompts import Form
from suwen.encoders.query import Encoder, Vectors
from suwen.encoders.reranker import Reranker
from suwen.service.holder import Holder
from suwen.service.service_metrics import Metrics

#: Seconds one turn may keep a thread. A text is never split: the longest takes a third of a second at 6 layers.
TURN = 0.05
#: Characters that a static tier, once loaded, looks up on the spot: the way to another thread and back takes longer.
AT_ONCE = 200
_CHARACTERS_PER_TOKEN = 16


class Encoded(NamedTuple):
    """Vectors in the order of the texts, and how many tokens were read to make them."""

    vectors: Vectors
    tokens: int


class Encoding:
    """Encodes batches, in threads that do nothing else: searches have theirs, and wait for no batch.

    A batch takes one of the server's places, like a search, and gives its thread back after each turn, so that a short
    batch does not wait for a long one.

    Args:
        holder: Whose index names the pair.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._loaded: set[str] = set()

    async def encode(self, texts: Sequence[str], tier: str, form: Form, instruction: str | None = None) -> Encoded:
        """Encode cleaned texts by a tier; queries may bring an instruction.

        Raises:
            InstructionRefused: The tier's prompt has no place for it.
            Shed: The server has as much work as it takes.
            Problem: It took longer than a request may, or there is no pair to encode with.
        """
        pair = self._holder.index.pair
        places = self._holder.places["encode"]
        asker = places.take()
        try:
            async with self._holder.within_time("send fewer texts at once, or try again later"):
                return await self._in_turns(pair, texts, tier, form, instruction)
        finally:
            places.give(asker)

    async def read_together(self, reranker: Reranker, query: str, texts: Sequence[str]) -> tuple[list[float], int]:
        """A reranker's score of each text, and how many tokens were read; in turns, as texts are encoded.

        Raises:
            Shed: The server has as much work as it takes.
            Problem: It took longer than a request may.
        """
        loop, places = asyncio.get_running_loop(), self._holder.places["encode"]
        asker, scores = places.take(), list[float]()
        try:
            async with self._holder.within_time("send fewer documents at once, or name a tier"):
                while len(scores) < len(texts):
                    turn = partial(_read, reranker, query, texts[len(scores) :])
                    scores += await loop.run_in_executor(self._holder.shared.encoders, turn)
        finally:
            places.give(asker)
        return scores, sum(reranker.tokens(query, text) for text in texts)

    async def _in_turns(
        self, pair: Pair, texts: Sequence[str], tier: str, form: Form, instruction: str | None
    ) -> Encoded:
        loop = asyncio.get_running_loop()
        static = pair.manifest.tiers[tier].kind == "static"
        at_once = static and tier in self._loaded and sum(map(len, texts)) <= AT_ONCE
        vectors: list[Vectors] = []
        tokens = 0
        while len(vectors) < len(texts):
            rest = texts[len(vectors) :]
            turn = partial(_turn, pair, rest, tier, form, instruction, self._holder.metrics, time.perf_counter())
            made, read = turn() if at_once else await loop.run_in_executor(self._holder.shared.encoders, turn)
            self._loaded.add(tier)
            vectors += made
            tokens += read
        return Encoded(np.concatenate(vectors), tokens)


def _turn(
    pair: Pair, texts: Sequence[str], tier: str, form: Form, instruction: str | None, metrics: Metrics, asked: float
) -> tuple[list[Vectors], int]:
    """As many texts as fit into one turn, at least one; none depends on its neighbours."""
    began = time.perf_counter()
    metrics.waited("encode", began - asked)
    encoder = pair.encoder(tier)
    most = pair.manifest.tiers[tier].max_length
    vectors: list[Vectors] = []
    tokens = 0
    for text in texts:
        vectors.append(encoder.encode([text], form=form, instruction=instruction))
        tokens += tokens_read(encoder, text, most)
        if time.perf_counter() - began >= TURN:
            break
    if form == "query":
        metrics.encoded(tier, (time.perf_counter() - began) / len(vectors))
    return vectors, tokens


def _read(reranker: Reranker, query: str, texts: Sequence[str]) -> list[float]:
    return reranker.scores(query, texts, until=time.perf_counter() + TURN)


def tokens_read(encoder: Encoder, text: str, most: int) -> int:
    """How many tokens of a text an encoder reads, which is at most ``most``; the rest is not even counted."""
    size = most * _CHARACTERS_PER_TOKEN
    while True:
        (count,) = encoder.count_tokens([text[:size]])
        if count >= most or size >= len(text):
            return min(count, most)
        size *= 4
