"""Scores of several encoders' passages on one scale: the same as brute force, however the passages are found."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import encoded, unit

from suwen.index import snapshot, vectors
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import Reencoded, Scale
from suwen.index.stored_vectors import vectors_after

Make = Callable[..., EmbeddedEngine]
NAMES = ("document", "static", "rough")
SCALES = {"static": Scale(0.8, -0.2), "rough": Scale(1.3, 0.4)}


def expected(engine: EmbeddedEngine, query: np.ndarray, scales: dict[str, Scale], where: str | None) -> dict:
    """Every passage's score, by brute force over the truth."""
    found = {}
    rows, stored = vectors_after(engine._truth.reader(), 0, engine.dimension)
    for item, vector in zip(engine._truth.fetch(engine._truth.reader(), rows.tolist()), stored, strict=True):
        if where is None or item.metadata["lang"] == where:
            scale = scales.get(item.encoder, Scale(1.0, 0.0))
            found[item.passage.id] = scale.slope * float(vector @ query) + scale.offset
    return found


def compare(engine: EmbeddedEngine, query: np.ndarray, scales: dict[str, Scale], where: str | None, k: int) -> None:
    wanted = expected(engine, query, scales, where)
    with engine.snapshot() as view:
        ranking = view.dense(query, k, {"lang": where} if where else None, scales)
        ids = [item.passage.id for item in view.fetch(ranking.rows.tolist())]
    assert len(set(ids)) == len(ids) == min(k, len(wanted))
    np.testing.assert_allclose(ranking.scores, sorted(wanted.values(), reverse=True)[:k], atol=3e-6)
    for id_, score in zip(ids, ranking.scores, strict=True):
        assert abs(wanted[id_] - score) < 3e-6


@pytest.mark.parametrize("exact_limit", [20_000, 0], ids=["exact", "scanning"])
@pytest.mark.parametrize("score_all", [20_000, 2], ids=["few", "many"])
@given(steps=st.lists(st.sampled_from(["document", "static", "rough", "reencode", "delete", "compact"]), max_size=9))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
def test_any_mixture_is_ranked_as_by_brute_force(
    made: Make, monkeypatch: pytest.MonkeyPatch, exact_limit: int, score_all: int, steps: list[str]
) -> None:
    monkeypatch.setattr(snapshot, "EXACT_LIMIT", exact_limit)
    monkeypatch.setattr(vectors, "SCORED_BYTES", score_all * 64)
    rng = np.random.default_rng(len(steps))
    engine = made(uuid4().hex, documents=4, seal=3)
    for number, step in enumerate(steps):
        if step in NAMES:
            one = encoded(f"n{number}", ["一", "二"], unit(rng, 2, 16), {"lang": ("zh", "en")[number % 2]})
            engine.add([one._replace(encoder=step, digest="1")])
        elif step == "reencode":
            waiting = engine.waiting("document", 2)
            engine.reencode([Reencoded(w.id, w.version, unit(rng, len(w.contents), 16)) for w in waiting], "document")
        elif step == "delete":
            engine.delete([w.id for w in engine.waiting("static", 1)])
        else:
            engine.compact()
        for where in (None, "en"):
            compare(engine, unit(rng, 1, 16)[0], SCALES, where, (1, 3, 50)[number % 3])
    compare(engine, unit(rng, 1, 16)[0], {}, None, 5)


def test_nothing_is_mapped_without_a_scale(made: Make) -> None:
    engine = made(documents=3)
    query = unit(np.random.default_rng(1), 1, 16)[0]
    with engine.snapshot() as view:
        plain = view.dense(query, 6)
        assert view.encoders == ["static"]
        for scales in (None, {}, {"rough": Scale(2.0, 5.0)}):
            same = view.dense(query, 6, None, scales)
            assert same.rows.tolist() == plain.rows.tolist() and same.scores.tolist() == plain.scores.tolist()
        lifted = view.dense(query, 6, None, {"static": Scale(1.0, 1.0)})
        np.testing.assert_allclose(lifted.scores, plain.scores + 1, atol=2e-6)


def test_the_larger_group_does_not_crowd_the_smaller_out(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so few candidates that the scan would find the favoured group alone."""
    monkeypatch.setattr(snapshot, "EXACT_LIMIT", 0)
    monkeypatch.setattr(vectors, "SCORED_BYTES", 0)
    monkeypatch.setattr(vectors, "RESCORED_BYTES", 0)
    monkeypatch.setattr(snapshot, "_MARGIN", 0)
    engine = made(documents=0, seal=8)
    rng = np.random.default_rng(5)
    query = unit(rng, 1, 16)[0]
    near = 0.9 * query + 0.1 * unit(rng, 200, 16)
    far = 0.5 * query + 0.5 * unit(rng, 4, 16)
    fresh = [encoded(f"f{n}", ["一"], v[None] / np.linalg.norm(v), {"lang": "zh"}) for n, v in enumerate(near)]
    kept = [encoded(f"e{n}", ["一"], v[None] / np.linalg.norm(v), {"lang": "zh"}) for n, v in enumerate(far)]
    engine.add([*fresh, *(one._replace(encoder="document") for one in kept)])
    with engine.snapshot() as view:
        best = view.dense(query, 4, None, {"static": Scale(1.0, -1.0)})
        assert {item.encoder for item in view.fetch(best.rows.tolist())} == {"document"}
        assert {item.encoder for item in view.fetch(view.dense(query, 4).rows.tolist())} == {"static"}


def test_a_view_extends_the_one_before(made: Make) -> None:
    engine = made(documents=5)
    rng = np.random.default_rng(0)
    for number in range(3):
        engine.add([encoded(f"x{number}", ["一"], unit(rng, 1, 16))._replace(encoder="document")])
        with engine.snapshot() as view:
            groups = view._view.groups
            assert groups.rest == "static"
            assert len(groups.listed["document"]) == number + 1
    engine.delete(["x0"])
    with engine.snapshot() as view:
        assert len(view._view.groups.listed["document"]) == 2
    engine.delete([f"d{number}" for number in range(5)])
    with engine.snapshot() as view:
        assert view.encoders == ["document"]
