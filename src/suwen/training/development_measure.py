"""How good encoders are on development tasks, from vectors alone. Which encoder made them is decided by the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suwen.bench.retrieval_metrics import evaluate
from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_data import Ranked
from suwen.bench.task_loading import load_data
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

METRIC = "ndcg@10"
_DEPTH = 10
_QUERIES_AT_ONCE = 512
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


def ndcg(measured: Measured, queries: Vectors, documents: Vectors, *, device: str = "cpu") -> float:
    """Mean nDCG@10, in points, of exact search over all documents of the task."""
    import torch

    best: list[Any] = []
    matrix = torch.from_numpy(np.asarray(documents, np.float32)).to(device)
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        part = torch.from_numpy(np.asarray(queries[start : start + _QUERIES_AT_ONCE], np.float32)).to(device)
        best.append(torch.topk(part @ matrix.T, min(_DEPTH, len(documents)), dim=1))
    data = measured.data
    run: dict[str, dict[str, float]] = {}
    for batch, top in enumerate(best):
        for row, (scores, places) in enumerate(zip(top.values.tolist(), top.indices.tolist(), strict=True)):
            query = data.query_ids[batch * _QUERIES_AT_ONCE + row]
            run[query] = {data.document_ids[place]: score for place, score in zip(places, scores, strict=True)}
    return 100 * float(np.mean(evaluate(run, data.qrels, [METRIC])[METRIC]))


def measure(
    tasks: Sequence[Measured], encode_queries: Encode, documents: Callable[[Measured], Vectors], *, device: str = "cpu"
) -> dict[str, float]:
    """nDCG@10 of every task, and their mean.

    Args:
        tasks: The tasks.
        encode_queries: Gives the vectors of queries.
        documents: Gives the vectors of a task's documents.
        device: Where to multiply.
    """
    return with_mean(
        {task.name: ndcg(task, encode_queries(task.data.queries), documents(task), device=device) for task in tasks}
    )


def with_mean(scores: dict[str, float]) -> dict[str, float]:
    """The scores of some tasks, and their mean where there are any."""
    return scores | ({"mean": float(np.mean(list(scores.values())))} if scores else {})
