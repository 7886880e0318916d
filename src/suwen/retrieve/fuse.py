"""Several rankings of the same passages into one: by their scores, as hybrid search does, or by their ranks.

Pure functions over arrays; what is searched, and how deep, is the retriever's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.index.engine import Ranking, Rows

#: What rankings are fused by.
Fusion = Literal["scores", "ranks"]
#: The place whose score counts as nothing. The dense leg's best share is about the same whether that is place 20, 50 or
#: 200 (a static pair's: 0.4 to 0.45), so a larger collection, whose 200th hit is nearer to its first, needs no other
#: weight; 200 measured best, if by little (benchmarks/hybrid_fusion.py).
DEPTH = 200
#: The constant of reciprocal rank fusion, as published.
CONSTANT = 60
#: Weight of each leg of hybrid search: with the default pair a dense share of 0.6 to 0.9 is ahead of both legs on every
#: development task, and equal weights are behind the dense leg on two (benchmarks/hybrid_fusion.py).
WEIGHTS: Mapping[str, float] = {"dense": 2.0, "lexical": 1.0}
#: What a passage scores that a leg could never return: for BM25 one that shares no term with the query. With vectors
#: every passage has a place.
FLOORS: Mapping[str, float | None] = {"dense": None, "lexical": 0.0}
# tantivy's sums of terms differ in the last bits from one segment to another: equal passages must stay equal.
_DIGITS = 5

Values = npt.NDArray[np.float64]


class Leg(NamedTuple):
    """A ranking that takes part in a fusion.

    Attributes:
        ranking: Rows best first, with their scores.
        weight: How much it counts beside the others.
        floor: What a passage scores that the ranking could never hold, whatever its length; None where there is none.
    """

    ranking: Ranking
    weight: float = 1.0
    floor: float | None = None


def fuse_hybrid(
    legs: Mapping[str, Ranking], k: int, weights: Mapping[str, float] = WEIGHTS, fusion: Fusion = "scores"
) -> Ranking:
    """The legs of hybrid search, ``dense`` and ``lexical``, as one; a leg without a weight takes no part."""
    used = {name: float(weights[name]) for name in legs if weights.get(name, 0.0) > 0}
    if fusion == "ranks":
        return reciprocal_rank_fusion([(legs[name].rows, weight) for name, weight in used.items()], k)
    return score_fusion([Leg(legs[name], weight, FLOORS[name]) for name, weight in used.items()], k)


def relative(ranking: Ranking, floor: float | None = None, depth: int = DEPTH) -> tuple[Values, float]:
    """Scores on the query's own scale: the best is 1, the one at place ``depth`` is 0, deeper ones fall below.

    Of a ranking that ends before ``depth``, 0 is the floor, or the last score where there is none.

    Returns:
        A value per row, and the value of a passage that is not in the ranking: no higher than its last.

    >>> relative(Ranking(np.array([4, 2, 9]), np.array([0.9, 0.8, 0.5], np.float32)))
    (array([1.  , 0.75, 0.  ]), 0.0)
    """
    scores = ranking.scores.astype(np.float64)
    if not len(scores):
        return scores, 0.0
    best, last = scores[0], scores[min(depth, len(scores)) - 1]
    zero = floor if floor is not None and len(scores) < depth else last
    values = (scores - zero) / (best - zero) if best > zero else (scores >= best).astype(np.float64)
    values = np.round(values, _DIGITS)
    return values, min(float(values[-1]), 0.0)


def score_fusion(legs: Sequence[Leg], k: int, depth: int = DEPTH) -> Ranking:
    """Fuse rankings by the weighted mean of their :func:`relative` scores.

    Two encoders may score on scales that have nothing in common, and so may two queries of one BM25: what is compared
    is how far a passage falls behind the query's best, which ranks alone would not tell.

    Args:
        legs: The rankings, of the same moment of the index.
        k: How many to keep.
        depth: The place whose score counts as nothing.

    Returns:
        Rows by falling score, 1 where every leg has a row first; equal scores in ascending row order.

    >>> dense = Ranking(np.array([7, 3, 5]), np.array([0.9, 0.8, 0.4], np.float32))
    >>> lexical = Ranking(np.array([3, 9]), np.array([12.0, 6.0], np.float32))
    >>> score_fusion([Leg(dense), Leg(lexical, floor=0.0)], k=2)
    Ranking(rows=array([3, 7]), scores=array([0.9, 0.5], dtype=float32))
    """
    every = _rows([leg.ranking.rows for leg in legs])
    scores = np.zeros(len(every))
    whole = sum(leg.weight for leg in legs)
    for leg in legs:
        values, missing = relative(leg.ranking, leg.floor, depth)
        column = np.full(len(every), missing)
        column[np.searchsorted(every, leg.ranking.rows)] = values
        scores += leg.weight / whole * column
    return _best(every, scores, k)


def reciprocal_rank_fusion(rankings: Sequence[tuple[Rows, float]], k: int, constant: int = CONSTANT) -> Ranking:
    """Fuse rankings by ``sum(weight / (constant + rank))``, ranks counted from 1 (Cormack et al., SIGIR 2009).

    Args:
        rankings: Rows best first, with the weight of that ranking.
        k: How many to keep.
        constant: How slowly the credit falls with the rank.

    Returns:
        Rows by falling score; equal scores in ascending row order.

    >>> fused = reciprocal_rank_fusion([(np.array([7, 3]), 1.0), (np.array([3, 9]), 1.0)], k=3)
    >>> fused.rows.tolist()
    [3, 7, 9]
    """
    every = _rows([rows for rows, _ in rankings])
    scores = np.zeros(len(every))
    for rows, weight in rankings:
        scores[np.searchsorted(every, rows)] += weight / (constant + 1 + np.arange(len(rows)))
    return _best(every, scores, k)


def _rows(parts: Sequence[Rows]) -> Rows:
    return np.unique(np.concatenate(parts)).astype(np.int64) if parts else np.empty(0, np.int64)


def _best(rows: Rows, scores: Values, k: int) -> Ranking:
    order = np.lexsort((rows, -scores))[:k]
    return Ranking(rows[order], scores[order].astype(np.float32))
