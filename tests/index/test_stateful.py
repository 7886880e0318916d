"""Random adds, upserts, deletes, seals, compactions, rebuilds and reopenings, held against the naive model."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from naive import NaiveEngine, encoded, same, unit

from in_memory import new_folder, remove
from suwen.index import snapshot, vectors
from suwen.index.embedded import EmbeddedEngine
from suwen.index.filters import FilterError

DIMENSION = 12
WORDS = ("高血压", "糖尿病", "头痛", "阿司匹林", "肾结石", "stroke", "fever", "HbA1c")
IDS = st.sampled_from([f"d{number}" for number in range(8)])
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "year": st.sampled_from([2019, 2020, 2020.5, 2021]),
        "lang": st.sampled_from(["zh", "en", ["zh", "en"], []]),
        "flag": st.booleans(),
        "mixed": st.sampled_from(["2020", 2020, "b", [1, "a"]]),
    },
)
WHERES: list[dict[str, Any] | None] = [
    None,
    {"year": 2020},
    {"year": [2019, 2021]},
    {"year": {"gte": 2020, "lt": 2021}},
    {"lang": "zh"},
    {"lang": []},
    {"flag": True},
    {"flag": False, "year": {"gt": 2019}},
    {"mixed": "2020"},
    {"mixed": 2020},
    {"mixed": {"gte": "a"}},
    {"mixed": {"lte": 2020}},
    {"nothing": 1},
    {"year": {"ne": 2020}, "$or": [{"lang": None}, {"flag": True}]},
    {"$not": {"mixed": ["b", 1]}, "lang": {"missing": False}},
]


class Against(RuleBasedStateMachine):
    """One index beside the model; a second engine reads along from its own connection."""

    exact_limit = 20_000

    @initialize(seed=st.integers(0, 2**16))
    def create(self, seed: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(snapshot, "EXACT_LIMIT", self.exact_limit)
        self.patch.setattr(vectors, "SCORED_BYTES", 3 * DIMENSION)
        self.rng = np.random.default_rng(seed)
        self.place = new_folder()
        self.folder = self.place / "index"
        self.writer = EmbeddedEngine.create(self.folder, space="sp-test", dimension=DIMENSION, seal=5)
        self.reader = EmbeddedEngine.open(self.folder)
        self.model = NaiveEngine("sp-test", DIMENSION)
        self.turn = 0

    @rule(ids=st.lists(IDS, min_size=1, max_size=4, unique=True), metadata=METADATA, data=st.data())
    def add(self, ids: list[str], metadata: dict[str, Any], data: st.DataObject) -> None:
        batch = []
        for id_ in ids:
            texts = data.draw(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), max_size=3))
            made = [" ".join(text) for text in texts]
            batch.append(encoded(id_, made, unit(self.rng, len(made), DIMENSION).reshape(-1, DIMENSION), metadata))
        self.writer.add(batch)
        self.model.add(batch)

    @rule(ids=st.lists(IDS, max_size=3, unique=True))
    def delete(self, ids: list[str]) -> None:
        assert self.writer.delete(ids) == self.model.delete(ids)

    @rule()
    def compact(self) -> None:
        self.writer.compact()
        self.model.store.ghosts.clear()

    @rule()
    def rebuild(self) -> None:
        self.writer.rebuild()
        self.model.store.ghosts.clear()

    @rule(order=st.booleans())
    def reopen(self, order: bool) -> None:
        if order:
            self.reader.close()
        self.writer.close()
        self.writer = EmbeddedEngine.open(self.folder, write=True, seal=5)
        if order:
            self.reader = EmbeddedEngine.open(self.folder)
        assert not self.writer.healed

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def answers_like_the_model(self) -> None:
        self.turn += 1
        where = WHERES[self.turn % len(WHERES)]
        k = (1, 3, 50)[self.turn % 3]
        self.compare(self.writer, k, None)
        for engine in (self.writer, self.reader):
            self.compare(engine, k, where)
        assert self.writer.stats()[:2] == self.model.stats()[:2]

    def compare(self, engine: EmbeddedEngine, k: int, where: dict[str, Any] | None) -> None:
        query = unit(self.rng, 1, DIMENSION)[0]
        text = " ".join(self.rng.choice(WORDS, 2))
        with engine.snapshot() as view, self.model.snapshot() as model:
            try:
                model.admitted(where)
            except FilterError as refused:
                with pytest.raises(type(refused), match=re.escape(str(refused).split(", such as")[0])):
                    view.dense(query, k, where)
                return
            ranking = view.dense(query, k, where)
            same(ranking, view.fetch(ranking.rows.tolist()), model.dense_scores(query, where), k, 3e-6)
            ranking = view.lexical(text, k, where)
            same(ranking, view.fetch(ranking.rows.tolist()), model.lexical_scores(text, where), k, 1e-4)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            assert self.writer.verify() == []
            self.reader.close()
            self.writer.close()
            remove(self.place)
            self.patch.undo()


class AgainstScanning(Against):
    """The same through the bit scan: with so few passages every one is a candidate, so nothing may be missed."""

    exact_limit = 0


_PACE = settings(
    max_examples=12,
    stateful_step_count=16,
    deadline=None,
    derandomize=True,
    database=None,
    # A failing run of steps is short as it is, and shrinking one that syncs to disk takes minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestExact = Against.TestCase
TestExact.settings = _PACE
TestScanning = AgainstScanning.TestCase
TestScanning.settings = _PACE
