"""Searching an index of a hundred thousand passages: filters and tombstones inside the search, recall and counts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from naive import bm25, encoded

from suwen.index.embedded import EmbeddedEngine
from suwen.index.recall import recall

COUNT, DIMENSION, CLUSTERS = 100_000, 64, 500
WHERES = {"0.1%": {"bucket": 17}, "1%": {"bucket": {"lt": 10}}, "50%": {"bucket": {"gte": 500}}, "all": None}


class Big(NamedTuple):
    """An index on disk with what is in it: row ``i + 1`` is document ``d<i>``, which has bucket ``i % 1000``."""

    folder: Path
    vectors: np.ndarray
    words: np.ndarray
    queries: np.ndarray


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Big:
    rng = np.random.default_rng(11)
    centres = rng.standard_normal((CLUSTERS, DIMENSION)) + rng.standard_normal(DIMENSION)
    drawn = centres[rng.integers(0, CLUSTERS, COUNT)] + 0.3 * rng.standard_normal((COUNT, DIMENSION))
    vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    words = rng.integers(0, 400, (COUNT, 4))
    folder = tmp_path_factory.mktemp("big") / "index"
    engine = EmbeddedEngine.create(folder, space="sp", dimension=DIMENSION, seal=8192)
    for start in range(0, COUNT, 25_000):
        engine.add(
            [
                encoded(
                    f"d{i}", [" ".join(f"w{word}" for word in words[i])], vectors[i : i + 1], {"bucket": i % 1000}, ""
                )
                for i in range(start, start + 25_000)
            ]
        )
    engine.close()
    asked = vectors[rng.integers(0, COUNT, 30)] + 0.02 * rng.standard_normal((30, DIMENSION))
    queries = (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32)
    return Big(folder, vectors.astype(np.float16).astype(np.float32), words, queries)


def without(big: Big, target: Path, gone: np.ndarray) -> EmbeddedEngine:
    """A copy of the index with documents deleted."""
    shutil.copytree(big.folder, target)
    engine = EmbeddedEngine.open(target, write=True)
    assert engine.delete([f"d{i}" for i in gone]) == len(gone)
    return engine


class Claims:
    """Asserts the two promises of a search, dense and lexical, for one state of the index."""

    def __init__(self, engine: EmbeddedEngine, big: Big, gone: np.ndarray) -> None:
        self.engine, self.big = engine, big
        self.live = np.ones(COUNT, bool)
        self.live[gone] = False
        self.bucket = np.arange(COUNT) % 1000

    def may(self, share: str) -> np.ndarray:
        chosen = {"0.1%": self.bucket == 17, "1%": self.bucket < 10, "50%": self.bucket >= 500}
        return self.live & chosen.get(share, True)

    def dense(self, share: str, queries: np.ndarray) -> float:
        may, found, wanted = np.flatnonzero(self.may(share)), 0, 0
        for query in queries:
            with self.engine.snapshot() as view:
                rows = view.dense(query, 10, WHERES[share]).rows - 1
            assert len(rows) == len(set(rows)) == min(10, len(may))
            assert np.isin(rows, may).all()
            exact = may[np.argsort(-(self.big.vectors[may] @ query), kind="stable")[:10]]
            found, wanted = found + len(set(rows) & set(exact)), wanted + len(exact)
        return found / wanted

    def lexical(self, share: str) -> None:
        may = self.may(share)
        lengths = np.full(COUNT, 4.0)
        for terms in ((3, 5), (7,), (1, 2, 3, 4, 5, 6)):
            counts = [(self.big.words == term).sum(axis=1) for term in terms]
            matched = np.any(np.array(counts) > 0, axis=0) & may
            scores = sum(2.0 * bm25(count.astype(float), lengths) for count in counts)
            with self.engine.snapshot() as view:
                got = view.lexical(" ".join(f"w{term}" for term in terms), 10, WHERES[share])
            assert len(got.rows) == len(set(got.rows)) == min(10, int(matched.sum()))
            assert matched[got.rows - 1].all()
            np.testing.assert_allclose(got.scores, np.sort(scores[matched])[::-1][:10], rtol=1e-3)
            np.testing.assert_allclose(got.scores, scores[got.rows - 1], rtol=1e-3)


@pytest.fixture(scope="module")
def whole(big: Big) -> Iterator[Claims]:
    engine = EmbeddedEngine.open(big.folder)
    yield Claims(engine, big, np.array([], dtype=int))
    engine.close()


@pytest.fixture(scope="module")
def thinned(big: Big, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Claims]:
    """Thirty in a hundred deleted, wherever they lie."""
    gone = np.random.default_rng(12).choice(COUNT, 3 * COUNT // 10, replace=False)
    engine = without(big, tmp_path_factory.mktemp("thinned") / "index", gone)
    yield Claims(engine, big, gone)
    engine.close()


@pytest.fixture(scope="module")
def beheaded(big: Big, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Claims]:
    """Exactly the nearest to the queries deleted: a hundred of each, and more at random up to thirty in a hundred."""
    nearest = np.unique(np.concatenate([np.argsort(-(big.vectors @ query))[:100] for query in big.queries]))
    others = np.setdiff1d(np.arange(COUNT), nearest)
    more = np.random.default_rng(13).choice(others, 3 * COUNT // 10 - len(nearest), replace=False)
    gone = np.concatenate([nearest, more])
    engine = without(big, tmp_path_factory.mktemp("beheaded") / "index", gone)
    yield Claims(engine, big, gone)
    engine.close()


@pytest.mark.parametrize("share", WHERES)
@pytest.mark.parametrize("state", ["whole", "thinned", "beheaded"])
def test_filters_and_tombstones_are_inside_the_dense_search(
    state: str, share: str, big: Big, request: pytest.FixtureRequest
) -> None:
    claims: Claims = request.getfixturevalue(state)
    assert claims.dense(share, big.queries) >= 0.99


@pytest.mark.parametrize("share", WHERES)
@pytest.mark.parametrize("state", ["whole", "thinned", "beheaded"])
def test_filters_and_tombstones_are_inside_the_lexical_search(
    state: str, share: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(state).lexical(share)


def test_matches_fewer_than_k_all_come_back(beheaded: Claims) -> None:
    where = {"bucket": 17}
    may = np.flatnonzero(beheaded.may("0.1%")) + 1
    with beheaded.engine.snapshot() as view:
        assert np.sort(view.dense(beheaded.big.queries[0], 5000, where).rows).tolist() == may.tolist()
        text = " ".join(f"w{number}" for number in range(100))
        found = view.lexical(text, 5000, where).rows
    wanted = may[(beheaded.big.words[may - 1] < 100).any(axis=1)]
    assert np.sort(found).tolist() == wanted.tolist()


def test_recall_is_measured_against_exact_search(whole: Claims) -> None:
    with whole.engine.snapshot() as view:
        rows, vectors = view.sample(4)
        assert len(rows) == 4
        np.testing.assert_array_equal(vectors, whole.big.vectors[rows - 1])
        assert recall(view, vectors, 10) >= 0.99
        exact = view.exact(whole.big.queries[:1], 10)[0]
    wanted = np.argsort(-(whole.big.vectors @ whole.big.queries[0]))[:10] + 1
    assert set(exact.rows) == set(wanted)


def test_scores_are_those_of_the_stored_vectors(whole: Claims) -> None:
    with whole.engine.snapshot() as view:
        got = view.dense(whole.big.queries[1], 10)
    np.testing.assert_allclose(got.scores, whole.big.vectors[got.rows - 1] @ whole.big.queries[1], atol=2e-6)
