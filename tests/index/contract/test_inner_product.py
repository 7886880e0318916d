"""Spaces of inner product: vectors keep their lengths, and long ones win where they ought to. For every engine."""

from __future__ import annotations

import numpy as np
import pytest
from engines import Making
from naive import encoded, ids_of, unit

from suwen.index import snapshot as snapshots
from suwen.index.engine import Scale
from suwen.index.recall import measure_recall

RNG = np.random.default_rng(11)


def uneven(count: int, dimension: int = 16) -> np.ndarray:
    """Random directions with lengths that differ by an order of magnitude."""
    return np.asarray(unit(RNG, count, dimension) * np.exp(RNG.standard_normal((count, 1))), dtype=np.float32)


@pytest.fixture(params=[20_000, 0], ids=["exact", "by sign bits"])
def ranked_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EXACT_LIMIT", request.param)


@pytest.mark.usefixtures("ranked_by")
def test_the_best_are_those_of_the_largest_product(make: Making) -> None:
    engine, vectors = make(0, similarity="dot"), uneven(40)
    for number, vector in enumerate(vectors):
        engine.add([encoded(f"d{number}", [f"第{number}篇"], vector[None, :])])
    query = 3 * RNG.standard_normal(16).astype(np.float32)
    with engine.snapshot() as view:
        ranking = view.dense(query, 40)
        ids = [item.passage.document_id for item in view.fetch(ranking.rows.tolist())]
    stored = vectors.astype(np.float16).astype(np.float32) @ query
    assert ids == [f"d{number}" for number in np.argsort(-stored)]
    np.testing.assert_allclose(ranking.scores, np.sort(stored)[::-1], rtol=1e-5, atol=1e-5)
    assert engine.similarity == make.again(engine).similarity == "dot"
    assert "similarity" not in engine.settings()


@pytest.mark.usefixtures("ranked_by")
def test_replaced_deleted_and_filtered_ones_keep_out(make: Making) -> None:
    engine, vectors = make(0, similarity="dot"), uneven(24)
    engine.add([encoded(f"d{i}", [f"第{i}篇"], vectors[i][None, :], {"odd": i % 2}) for i in range(24)])
    query = np.ones(16, np.float32)
    order = [f"d{number}" for number in np.argsort(-(vectors @ query))]
    engine.delete([order[0]])
    engine.add([encoded(order[1], ["短了"], vectors[int(order[1][1:])][None, :] / 1000, {"odd": 7})])
    with engine.snapshot() as view:
        first = view.fetch(view.dense(query, 1).rows.tolist())[0]
        odd = view.fetch(view.dense(query, 24, {"odd": 1}).rows.tolist())
        # A fresh document's scale is applied before the best are chosen, whatever their size.
        scaled = view.dense(query, 1, scales={"static": Scale(2.0, 100.0)})
        plain = view.dense(query, 1)
    assert first.passage.document_id == order[2]
    assert [item.passage.document_id for item in odd] == [id_ for id_ in order[2:] if int(id_[1:]) % 2]
    assert scaled.scores[0] == pytest.approx(2 * plain.scores[0] + 100, rel=1e-6)


def test_recall_of_large_products_is_not_lost_to_rounding(make: Making) -> None:
    engine = make(0, similarity="dot")
    engine.add([encoded(f"d{i}", [f"第{i}篇"], 900 * uneven(1)) for i in range(12)])
    assert measure_recall(engine, 6, 5) == (1.0, 5, 6)


def test_an_index_says_nothing_of_its_similarity_where_it_is_the_cosine(make: Making) -> None:
    engine = make(3)
    assert engine.similarity == "cosine"
    assert engine.stats().format <= make(0, similarity="dot").stats().format
    assert len(ids_of(engine)) == 6
