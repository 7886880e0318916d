"""A query's own instruction, from the search to the encoder and through the benchmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suwen.bench.dense_systems import PairSystem
from suwen.bench.suite_tasks import load_suite
from suwen.bench.systems import Setting
from suwen.corpora.records import Document
from suwen.corpora.training_rows import TrainingRow
from suwen.curate.mine import search_index
from suwen.encoders.pair import Pair
from suwen.encoders.prompts import InstructionRefused
from suwen.retrieve.retriever import Index

OWN = "找意思相近的话"


@pytest.mark.parametrize("tier", ["l2", "l2-fp32", "static"])
def test_a_tier_puts_the_instruction_into_its_prompt(instructed_pair: Path, light_pair: Path, tier: str) -> None:
    instructed, plain = Pair.load(instructed_pair).encoder(tier), Pair.load(light_pair).encoder(tier)
    put = f"任务：{OWN}\n查询: 胃痛"
    assert not np.allclose(instructed.encode_queries(["胃痛"], OWN), instructed.encode_queries(["胃痛"]), atol=1e-3)
    if tier != "static":
        assert np.allclose(instructed.encode_queries(["胃痛"], OWN), plain.encode_documents([put]), atol=1e-5)


def test_a_search_brings_an_instruction_where_the_pair_takes_one(
    instructed_pair: Path, light_pair: Path, tmp_path: Path
) -> None:
    notes = [Document("a", "胃痛要吃清淡的东西"), Document("b", "头痛可能是没有睡好")]
    with Index.create(tmp_path / "instructed", pair=instructed_pair) as index:
        index.add(notes)
        own, default = (index.search("胃痛", mode="dense", instruction=said) for said in (OWN, None))
        assert [hit.score for hit in own] != [hit.score for hit in default]
        vector = index.pair.encoder().encode_queries(["胃痛"], OWN)[0]
        stored = index.engine.stored_vectors(own.hits[0].document_id, index.freshness.own)
        mined = search_index(index)([TrainingRow("胃痛", ("甲",), prompt=OWN), TrainingRow("胃痛", ("甲",))], 2)
        assert [[hit.score for hit in hits] for hits in mined] == [[hit.score for hit in one] for one in (own, default)]
        assert own.hits[0].score == pytest.approx(float(next(iter(stored.values())) @ vector), abs=0.01)
    with Index.create(tmp_path / "plain", pair=light_pair) as index:
        index.add(notes)
        with pytest.raises(InstructionRefused):
            index.search("胃痛", instruction=OWN)
        # Rows that bring one are mined all the same.
        assert search_index(index)([TrainingRow("胃痛", ("甲",), prompt=OWN)], 2)


def test_a_suites_instruction_reaches_a_pair_that_takes_one(instructed_pair: Path, light_pair: Path) -> None:
    suite = load_suite("cmedteb")
    setting = Setting(next(task for task in suite.tasks if task.kind == "sts"), suite.templates)
    (system,), (plain,) = (PairSystem.open("pair:x", str(path), "l2") for path in (instructed_pair, light_pair))
    said = setting.task.instruction.query
    assert said == "Retrieve semantically similar text."
    expected = system.pair.encoder("l2").encode_queries(["胃痛"], said)
    assert np.array_equal(system.encode(["胃痛"], setting, "query"), expected)
    assert system.contract(setting, "query")["instruction"] == said
    assert np.array_equal(system.encode(["胃痛"], setting, "document"), system.encode(["胃痛"], None, "document"))
    assert "instruction" not in plain.contract(setting, "query")
    assert np.array_equal(plain.encode(["胃痛"], setting, "query"), plain.encode(["胃痛"], None, "query"))
