"""How much of what exact search finds an engine's own search finds too, whichever engine it is. Repairs nothing."""

from __future__ import annotations

from typing import NamedTuple

from suwen.index.engine import Engine, Progress, Snapshot, Vectors, need


class Recall(NamedTuple):
    """The share of the exact top ``k`` that was found, over so many queries."""

    recall: float
    k: int
    queries: int


def measure_recall(engine: Engine, queries: int, k: int = 10, progress: Progress | None = None) -> Recall:
    """Ask for passages spread over the index as if they were queries."""
    need(engine, "exact")
    with engine.snapshot() as snapshot:
        _, vectors = snapshot.sample(queries)
        return Recall(recall(snapshot, vectors, k, progress), k, len(vectors))


def recall(snapshot: Snapshot, queries: Vectors, k: int = 10, progress: Progress | None = None) -> float:
    """The share of the exact top ``k`` that the engine's own search finds, over these queries.

    A hit with the same score as the exact k-th counts: which of two equal passages comes first is nobody's loss.
    """
    hits = wanted = 0
    for query, exact in zip(queries, snapshot.exact(queries, k, progress), strict=True):
        ours = snapshot.dense(query, k)
        if len(exact.scores):
            # A millionth: of an inner product, which may be large, of itself.
            least = exact.scores[-1] - 1e-6 * max(1.0, abs(float(exact.scores[-1])))
            hits += min(int((ours.scores >= least).sum()), len(exact.rows))
            wanted += len(exact.rows)
    return hits / wanted if wanted else 1.0
