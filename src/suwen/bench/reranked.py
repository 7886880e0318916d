"""Rankings read again by a reranker: as a system of its own, and what it gains over the ranking it is given."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.bench.dense_systems import rank_densely
from suwen.bench.exact_search import Ranks, RunView
from suwen.bench.ranking_systems import Hybrid
from suwen.bench.retrieval_metrics import Floats, evaluate
from suwen.bench.systems import Ranker, RankingContext, Setting, Side, System, is_dense
from suwen.bench.task_data import Ranked
from suwen.encoders.reranker import Gain, Reranker, language

#: The first hits of a search that are read again; a reranking task has all of its candidates read.
HITS = 20
#: What a hybrid score may count beside a reranker's: tried on half of the queries, measured on the others.
WEIGHTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_METRIC = "ndcg@10"


class Reranked(Ranker):
    """A system whose first hits a reranker reads again.

    Args:
        spec: What the user wrote.
        folder: The reranker's.
        inner: What finds them.
        hits: How many are read.
    """

    def __init__(self, spec: str, folder: Path, inner: System, hits: int = HITS) -> None:
        self.spec, self._inner, self._hits = spec, inner, hits
        self._reranker = Reranker.load(folder)
        self.name = f"rerank:{self._reranker.name}:{inner.name}"

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """The inner system's, the reranker's files, and how much is read."""
        manifest = self._reranker.manifest
        own = {"reranker": manifest.files, "template": manifest.template, "weight": manifest.hybrid_weight}
        return own | {"hits": self._hits, "inner": self._inner.contract(setting, side)}

    def rank(self, data: Ranked, setting: Setting, context: RankingContext) -> Ranks:
        """The inner ranking with its first hits in the reranker's order; offered or not, since this measures it."""
        inner: Any = self._inner
        ranks = rank_densely(inner, data, setting, context) if is_dense(inner) else inner.rank(data, setting, context)
        began = time.perf_counter()
        read = read_again(self._reranker, data, ranks, self._hits if data.candidates is None else None, context)
        spent = 1000 * (time.perf_counter() - began) / max(1, len(data.queries))
        weight = self._reranker.manifest.hybrid_weight if isinstance(inner, Hybrid) else 0.0
        return reordered(ranks, read, weight)._replace(query_ms=(ranks.query_ms or 0.0) + spent)

    def release(self) -> None:
        """Let the inner system go."""
        self._inner.release()


def read_again(
    reranker: Reranker, data: Ranked, ranks: Ranks, hits: int | None, context: RankingContext | None = None
) -> list[list[float]]:
    """The reranker's score of each query's first hits, or of all of them."""
    made = []
    for number, query in enumerate(data.queries):
        rows = ranks.rows[number][: hits or None]
        made.append(reranker.scores(query, [data.documents[row] for row in rows[rows >= 0]]))
        if context is not None and context.progress is not None:
            context.progress(number + 1, len(data.queries))
    return made


def reordered(ranks: Ranks, read: Sequence[Sequence[float]], weight: float) -> Ranks:
    """Rankings with what was read in the order of its scores, and the rest behind it as it was."""
    rows, scores = ranks.rows.copy(), np.full(ranks.scores.shape, -np.inf, np.float64)
    for number, own in enumerate(read):
        whole = np.asarray(own, np.float64) + weight * ranks.scores[number][: len(own)]
        rows[number, : len(own)] = ranks.rows[number][: len(own)][np.argsort(-whole, kind="stable")]
        count = int((rows[number] >= 0).sum())
        # By places: a reranker's scores and those of the rest are not on one scale.
        scores[number, :count] = -np.arange(count, dtype=np.float64)
    return Ranks(rows, scores)


class Reading(NamedTuple):
    """A task's hybrid ranking, and what the reranker made of its first hits."""

    data: Ranked
    ranks: Ranks
    read: list[list[float]]


def gains(tasks: Mapping[str, Reading]) -> tuple[float, dict[str, Gain]]:
    """What a hybrid score should count, by the even queries of all tasks; and the gain with it, on the odd ones."""
    even = {
        weight: float(
            np.mean([ndcg(task, reordered(task.ranks, task.read, weight))[::2].mean() for task in tasks.values()])
        )
        for weight in WEIGHTS
    }
    weight = max(even, key=lambda one: even[one])
    return weight, {name: _gain(task, weight) for name, task in tasks.items()}


def _gain(task: Reading, weight: float) -> Gain:
    before, after = ndcg(task, task.ranks), ndcg(task, reordered(task.ranks, task.read, weight))
    spoken = [language(query) for query in task.data.queries]
    return Gain(
        language="zh" if spoken.count("zh") * 2 > len(spoken) else "en",
        hybrid=round(float(before[1::2].mean()), 3),
        precise=round(float(after[1::2].mean()), 3),
    )


def ndcg(task: Reading, ranks: Ranks) -> Floats:
    """nDCG@10 of each query of a task, in points."""
    view = RunView(ranks, task.data.query_ids, task.data.document_ids)
    return 100 * evaluate(view, task.data.qrels, [_METRIC])[_METRIC]
