"""SL-HyDE's stages: the loop turns on a small world, its rounds end by themselves, and bad input is counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suwen.corpora.training_rows import read_training_rows
from suwen.encoders.adapter import load_adapter
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe_runner import train
from suwen.training.run_context import ROWS
from suwen.training.teacher_vectors import TeacherVectors


def told(folder: Path, stage: str) -> dict[str, float]:
    said: dict[str, float] = json.loads((folder / stage / "metrics.json").read_text(encoding="utf-8"))
    return said


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All stages on a writer that knows nothing, two steps each: more than by chance is asked of the first round."""
    recipe = load_recipe("sl-hyde-tiny", ["stages.round-1.least_gain=100"])
    return train(recipe, tmp_path_factory.mktemp("runs"), device="cpu", dry_run=True).folder


def test_a_round_that_gains_nothing_ends_the_rounds_and_what_comes_after_goes_on(tried: Path) -> None:
    assert told(tried, "round-1")["stopped"] == 1.0
    for name in ("chosen-2", "generator-2", "written-2", "retriever-2"):
        assert told(tried, name)["skipped"] == 1.0 and not (tried / name / "model").exists()
    last = told(tried, "round-2")
    assert (last["stopped"], last["gain"], last["score"]) == (1.0, 0.0, told(tried, "start")["score"])
    assert not (tried / "round-2" / "model" / "generator").exists(), "the start had no adapter"
    assert "mean" in told(tried, "distilled-joint")


def test_what_is_of_no_use_is_counted_and_its_query_stays_in_the_rows(tried: Path) -> None:
    written, rows = told(tried, "written"), list(read_training_rows(tried / "written" / "model" / ROWS))
    assert written["asked"] == len(rows) == written["rows"]
    assert sum(bool(row.hypothetical) for row in rows) == written.get("kept", 0.0) < len(rows)
    assert sum(one for key, one in written.items() if key in ("endless", "empty", "language", "echo", "loop")) > 0
    assert len(load_adapter(tried / "generator" / "model" / "adapter")) == 14


def test_texts_with_a_document_have_the_fused_vector_as_their_target(tried: Path) -> None:
    vectors = TeacherVectors(tried / "fused")
    plain, fused = vectors.array("plain-query"), vectors.array("query")
    moved = np.abs(plain.astype(np.float32) - fused.astype(np.float32)).max(1) > 1e-3
    beside = {json.loads(line)["query"] for line in _lines(tried / "beside" / "model" / "texts.jsonl.gz")}
    assert len(plain) == len(fused) and 0 < moved.sum() <= len(beside) < len(plain)
    lengths = np.linalg.norm(fused.astype(np.float32), axis=1)
    assert np.allclose(lengths, 1, atol=2e-3)


def test_a_stage_says_what_it_needs() -> None:
    with pytest.raises(RecipeError, match="exactly one of them"):
        load_recipe("sl-hyde-tiny", ["stages.queries.model=small"])
    with pytest.raises(RecipeError, match="`choose` needs `queries`"):
        load_recipe("sl-hyde-tiny", ["stages.chosen.queries=null"])
    with pytest.raises(RecipeError, match="stage of kind queries"):
        load_recipe("sl-hyde-tiny", ["stages.retriever.rewrites=queries"])
    with pytest.raises(RecipeError, match="have no effect with `rewrites`"):
        load_recipe("sl-hyde-tiny", ["stages.retriever.rows.sources=[consult]"])


def test_only_texts_of_the_stages_language_are_written_for() -> None:
    stage, counts = load_recipe("sl-hyde-tiny").stage("queries"), Counter[str]()
    texts = ["高血压要少吃盐。", "Eat less salt.", "高血压要少吃盐。", "糖尿病的HbA1c偏高。"]
    context = SimpleNamespace(texts=lambda path=None: SimpleNamespace(texts=texts, of_kinds=lambda _: range(4)))
    assert stage.texts_of(context, None, counts) == [texts[0], texts[3]] and counts["other_language"] == 1


@pytest.mark.parametrize("name", ["sl-hyde", "sl-hyde-mini"])
def test_the_recipes_of_a_gpu_run_dry(name: str, tmp_path: Path) -> None:
    report = train(load_recipe(name), tmp_path, device="cpu", dry_run=True)
    assert [one.name for one in report.stages] == [one.name for one in load_recipe(name).stages]
    assert told(report.folder, "round-1")["asked"] > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["sl-hyde", "sl-hyde-mini"])
def test_every_variant_of_the_papers_tables_runs_dry(name: str, tmp_path: Path) -> None:
    for variant in load_recipe(name).variants:
        recipe = load_recipe(name, variant=variant)
        report = train(recipe, tmp_path, device="cpu", dry_run=True)
        assert [one.name for one in report.stages] == [one.name for one in recipe.stages]


#: The first round of the small world, and what the generator alone has gained by it.
ROUND = ("queries", "start", "chosen", "generator", "generator-alone", "written", "retriever", "round-1")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4))], ids="seed {}".format
)
def test_the_loop_turns(seed: int, tmp_path: Path) -> None:
    """Of each margin at most half of the least that seeds 0 to 4 showed, on documents that no stage was trained on.

    What is drawn depends on what is sampled together and on the number of threads: a seed does not repeat to the bit.
    """
    folder = train(load_recipe("sl-hyde-tiny"), tmp_path, device="cpu", seed=seed, only=ROUND).folder
    start, tuned, end = (told(folder, name) for name in ("start", "generator-alone", "round-1"))
    chosen = told(folder, "chosen")
    assert chosen["chosen_mrr"] > chosen["random_mrr"] + 7, "what was chosen ranks no better than what is drawn"
    assert tuned["written"] > start["written"] + 4, "the tuned generator writes no better documents than the raw one"
    assert end["alone"] > start["alone"] + 7, "the tuned retriever finds no more by queries alone"
    assert end["fused"] > start["fused"] + 8, "nor with what the tuned generator writes"
    assert end["gain"] == pytest.approx(end["fused"] - start["fused"]) and not end["stopped"]


PAIR = """
name: pair-rounds
faithful: fixed
seed: 0
dimension: 32
data:
  root: builtin:tiny
  rows: ${DATA}/rows
  texts: ${DATA}/texts.jsonl.gz
  held_out: ${DATA}/held-out.jsonl.gz
tokenizer: {vocabulary: 1200}
students:
  light: {kind: static, max_length: 32, document_length: 48, prompts: {query: "[Q]", document: "[D]"}}
stages:
  - {stage: document, name: document, base: "builtin:qwen2-tiny", lora: {rank: 8, alpha: 16, dropout: 0.0},
     max_length: 48, rows: {sources: [consult], negatives: 1},
     training: {steps: 2, batch: 8, learning_rate: 1e-3, checkpoint_every: 0}}
  - {stage: queries, name: queries, base: "builtin:writer-tiny", kinds: [answer], context: 512}
  - {stage: round, name: start, base: "builtin:writer-tiny", queries: queries, student: light, document: document}
  - {stage: rewrites, name: written, base: "builtin:writer-tiny", queries: queries, count: 1}
  - {stage: vectors, name: vectors, start: document, forms: {query: [query], document: [answer]}, rows: {},
     rewrites: written}
  - &joint {stage: joint, name: joint, student: light, document: document, vectors: vectors, rewrites: written,
     hyde: {weight: 1.0}, negatives: 2, mine: {first_rank: 1, last_rank: 20, margin: 1.0, count: 2},
     training: {steps: 2, batch: 8, learning_rate: 1e-3, checkpoint_every: 0}}
  - &round {stage: round, name: round-1, base: "builtin:writer-tiny", queries: queries, retriever: joint,
     document: joint}
  - {stage: vectors, name: vectors-2, start: round-1, forms: {query: [query], document: [answer]}, rows: {},
     rewrites: written}
  - {<<: *joint, name: joint-2, start: round-1, document: round-1, vectors: vectors-2}
  - {<<: *round, name: round-2, retriever: joint-2, document: joint-2, before: round-1, least_gain: 100}
  - {stage: vectors, name: vectors-3, start: round-2, forms: {query: [query], document: [answer]}}
"""


def test_rounds_of_a_pair_train_both_sides_and_go_back_to_both(tmp_path: Path) -> None:
    (tmp_path / "pair-rounds.yaml").write_text(PAIR, encoding="utf-8")
    folder = train(load_recipe(tmp_path / "pair-rounds.yaml"), tmp_path / "runs", device="cpu", dry_run=True).folder
    adapters = {name: _adapter(folder, name) for name in ("joint", "round-1", "joint-2", "round-2")}
    first = load_adapter(folder / "document" / "model" / "adapter")
    assert not _same(first, adapters["joint"]), "the documents' side has not moved"
    assert _same(adapters["joint"], adapters["round-1"]) and not _same(adapters["round-1"], adapters["joint-2"])
    assert told(folder, "round-2")["stopped"] == 1.0
    assert _same(adapters["round-2"], adapters["round-1"]), "the round that gained nothing is kept"
    assert (folder / "round-2" / "model" / "modules.json").is_file(), "its query encoder is lost"
    again, before = (TeacherVectors(folder / name).array("document") for name in ("vectors-3", "vectors-2"))
    assert np.allclose(again[:20].astype(np.float32), before[:20].astype(np.float32), atol=2e-3)
    with pytest.raises(RecipeError, match="another kind of retriever"):
        load_recipe(tmp_path / "pair-rounds.yaml", ["stages.round-2.document=null"])


def _adapter(folder: Path, name: str) -> dict[str, Any]:
    return load_adapter(folder / name / "model" / "document" / "adapter")


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(a.numpy(), b.numpy()) for key in one for a, b in zip(one[key], other[key], strict=True))


def _lines(file: Path) -> list[str]:
    import gzip

    return gzip.decompress(file.read_bytes()).decode().splitlines()
