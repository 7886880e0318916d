"""Rows whose scores by meaning are wanted whatever their place, as of what words found. For every engine."""

from __future__ import annotations

import numpy as np
import pytest
from engines import Making
from naive import encoded, unit

from suwen.index import snapshot as snapshots
from suwen.index.engine import Engine, Rows, Scale, Snapshot

RNG = np.random.default_rng(5)
VECTORS = unit(RNG, 30, 16)
QUERY = VECTORS[0]
#: Best first: what is stored are halves.
ORDER = [f"d{number}" for number in np.argsort(-(VECTORS.astype(np.float16).astype(np.float32) @ QUERY))]


@pytest.fixture(params=[20_000, 0], ids=["exact", "by sign bits"], autouse=True)
def searched_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EXACT_LIMIT", request.param)


@pytest.fixture
def engine(make: Making) -> Engine:
    engine = make(0)
    made = [encoded(f"d{n}", [f"第{n}篇"], VECTORS[n][None, :], {"odd": n % 2}) for n in range(30)]
    made = [one if n % 3 else one._replace(encoder="document") for n, one in enumerate(made)]
    engine.add(made[:24])
    if engine.abilities.upkeep:
        engine.compact()
    engine.add(made[24:])
    return engine


def ids_of(view: Snapshot, rows: Rows) -> list[str]:
    return [item.passage.document_id for item in view.fetch(rows.tolist())]


def test_they_stand_below_the_best_with_their_true_scores(engine: Engine) -> None:
    with engine.snapshot() as view:
        whole = view.dense(QUERY, 30)
        beside = np.sort(whole.rows[[1, 28, 12, 20]])
        found = view.dense(QUERY, 4, beside=beside)
        assert ids_of(view, found.rows) == [*ORDER[:4], ORDER[12], ORDER[20], ORDER[28]]
        places = [whole.rows.tolist().index(row) for row in found.rows.tolist()]
        np.testing.assert_allclose(found.scores, whole.scores[places], atol=1e-6)
        assert view.dense(QUERY, 4, beside=np.empty(0, np.int64)).rows.tolist() == whole.rows[:4].tolist()


def test_a_filter_and_the_scales_of_encoders_hold_for_them(engine: Engine) -> None:
    scales = {"static": Scale(0.5, 0.1)}
    with engine.snapshot() as view:
        whole = view.dense(QUERY, 30, {"odd": 1}, scales)
        beside = np.sort(whole.rows[[0, 7, 11]])
        found = view.dense(QUERY, 3, {"odd": 1}, scales, beside)
        assert found.rows.tolist() == whole.rows[[0, 1, 2, 7, 11]].tolist()
        np.testing.assert_allclose(found.scores, whole.scores[[0, 1, 2, 7, 11]], atol=1e-6)


def test_the_vectors_of_passages_come_in_the_order_asked_for(engine: Engine) -> None:
    with engine.snapshot() as view:
        rows = view.dense(QUERY, 30).rows[[28, 3, 0, 17]]
        numbers = [int(id_.removeprefix("d")) for id_ in ids_of(view, rows)]
        np.testing.assert_allclose(view.vectors(rows), VECTORS[numbers], atol=1e-3)
        assert len(view.vectors(rows[:0])) == 0
