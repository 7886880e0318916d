"""Reciprocal rank fusion: several rankings of the same passages into one. Pure functions over arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suwen.index.engine import Ranking, Rows

CONSTANT = 60


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
    every = np.unique(np.concatenate([rows for rows, _ in rankings])) if rankings else np.empty(0, np.int64)
    scores = np.zeros(len(every))
    for rows, weight in rankings:
        scores[np.searchsorted(every, rows)] += weight / (constant + 1 + np.arange(len(rows)))
    order = np.lexsort((every, -scores))[:k]
    return Ranking(every[order].astype(np.int64), scores[order].astype(np.float32))
