from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.bench.exact_search import DimensionMismatch, PairScores, Ranks, RunView, prepared, ragged, scan, tie_order


def naive(queries, corpus, ids, depth):
    """Sort everything: score descending, then id descending."""
    found = []
    for scores in queries.astype(np.float64) @ corpus.astype(np.float64).T:
        order = sorted(range(len(ids)), key=lambda row: (scores[row], ids[row]), reverse=True)
        found.append(order[:depth])
    return found


# Small whole numbers: products are exact, and ties are everywhere.
@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 14), st.integers(1, 3)),
    depth=st.integers(1, 8),
    block=st.integers(1, 5),
)
def test_blocks_give_what_sorting_everything_gives(data, shape, depth: int, block: int):
    asked, count, width = shape
    numbers = st.lists(st.integers(-2, 2), min_size=width, max_size=width)
    queries = np.asarray(data.draw(st.lists(numbers, min_size=asked, max_size=asked)), np.float32)
    corpus = np.asarray(data.draw(st.lists(numbers, min_size=count, max_size=count)), np.float32)
    ids = data.draw(st.lists(st.text("ab1", min_size=1, max_size=4), min_size=count, max_size=count, unique=True))
    blocks = (corpus[start : start + block] for start in range(0, count, block))
    rows, scores = scan(queries, blocks, tie_order(ids), similarity="dot", depth=depth)
    assert rows.tolist() == naive(queries, corpus, ids, depth)
    assert np.array_equal(scores, np.take_along_axis(queries @ corpus.T, rows, axis=1))


def test_ties_at_the_edge_go_to_the_later_id():
    corpus, query = np.ones((5, 1), np.float32), np.ones((1, 1), np.float32)
    rows, _ = scan(query, [corpus[:2], corpus[2:]], tie_order(list("caebd")), similarity="dot", depth=2)
    assert rows.tolist() == [[2, 4]]  # e, then d


def test_cosine_ignores_length_and_a_zero_vector_scores_zero():
    queries = np.asarray([[3.0, 0.0]], np.float32)
    corpus = np.asarray([[10.0, 10.0], [0.1, 0.0], [0.0, 0.0]], np.float32)
    rows, scores = scan(queries, [corpus], tie_order(["a", "b", "c"]), similarity="cosine", depth=3)
    assert rows.tolist() == [[1, 0, 2]]
    assert scores[0] == pytest.approx([1.0, 2**-0.5, 0.0])


def test_pairs_are_scored_in_the_same_pass():
    generator = np.random.default_rng(1)
    queries, corpus = (generator.normal(size=(n, 4)).astype(np.float32) for n in (3, 700))
    owners, documents = generator.integers(3, size=900), generator.integers(700, size=900)
    pairs, ties = PairScores.of(owners, documents), tie_order([str(n) for n in range(700)])
    scan(queries, [corpus[:300], corpus[300:]], ties, similarity="dot", depth=0, pairs=[pairs])
    expected = np.einsum("ij,ij->i", queries[pairs.queries], corpus[pairs.documents])
    assert np.allclose(pairs.scores, expected, atol=1e-6)
    assert sorted(zip(pairs.queries, pairs.documents, strict=True)) == sorted(zip(owners, documents, strict=True))


def test_sides_of_different_width_are_refused():
    with pytest.raises(DimensionMismatch, match="3 dimensions and the document side of 2"):
        scan(np.zeros((1, 3), np.float32), [np.zeros((1, 2), np.float32)], tie_order(["a"]), similarity="dot", depth=1)


def test_memory_does_not_grow_with_corpus_times_queries():
    asked, count, width, depth = 1000, 20_000, 8, 10
    generator = np.random.default_rng(0)
    queries = generator.normal(size=(asked, width)).astype(np.float32)
    ties = tie_order([f"{number:06d}" for number in range(count)])
    blocks = (generator.normal(size=(1000, width)).astype(np.float32) for _ in range(count // 1000))
    tracemalloc.start()
    scan(queries, blocks, ties, similarity="cosine", depth=depth)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < asked * count * 4 / 10  # the whole matrix of scores would be 80 MB


def test_lists_of_different_length_are_padded():
    lists = [(np.asarray([2, 0]), np.asarray([1.0, 1.0])), (np.asarray([1]), np.asarray([0.5]))]
    rows, scores = ragged(lists, tie_order(["a", "b", "c"]))
    assert rows.tolist() == [[2, 0], [1, -1]]
    assert scores.tolist() == [[1.0, 1.0], [0.5, -np.inf]]
    assert ragged(lists, tie_order(["a", "b", "c"]), depth=1)[0].tolist() == [[2], [1]]


def test_a_run_shows_only_what_was_found():
    ranks = Ranks(np.asarray([[1, -1], [0, 1]]), np.asarray([[0.5, -np.inf], [2.0, 1.0]], np.float32))
    view = RunView(ranks, ["q1", "q2"], ["a", "b"])
    assert list(view) == ["q1", "q2"] and len(view) == 2
    ids, scores = view["q1"]
    assert (ids, scores.tolist()) == (["b"], [0.5])
    with pytest.raises(KeyError):
        view["q3"]


def test_prepared_leaves_dot_products_alone():
    vectors = np.asarray([[3.0, 4.0]], np.float32)
    assert prepared(vectors, "dot").tolist() == [[3.0, 4.0]]
    assert prepared(vectors, "cosine")[0].tolist() == pytest.approx([0.6, 0.8])
