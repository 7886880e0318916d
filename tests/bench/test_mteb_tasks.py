"""mteb may be missing: pytrec-eval-terrier, which it needs, has no wheel for linux-aarch64.

So the definitions are checked against what mteb's ``TaskMetadata`` and ``ModelMeta`` accept, and mteb runs nothing.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from suwen.bench.dense_systems import PairSystem
from suwen.bench.mteb_tasks import (
    MtebError,
    PairModel,
    build_tasks,
    definitions,
    main_score,
    pair_meta,
    pair_rows,
    ranked_parts,
    wrap_pair,
)
from suwen.bench.suite_tasks import load_suite, suites
from suwen.bench.task_data import Paired, Ranked, Source

ALL = [(name, definition) for name in suites() for definition in definitions(name)]
# The fields of mteb 2's TaskMetadata and ModelMeta, both of which forbid others.
TASK_FIELDS = {
    *("name", "description", "prompt", "type", "modalities", "category", "reference", "eval_splits", "eval_langs"),
    *("main_score", "date", "domains", "task_subtypes", "license", "annotations_creators", "dialect"),
    *("sample_creation", "bibtex_citation", "adapted_from", "is_public", "dataset"),
}
REQUIRED_OF_A_MODEL = {
    *("loader", "name", "revision", "release_date", "languages", "n_parameters", "memory_usage_mb", "max_tokens"),
    *("embed_dim", "license", "open_weights", "public_training_code", "public_training_data", "framework"),
    *("similarity_fn_name", "use_instructions", "training_datasets"),
}


@pytest.mark.parametrize(("suite", "definition"), ALL, ids=[definition["name"] for _, definition in ALL])
def test_definitions_are_what_mteb_accepts(suite: str, definition: dict):
    assert definition.keys() <= TASK_FIELDS
    assert definition["name"].startswith(f"{suite}-")
    assert definition["type"] in {"Retrieval", "Reranking", "STS"}
    assert set(definition["dataset"]) == {"path", "revision"} and all(definition["dataset"].values())
    assert definition["eval_langs"][0] in {"cmn-Hans", "eng-Latn"} and definition["eval_splits"][0]
    kinds = r"(ndcg|map|mrr|recall)_at_(1|3|5|10|20|100|1000)|cosine_(pearson|spearman)"
    assert re.fullmatch(kinds, definition["main_score"])
    assert definition["license"] is None or definition["license"] == definition["license"].lower()
    assert definition["reference"] is None or definition["reference"].startswith("https://")
    assert definition["prompt"] is None or set(definition["prompt"]) <= {"query", "document"}


def test_every_task_has_a_definition_of_its_own_name():
    names = [definition["name"] for _, definition in ALL]
    assert len(names) == len(set(names)) == sum(len(load_suite(name).tasks) for name in suites())


def test_main_scores_by_mtebs_names():
    care, cardio, bm = (load_suite(name) for name in ("cmedteb", "cardioembed", "bmretriever"))
    assert main_score(care.task("CMedTEB-Retrieval")) == "ndcg_at_10"
    assert main_score(care.task("CMedTEB-STS")) == "cosine_pearson"
    assert main_score(cardio.task("Cardiology-Paraphrase")) == "recall_at_1"
    assert main_score(bm.task("RELISH")) == "map_at_1000"


def test_prompts_and_pins_come_from_the_suite():
    by_name = {definition["name"]: definition for _, definition in ALL}
    found = by_name["cmedteb-CMedQAv1-reranking"]
    assert found["dataset"]["path"] == "mteb/CMedQAv1-reranking" and len(found["dataset"]["revision"]) == 40
    assert found["prompt"]["query"].startswith("Based on a Chinese medical question")
    assert by_name["cmedteb-CMedTEB-Retrieval"]["dataset"]["revision"] == "local"


def test_data_in_mtebs_shape():
    source = Source(Path())
    data = Ranked(["d1", "d2"], ["甲", "乙"], ["q"], ["问"], {"q": {"d1": 1}}, source, [[1, 0]])
    assert ranked_parts(data) == {
        "corpus": [{"id": "d1", "title": "", "text": "甲"}, {"id": "d2", "title": "", "text": "乙"}],
        "queries": [{"id": "q", "text": "问"}],
        "relevant_docs": {"q": {"d1": 1}},
        "top_ranked": {"q": ["d2", "d1"]},
    }
    assert pair_rows(Paired(["a"], ["b"], [0.5], source)) == [{"sentence1": "a", "sentence2": "b", "score": 0.5}]


def test_a_pairs_meta_is_explicit_and_differs_by_tier(light_pair: Path):
    systems = PairSystem.open("pair:x", str(light_pair), "all")
    found = [pair_meta(system) for system in systems]
    assert all(meta.keys() == REQUIRED_OF_A_MODEL for meta in found)
    assert [meta["name"] for meta in found] == [
        "suwen/tiny-light-l2",
        "suwen/tiny-light-l2-fp32",
        "suwen/tiny-light-static",
    ]
    assert len({meta["revision"] for meta in found}) == 3 and all(meta["revision"] for meta in found)
    assert found[0]["embed_dim"] == 24 and found[0]["similarity_fn_name"] == "cosine"


def test_a_pair_encodes_as_mteb_asks(light_pair: Path):
    (system,) = PairSystem.open("pair:x", str(light_pair), "l2-fp32")
    model = PairModel(system)
    batches = [{"text": ["胃痛", "高血压"]}, {"text": ["疫苗"]}]
    queries = model.encode(batches, prompt_type="query")
    documents = model.encode(batches, prompt_type="document")
    assert np.allclose(queries, system.encode(["胃痛", "高血压", "疫苗"], None, "query"))
    assert np.allclose(documents, system.encode(["胃痛", "高血压", "疫苗"], None, "document"))
    assert np.array_equal(model.encode(batches), queries)  # STS: no side
    every = model.similarity(queries, documents)
    assert every.shape == (3, 3) and np.allclose(np.diag(every), model.similarity_pairwise(queries, documents))
    assert every[0, 0] == pytest.approx(float(queries[0] @ documents[0]), abs=1e-5)


def test_mteb_takes_the_definitions_or_the_way_to_get_it_is_said(light_pair: Path):
    if importlib.util.find_spec("mteb") is not None:
        assert [task.metadata.name for task in build_tasks("cmirb")] == [one["name"] for one in definitions("cmirb")]
        assert wrap_pair(str(light_pair)).mteb_model_meta.name == "suwen/tiny-light-l2"
        return
    with pytest.raises(MtebError, match=r"pip install mteb.*suwen bench run"):
        build_tasks("cmirb")
    with pytest.raises(MtebError, match="pip install mteb"):
        wrap_pair(str(light_pair))
