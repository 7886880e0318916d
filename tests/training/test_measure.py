"""The development measure is that of the benchmarks, on exact search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suwen.bench.retrieval_metrics import evaluate
from suwen.bench.task_data import Ranked, Source
from suwen.training.development_measure import METRIC, Measured, load_measures, measure, ndcg


def task() -> Measured:
    rng = np.random.default_rng(0)
    documents = [f"d{n}" for n in range(40)]
    queries = [f"q{n}" for n in range(9)]
    qrels = {
        query: {documents[place]: 1 + place % 2 for place in rng.choice(40, 3, replace=False)} for query in queries
    }
    return Measured("made", Ranked(documents, documents, queries, queries, qrels, Source(Path())))


def test_it_is_ndcg_of_the_whole_ranking():
    rng = np.random.default_rng(1)
    queries, documents = rng.normal(size=(9, 5)), rng.normal(size=(40, 5))
    made = task()
    scores = queries @ documents.T
    run = {f"q{row}": {f"d{column}": scores[row, column] for column in range(40)} for row in range(9)}
    expected = 100 * float(np.mean(evaluate(run, made.data.qrels, [METRIC])[METRIC]))
    assert ndcg(made, queries, documents) == pytest.approx(expected, rel=1e-9)


def test_the_mean_is_over_tasks():
    made = task()
    vectors = np.random.default_rng(2).normal(size=(40, 5)).astype(np.float32)
    found = measure([made, Measured("again", made.data)], lambda texts: vectors[: len(texts)], lambda _: vectors)
    assert found["mean"] == pytest.approx(found["made"]) == pytest.approx(found["again"])


def test_no_suite_is_no_measure():
    assert load_measures(None) == []
