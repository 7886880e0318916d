"""A query's ranking far past what a page may ask for, held still while the index changes. Keeps nothing by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import islice

import numpy as np

from suwen.errors import SuwenError
from suwen.index.engine import Ranking, RowGone
from suwen.index.filters import Where
from suwen.retrieve.fuse import WEIGHTS, fuse_hybrid
from suwen.retrieve.ranking import STEPS, Mode, as_hit, check_query, ranked, search_legs
from suwen.retrieve.results import Hit
from suwen.retrieve.retriever import Index


class RankingChanged(SuwenError):
    """Hits of a ranking were changed or deleted since it was made."""


def rank_deep(
    index: Index,
    query: str,
    most: int,
    *,
    mode: Mode = "hybrid",
    tier: str | None = None,
    instruction: str | None = None,
    where: Where | None = None,
) -> Ranking:
    """Everything that a query finds, best first, as rows of this moment: read by :func:`hits_of`.

    Args:
        index: Where to search.
        query: What the user typed.
        most: The most hits; a ranking of meaning ends nowhere else than with the index.
        mode: As for :meth:`~suwen.retrieve.retriever.Index.search`, and so are the others.
        tier: The query encoder.
        instruction: For the query.
        where: Metadata filter.
    """
    text, _ = check_query(query, 1, 0, mode, WEIGHTS, "scores")
    steps = [*(step for step in STEPS if step < most), most]
    with index.engine.snapshot() as snapshot:
        asked = index.wordings.of(text, snapshot)
        vector = None if mode == "lexical" else index.pair.encoder(tier).encode_queries([asked.meant], instruction)[0]
        unit = index.unit(snapshot, tier, vector)
        weights, vectors = index.freshness.weights(snapshot), index.freshness.vectors(snapshot)
        read = cache(lambda depth: search_legs(snapshot, index.freshness, asked, vector, mode, depth, where, weights))
        fused = partial(fuse_hybrid, weights=weights, unit=unit, vectors=vectors)
        order = ranked(read, lambda depth: fused(read(depth), 2 * depth), steps)
        places = [(place.row, place.score) for place in islice(order, most)]
    rows = np.fromiter((row for row, _ in places), dtype=np.int64, count=len(places))
    return Ranking(rows, np.fromiter((score for _, score in places), dtype=np.float32, count=len(places)))


def hits_of(index: Index, rows: Sequence[int], scores: Sequence[float]) -> list[Hit]:
    """Some rows of a ranking as hits.

    Raises:
        RankingChanged: One of them is not there any more; a document that is encoded again counts as changed.
    """
    try:
        with index.engine.snapshot() as snapshot:
            items = snapshot.fetch(list(rows))
    except RowGone:
        items = []
    if len(items) < len(rows):
        raise RankingChanged("documents of these hits were changed or deleted since the ranking was made: rank again")
    return [as_hit(item, score) for item, score in zip(items, scores, strict=True)]
