"""Hard negatives from vectors: never right, never too near, within the window."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))

from rows_on_disk import written_table as table_of

from suwen.corpora.training_rows import TrainingRow
from suwen.training.recipe.key_groups import Mine
from suwen.training.tasks.row_negatives import mine_rows, nearest_documents


def unit(rng: np.random.Generator, count: int, width: int = 6) -> np.ndarray:
    found = rng.normal(size=(count, width))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16)


TABLE = table_of({"a": [TrainingRow(f"q{n}", (f"d{n}", f"d{(n + 1) % 15}")) for n in range(15)]})


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 20), st.sampled_from([0.5, 0.9, 1.0]))
def test_negatives_keep_to_the_rules(seed, first, window, margin):
    rng = np.random.default_rng(seed)
    table = TABLE
    queries, documents = unit(rng, len(table.queries)), unit(rng, len(table.documents))
    settings = Mine(first_rank=first, last_rank=first + window, margin=margin, count=3)
    mined = mine_rows(table, queries, documents, settings, device="cpu")
    rows = mined.sources["a"]
    for number, query in enumerate(rows.queries):
        right, wrong = rows.positives[number], rows.negatives[number].tolist()
        scores = documents.astype(np.float32) @ queries[query].astype(np.float32)
        order = np.argsort(-scores, kind="stable").tolist()
        assert len(wrong) <= 3 and not np.isin(table.words[wrong], table.right[query]).any()
        for document in wrong:
            assert scores[document] < margin * scores[right[0]] + 1e-3
            assert first - 1 <= order.index(document) < first + window


def test_labelled_negatives_stay_and_come_first():
    table = table_of({"a": [TrainingRow("q0", ("d0",), ("d1",)), TrainingRow("q1", ("d2",))]})
    vectors = unit(np.random.default_rng(0), 3)
    mined = mine_rows(table, unit(np.random.default_rng(1), 2), vectors, Mine(first_rank=1), device="cpu")
    assert mined.sources["a"].negatives[0][0] == table.documents.index("d1")


def test_a_copy_of_the_positive_is_no_negative():
    table = table_of({"a": [TrainingRow("q0", ("d0",)), TrainingRow("q1", ("d1",)), TrainingRow("q2", ("d2",))]})
    documents = np.array([[1, 0], [1, 0.001], [0.6, 0.8]], np.float16)
    queries = np.array([[0.8, 0.6], [0, 1], [0, 1]], np.float16)
    mined = mine_rows(table, queries, documents, Mine(first_rank=1, margin=1.0), device="cpu")
    assert 1 not in mined.sources["a"].negatives[0]


def test_a_copy_is_one_by_its_cosine_where_vectors_keep_their_lengths():
    table = table_of({"a": [TrainingRow("q0", ("d0",)), TrainingRow("q1", ("d1",)), TrainingRow("q2", ("d2",))]})
    documents = np.array([[9, 0], [8, 0.01], [5, 3]], np.float16)
    queries = np.array([[5, 1], [0, 1], [0, 1]], np.float16)
    mined = mine_rows(table, queries, documents, Mine(first_rank=1, margin=1.0), device="cpu", by_dot=True)
    assert mined.sources["a"].negatives[0].tolist() == [2]


def test_nearest_documents_are_those_of_a_plain_sort(monkeypatch):
    monkeypatch.setattr("suwen.training.tasks.row_negatives._AT_ONCE", 4)
    rng = np.random.default_rng(3)
    queries, documents = unit(rng, 9), unit(rng, 30)
    found = nearest_documents(queries, documents, 5, device="cpu")
    scores = queries.astype(np.float32) @ documents.astype(np.float32).T
    assert np.array_equal(found, np.argsort(-scores, axis=1, kind="stable")[:, :5])
    assert nearest_documents(queries, documents[:3], 5, device="cpu").shape == (9, 3), "fewer where there are fewer"
