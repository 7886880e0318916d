"""A reranker from rows to an int8 graph: the whole way with tiny models, and from what ships."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suwen.corpora.training_rows import read_training_rows
from suwen.encoders.reranker import Reranker
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.stage_identity import digest, identity
from suwen.training.recipe.stand_in import with_builtins
from suwen.training.recipe_runner import train
from suwen.training.run_context import ROWS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All stages of the tiny recipe."""
    return train(load_recipe("reranker-tiny"), tmp_path_factory.mktemp("runs"), device="cpu").folder


def told(run: Path, stage: str) -> dict[str, float]:
    said: dict[str, float] = json.loads((run / stage / "metrics.json").read_text(encoding="utf-8"))
    return said


def test_the_teacher_scores_every_candidate_and_negatives_are_no_positives(run: Path) -> None:
    rows = list(read_training_rows(run / "scores" / "model" / ROWS))
    assert len(rows) == told(run, "scores")["lists"] > 100
    assert all(len(row.pos_scores) == 1 and len(row.neg_scores) == len(row.neg) > 0 for row in rows)
    assert not any(set(row.pos) & set(row.neg) for row in rows)
    assert len({score for row in rows for score in row.neg_scores}) > 50, "scores tell candidates apart"


def test_the_export_is_the_model_and_is_measured(run: Path) -> None:
    reranker, metrics = Reranker.load(run / "export" / "model"), told(run, "export")
    assert metrics["torch_furthest"] < 1e-3 and metrics["int8_correlation"] > 0.9
    assert set(reranker.manifest.measured) == {"dev-dev"} and reranker.manifest.measured["dev-dev"].language == "zh"
    row = next(read_training_rows(run / "scores" / "model" / ROWS))
    scores = reranker.scores(row.query, [*row.pos, *row.neg])
    assert len(scores) == 1 + len(row.neg) and np.std(scores) > 0


def test_a_teacher_from_disk_scores_as_the_one_in_memory(run: Path, tmp_path: Path) -> None:
    """A resumed run has nothing but the folder of the stage before."""
    import torch

    from suwen.training.cross_encoders import CrossEncoder, candidates, score_all, scoring_tower
    from suwen.training.run_context import RunContext

    recipe = with_builtins(load_recipe("reranker-tiny"), run.parents[1] / "builtin")
    context = RunContext(recipe, run, device="cpu")
    stage, rows = recipe.stage("teacher"), list(read_training_rows(run / "scores" / "model" / ROWS))[:6]
    teacher = CrossEncoder.load(context, "teacher")
    teacher.settle()
    texts = candidates(rows, stage.template, stage.query_characters)
    with torch.inference_mode():
        tower = scoring_tower(teacher.model, texts, stage.training, stage.max_length, tmp_path)
        again = score_all(tower, len(texts), tower.tokens, 512)
    stored = [score for row in rows for score in (*row.pos_scores, *row.neg_scores)]
    # The adapter is kept in 16 bits.
    np.testing.assert_allclose(again, stored, atol=0.02 + 0.02 * np.abs(stored).max())


@pytest.mark.parametrize("words", [False, True])
def test_a_tier_whose_first_layers_read_the_texts_apart_learns_and_is_exported(run: Path, words: bool) -> None:
    """The stages before are those of the run that is there: the same recipe under another name."""
    two = ["tier=l6", "base=null", "layers=3", "apart=2", "template='[Q]{query}[SEP][CLS][D]{document}'"]
    less = ["training.steps=2", "training.learning_rate=1e-4", f"words={str(words).lower()}"]
    settings = [f"name=reranker-two-{int(words)}", *(f"stages.reranker.{one}" for one in (*two, *less))]
    folder = train(load_recipe("reranker-tiny", settings), run.parents[1], device="cpu").folder
    metrics, row = told(folder, "export"), next(read_training_rows(folder / "scores" / "model" / ROWS))
    assert metrics["torch_furthest"] < 1e-3 and metrics["int8_correlation"] > 0.9
    # Two steps on, it still orders texts about as the tier does: what it starts from is worth something.
    reranker = Reranker.load(folder / "export" / "model")
    good, bad = reranker.scores("痛风发作能吃什么药", ["秋水仙碱用于痛风急性发作。", "佝偻病患儿要多晒太阳。"])
    assert good > bad and reranker.manifest.layers == 3 and np.isfinite(reranker.scores(row.query, row.pos)).all()


COSINES = """
name: reranker-cosines
faithful: fixed
dimension: 32
data: {root: "builtin:tiny", rows: "${DATA}/rows", texts: "${DATA}/texts.jsonl.gz", measure: null}
stages:
  - stage: document
    name: document
    base: builtin:qwen2-tiny
    lora: {rank: 4, alpha: 8, dropout: 0.0}
    dimensions: [32]
    max_length: 64
    prompts: {query: "问：", document: ""}
    rows: {sources: [consult]}
    training: {steps: 2, batch: 8, learning_rate: 5e-3, checkpoint_every: 0}
  - {stage: freeze, name: freeze, start: document}
  - stage: scores
    name: scores
    document: freeze
    temperature: 0.05
    rows: {sources: [consult], limit_per_source: 30}
    mine: {first_rank: 2, last_rank: 20, margin: null, count: 5}
    negatives: 5
  - stage: reranker
    name: reranker
    scores: scores
    base: builtin:bert-tiny
    tier: null
    template: "{query}</s>{document}"
    max_length: 64
    training: {steps: 2, batch: 8, learning_rate: 3e-3, checkpoint_every: 0}
"""


def test_a_document_encoder_scores_by_its_own_cosines(tmp_path: Path) -> None:
    """In place of a model that reads both together: each text is read once, and numbers are those of its vectors."""
    from suwen.training.run_context import RunContext
    from suwen.training.trained_document import document_encoder

    (tmp_path / "cosines.yaml").write_text(COSINES, encoding="utf-8")
    recipe, totals = load_recipe(str(tmp_path / "cosines.yaml")), dict[str, int]()

    def report(part: str, _done: int, total: int, _metrics: Mapping[str, float]) -> None:
        totals[part] = total

    run = train(recipe, tmp_path / "runs", device="cpu", progress=report).folder
    rows = list(read_training_rows(run / "scores" / "model" / ROWS))
    read = {text for row in rows for text in (*row.pos, *row.neg)}
    assert len(rows) == told(run, "scores")["lists"] > 20 and told(run, "reranker")["lists"] == len(rows)
    assert totals["scores/document"] == len(read) < sum(1 + len(row.neg) for row in rows)
    context = RunContext(with_builtins(recipe, tmp_path / "runs" / "builtin"), run, device="cpu")
    encoder = document_encoder(context, "freeze")
    for row in rows[:5]:
        query, documents = encoder.encode([row.query], form="query")[0], encoder.encode([*row.pos, *row.neg])
        np.testing.assert_allclose([*row.pos_scores, *row.neg_scores], documents @ query / 0.05, atol=2e-3)


def test_a_stage_says_what_it_needs() -> None:
    with pytest.raises(RecipeError, match="`apart` is for a `tier`"):
        load_recipe("reranker-tiny", ["stages.reranker.apart=1"])
    with pytest.raises(RecipeError, match="`words` goes with `apart`"):
        load_recipe("reranker-tiny", ["stages.reranker.words=true"])
    with pytest.raises(RecipeError, match="name one, and say null for the other"):
        load_recipe("reranker-tiny", ["stages.reranker.tier=l6"])
    with pytest.raises(RecipeError, match="no place for dropout"):
        load_recipe("reranker-tiny", ["stages.teacher.lora.dropout=0.1"])
    with pytest.raises(RecipeError, match="nothing to learn"):
        load_recipe("reranker-tiny", ["stages.reranker.labels=0", "stages.reranker.distil=0"])
    with pytest.raises(RecipeError, match="say who scores"):
        load_recipe("reranker-tiny", ["stages.scores.teacher=null"])
    with pytest.raises(RecipeError, match="name one of kind scores"):
        load_recipe("reranker-tiny", ["stages.reranker.scores=teacher"])


def test_another_pair_under_the_same_name_is_other_work(static_pair: Path, tmp_path: Path) -> None:
    """Candidates are mined with a tier of it, and a reranker may start from one: what is kept is not theirs."""
    pair = Path(shutil.copytree(static_pair, tmp_path / "pair"))
    manifest = json.loads((pair / "suwen.json").read_text(encoding="utf-8"))
    (tier,) = manifest["tiers"]
    named = [f"stages.{name}.{key}" for name in ("teacher", "scores") for key in (f"pair={pair}", f"tier={tier}")]
    starts = [f"stages.reranker.{key}" for key in (f"pair={pair}", f"tier={tier}", "base=null")]
    recipe = with_builtins(load_recipe("reranker-tiny", [*named, *starts]), tmp_path / "builtin")

    def digests() -> list[str]:
        # Without the stages it comes after, which change with them.
        return [digest(identity(recipe, name, 0) | {"after": {}}) for name in ("teacher", "scores", "reranker")]

    def rewrite(change: Callable[[dict[str, Any]], object]) -> None:
        change(manifest)
        (pair / "suwen.json").write_text(json.dumps(manifest), encoding="utf-8")

    before = digests()
    rewrite(lambda said: said.update(notes="told in other words"))
    assert digests() == before
    rewrite(lambda said: said["tiers"][tier]["files"].update({"embeddings.npy": "0" * 64}))
    retrained = digests()
    rewrite(lambda said: said["tiers"][tier]["prompts"].update(query="问："))
    asked = digests()
    assert all(len(set(versions)) == 3 for versions in zip(before, retrained, asked, strict=True))


@pytest.mark.parametrize("name", ["reranker", "reranker-mini"])
def test_the_larger_recipes_are_whole(name: str) -> None:
    kinds = [stage.stage for stage in load_recipe(name).stages if stage.stage != "freeze"]
    assert kinds[:3] == ["cross", "scores", "reranker"]


def test_the_variant_by_cosine_trains_no_teacher() -> None:
    stages = {stage.stage: stage for stage in load_recipe("reranker-mini", variant="by-cosine").stages}
    assert "cross" not in stages and stages["scores"].document == "large" and stages["scores"].negatives == 24
    assert stages["reranker"].drawn == 10


def test_a_teacher_and_a_document_encoder_score_together(tmp_path: Path) -> None:
    """What each says alone, of the same candidates, and the mean of the two."""
    file, teacher = tmp_path / "both.yaml", COSINES.split("stages:")[1].split("  - {stage: freeze")[0]
    cross = teacher.replace("stage: document\n    name: document", "stage: cross\n    name: teacher")
    for line in ("dimensions: [32]", 'prompts: {query: "问：", document: ""}'):
        cross = cross.replace(f"    {line}\n", "")
    file.write_text(COSINES.replace("  - stage: scores", f"{cross.lstrip(chr(10))}  - stage: scores"), encoding="utf-8")

    def scores(*settings: str) -> list[float]:
        more = [f"stages.scores.{one}" for one in settings]
        folder = train(load_recipe(str(file), more), tmp_path / "-".join(settings or ["none"]), device="cpu").folder
        rows = read_training_rows(folder / "scores" / "model" / ROWS)
        return [score for row in rows for score in (*row.pos_scores, *row.neg_scores)]

    cosine, read, both = scores(), scores("document=null", "teacher=teacher"), scores("teacher=teacher")
    assert np.std(cosine) > 0 and np.std(read) > 0
    np.testing.assert_allclose(both, (np.array(cosine) + read) / 2, atol=1e-2)


def test_on_a_gpu_candidates_are_found_with_the_tiers_own_weights(tmp_path: Path) -> None:
    """Its vectors of documents are those of the graph that ships, but for int8; any device but `cpu` does so."""
    from suwen.encoders.pair import Pair
    from suwen.training.cross_encoders import encoded
    from suwen.training.run_context import RunContext

    context = RunContext(load_recipe("reranker-mini"), tmp_path, device="cpu:0")
    texts = ["阿司匹林肠溶片饭前服用。", "Chest pain that spreads to the left arm", "小儿腹泻怎么办"]
    made = encoded(context, context.recipe.stage("teacher"), texts, "document")
    shipped = Pair.load().encoder("l6").encode(texts)
    assert np.einsum("ij,ij->i", made, shipped).min() > 0.995
