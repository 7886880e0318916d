"""A query's vector and those of its hypothetical documents as one. Pure arrays; who encodes is the caller's matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from suwen.hyde import HydeError

Vectors = npt.NDArray[np.float32]
#: ``mean``: the query's vector and the documents', averaged; ``documents``: these alone (Table 5 of AutoMIR);
#: ``concatenation`` is of texts, see :func:`joined`.
Fusion = Literal["mean", "documents", "concatenation"]
_ROWS = 512
#: Weights that are tried for the query; the last is the query alone.
WEIGHTS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, np.inf)


def fuse(
    queries: Vectors,
    documents: Vectors,
    owners: Sequence[int],
    *,
    fusion: Fusion = "mean",
    weight: float = 1.0,
    normalise: bool = True,
) -> Vectors:
    """The fused vector of each query; that of a query without documents is its own.

    Args:
        queries: One row a query.
        documents: One row a hypothetical document.
        owners: Which query each document is of.
        fusion: How.
        weight: How many documents the query counts for: 1 is the plain mean of it and all of them, as in the paper.
        normalise: Whether the result has length one; the order of documents is the same either way.

    >>> q, d = np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0], [0.0, 1.0]], np.float32)
    >>> print(fuse(q, d, [0, 0], normalise=False).round(3))
    [[0.333 0.667]]
    >>> print(fuse(q, d, [0, 0], weight=2, normalise=False))
    [[0.5 0.5]]
    """
    if fusion == "concatenation":
        raise HydeError("texts are joined before they are encoded: encode joined(query, documents) as the query")
    if len(owners) != len(documents):
        raise HydeError(f"{len(documents)} documents have {len(owners)} owners: give one for each")
    own = np.asarray(owners, np.int64)
    counts = np.bincount(own, minlength=len(queries)).astype(np.float32)[:, None]
    sums = np.zeros(queries.shape, np.float32)
    np.add.at(sums, own, documents)
    share = np.float32(0.0 if fusion == "documents" else weight)
    if np.isinf(share):
        fused = queries.astype(np.float32)
    else:
        fused = np.where(counts > 0, (share * queries + sums) / np.maximum(share + counts, 1e-9), queries)
    if normalise:
        fused = fused / np.maximum(np.linalg.norm(fused, axis=1, keepdims=True), 1e-12)
    return fused.astype(np.float32)


def joined(query: str, documents: Sequence[str]) -> str:
    """The text of a query with its hypothetical documents after it."""
    return " ".join([query, *documents])


def ranks(asked: Vectors, targets: npt.NDArray[np.int64], pool: Vectors) -> npt.NDArray[np.int64]:
    """The rank of each row's target among the pool, from 1; what scores as it does, such as a copy, is not before it.

    Args:
        asked: A vector for each row.
        targets: The row of each one's document in the pool.
        pool: Vectors of all documents.
    """
    found = np.empty(len(asked), np.int64)
    for start in range(0, len(asked), _ROWS):
        block = slice(start, start + _ROWS)
        scores = asked[block] @ pool.T
        right = scores[np.arange(len(scores)), targets[block]]
        # Products of equal vectors differ in their last bits, by their place in a block.
        found[block] = 1 + (scores > right[:, None] + 1e-6).sum(1)
    return found


def choose_weight(
    queries: Vectors,
    documents: Vectors,
    owners: Sequence[int],
    targets: npt.NDArray[np.int64],
    pool: Vectors,
    weights: Sequence[float] = WEIGHTS,
) -> tuple[float, dict[float, float]]:
    """The query's weight that finds the documents best from which queries were generated: no label is needed.

    Args:
        queries: Vectors of generated queries, as queries are encoded.
        documents: Vectors of the hypothetical documents that were written for them.
        owners: Which query each is of.
        targets: The row in the pool of the document each query was generated from.
        pool: Vectors of all documents.
        weights: What is tried.

    Returns:
        The best weight, of equal ones the largest (nearest to the plain query), and the mean reciprocal rank of each.
    """
    if not len(queries):
        raise HydeError("no generated query to choose a weight by: generate some first")
    found: dict[float, float] = {}
    for weight in weights:
        fused = fuse(queries, documents, owners, weight=weight)
        found[float(weight)] = float(np.mean(1.0 / ranks(fused, targets, pool)))
    best = max(found.values())
    return max(weight for weight, score in found.items() if score == best), found
