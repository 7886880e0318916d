"""Precise mode: the first hits of a search read again, query and passage together, by a reranker. Searches nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from suwen.encoders.reranker import VARIABLE, Reranker, RerankerError
from suwen.retrieve.ranking import Placed

#: How many of the first hits are read again, and the milliseconds that this may take.
HITS, BUDGET_MS = 20, 400


class NoReranker(RerankerError):
    """Precise mode where there is no reranker."""


class Reread(NamedTuple):
    """A page in its new order, the reranker's score of each row that it read, and what to say of it."""

    page: list[Placed]
    scores: dict[int, float]
    note: str


def need(reranker: Reranker | None) -> Reranker:
    """The reranker; NoReranker where there is none."""
    if reranker is None:
        raise NoReranker(
            "precise mode needs a reranker, and none is here: make one with `suwen train recipes/reranker-mini.yaml`, "
            f"and name the model folder of its export in {VARIABLE}"
        )
    return reranker


def reread(
    reranker: Reranker, query: str, page: Sequence[Placed], *, mode: str = "hybrid", budget_ms: float = BUDGET_MS
) -> Reread:
    """The first hits in the reranker's order; those that there was no time for stay behind them, as they were.

    Args:
        reranker: Who reads them.
        query: What is asked.
        page: The hits from the first on, best first.
        mode: What they were found by: beside a hybrid score, which means something by itself, the graph's is not alone.
        budget_ms: The milliseconds after which no further hit is begun.
    """
    if why := reranker.loses(query):
        return Reread(list(page), {}, why)
    first = page[:HITS]
    until = time.perf_counter() + budget_ms / 1000
    made = reranker.scores(query, [one.item.passage.content for one in first], until=until)
    weight = reranker.manifest.hybrid_weight if mode == "hybrid" else 0.0
    whole = [own + weight * one.place.score for own, one in zip(made, first, strict=False)]
    order = sorted(range(len(made)), key=lambda place: -whole[place])
    cut = f", until its {budget_ms:g} ms were over" if len(made) < len(first) else ""
    unmeasured = "" if reranker.manifest.measured else "; nobody has measured it"
    read = "the first hit was" if len(made) == 1 else f"the first {len(made)} hits were"
    note = f"precise: {read} read again by {reranker.name}{cut}{unmeasured}"
    scores = {one.item.row: own for one, own in zip(first, made, strict=False)}
    return Reread([*(first[place] for place in order), *page[len(made) :]], scores, note)
