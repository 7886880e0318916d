"""How good encoders are on development tasks, from vectors alone. Which encoder made them is decided by the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suwen.bench.exact_search import Ranks, RunView, scan, tie_order
from suwen.bench.retrieval_metrics import evaluate
from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_data import Ranked
from suwen.bench.task_loading import load_data
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

METRIC = "ndcg@10"
_DEPTH = 10
Encode = Callable[[Sequence[str]], Vectors]


class MeasureError(SuwenError):
    """A development suite that cannot be measured."""


@dataclass(frozen=True)
class Measured:
    """One retrieval task: its texts and judgements."""

    name: str
    data: Ranked


def load_measures(path: Path | None) -> list[Measured]:
    """The retrieval tasks of a suite file (``dev.toml``); none where no file is given."""
    if path is None:
        return []
    suite = load_suite(path)
    loaded = [(task.name, load_data(suite, task)) for task in suite.tasks if task.kind == "retrieval"]
    tasks = [Measured(name, data) for name, data in loaded if isinstance(data, Ranked)]
    if not tasks:
        raise MeasureError(f"{path} has no retrieval task: name a suite with one, or leave data.measure out")
    return tasks


def ndcg(measured: Measured, queries: Vectors, documents: Vectors) -> float:
    """Mean nDCG@10, in points, of exact search over all documents of the task."""
    data = measured.data
    rows, scores = scan(queries, [documents], tie_order(data.document_ids), similarity="dot", depth=_DEPTH)
    run = RunView(Ranks(rows, scores), data.query_ids, data.document_ids)
    return 100 * float(np.mean(evaluate(run, data.qrels, [METRIC])[METRIC]))


def measure(
    tasks: Sequence[Measured], encode_queries: Encode, documents: Callable[[Measured], Vectors]
) -> dict[str, float]:
    """nDCG@10 of every task, and their mean.

    Args:
        tasks: The tasks.
        encode_queries: Gives the vectors of queries.
        documents: Gives the vectors of a task's documents.
    """
    return with_mean({task.name: ndcg(task, encode_queries(task.data.queries), documents(task)) for task in tasks})


def with_mean(scores: dict[str, float]) -> dict[str, float]:
    """The scores of some tasks, and their mean where there are any."""
    return scores | ({"mean": float(np.mean(list(scores.values())))} if scores else {})
