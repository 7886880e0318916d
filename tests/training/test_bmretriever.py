"""BMRetriever's training: two document stages in a space of inner product, its backbones, and a light query side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate.leakage import LeakageError
from suwen.encoders.adapter import load_adapter
from suwen.encoders.base_model import load_base
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.side import ModelError, Side
from suwen.encoders.space import load_manifest
from suwen.training.recipe.cost_estimate import estimate
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.stand_in import with_builtins
from suwen.training.recipe_runner import train
from suwen.training.tasks.row_tables import DataError
from suwen.training.teacher_vectors import TeacherVectors

GATED = "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]"
NEOX = "[query_key_value, dense, dense_h_to_4h, dense_4h_to_h]"
SHORT = (
    "data.measure=null",
    "stages.freeze.measure=false",
    *(f"stages.{name}.training.steps=2" for name in ("pretrain", "finetune", "align", "joint")),
    *(f"stages.{name}.training.batch=6" for name in ("pretrain", "finetune")),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny recipe from its pairs to its light pair, two steps a stage."""
    folder = tmp_path_factory.mktemp("runs")
    return train(load_recipe("bmretriever-tiny", SHORT), folder, device="cpu").folder


def test_the_frozen_space_is_of_inner_product_and_says_what_was_trained(run: Path) -> None:
    space = load_manifest(run / "freeze" / "model").space
    assert (space.similarity, space.normalise, space.pooling) == ("dot", False, "last")
    assert (space.dimension, space.full_dimension, space.end_token) == (32, 64, "<|im_end|>")
    assert space.prompts.document == "Represent this passage\npassage: "
    assert space.prompts.before("query", "Find it") == "Find it\nQuery: "
    base = json.loads((run / "finetune" / "config.json").read_text(encoding="utf-8"))["base"]
    encoder = DocumentEncoder.load(run / "freeze" / "model", base=base, device="cpu")
    lengths = np.linalg.norm(encoder.encode(["高血压怎么办", "the flu vaccine is safe", "胃痛"]), axis=1)
    assert np.ptp(lengths) > 0.01 and abs(lengths.mean() - 1) > 0.1


def test_fine_tuning_begins_with_the_adapter_of_pre_training(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run.parents[1], tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / run.parent.name / run.name / "finetune")
    (tmp_path / run.parent.name / run.name / "stages.json").unlink()
    kept = load_recipe("bmretriever-tiny", [*SHORT, "stages.finetune.training.steps=0"])
    folder = train(kept, tmp_path, device="cpu", only=["pretrain", "finetune"]).folder
    before, after = (load_adapter(folder / name / "model" / "adapter") for name in ("pretrain", "finetune"))
    trained = load_adapter(run / "finetune" / "model" / "adapter")
    for name, (down, up) in before.items():
        product = up @ down
        assert product.abs().max() > 0
        torch.testing.assert_close(after[name].up @ after[name].down, product, rtol=2e-3, atol=1e-5)
    assert any((trained[name].up - up).abs().max() > 1e-4 for name, (_, up) in before.items())


def test_students_of_length_one_find_documents_that_keep_their_lengths(run: Path) -> None:
    vectors = TeacherVectors(run / "vectors")
    stored = vectors.array("rows-document")
    assert vectors.by_dot and vectors.space == load_manifest(run / "freeze" / "model").space.id
    every = np.arange(len(stored))
    landed = vectors.targets(stored, "cpu").vectors(every).norm(dim=1)
    torch.testing.assert_close(landed, torch.ones(len(stored)))
    lengths = vectors.candidates(stored, "cpu").vectors(every).norm(dim=1)
    assert abs(float(lengths.mean()) - 1) < 1e-3 and float(lengths.std()) > 0
    pair = Pair.load(run / "export" / "model")
    assert pair.manifest.space.similarity == "dot" and pair.manifest.tiers["static"].aligned_to == vectors.space
    assert pair.encoder("static").encode_queries(["高血压怎么办"]).shape == (1, 32)


@pytest.mark.parametrize(("base", "modules"), [("gemma-tiny", GATED), ("mistral-tiny", GATED), ("neox-tiny", NEOX)])
def test_each_backbone_trains_with_recomputed_layers_in_pieces_and_keeps_its_end_token(
    tmp_path: Path, base: str, modules: str
) -> None:
    settings = [f"stages.{name}.base=builtin:{base}" for name in ("pretrain", "finetune")]
    settings += [f"stages.{name}.lora.modules={modules}" for name in ("pretrain", "finetune")]
    more = ["stages.pretrain.training.gradient_checkpointing=true", "stages.pretrain.training.chunk=4"]
    recipe = load_recipe("bmretriever-tiny", [*SHORT, *settings, *more])
    report = train(recipe, tmp_path, device="cpu", only=["pretrain"])
    learnt = load_adapter(report.folder / "pretrain" / "model" / "adapter")
    assert len(learnt) == (8 if base == "neox-tiny" else 14)
    assert all(up.abs().max() > 0 for _, up in learnt.values())
    side = Side(load_base(tmp_path / "builtin" / base, device="cpu", max_length=16, normalise=False), "document")
    ids = side.ids(["short", "a text that is far longer than the sixteen tokens it may have, and so is cut"])
    assert len(ids[1]) == 16 and [row[-1] for row in ids] == [side.tokenizer.eos_token_id] * 2
    assert not side.normalises


def test_a_backbone_without_an_end_token_is_refused(tmp_path: Path) -> None:
    recipe = with_builtins(load_recipe("bmretriever-tiny", SHORT), tmp_path / "builtin")
    file = tmp_path / "builtin" / "neox-tiny" / "tokenizer_config.json"
    said = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({key: value for key, value in said.items() if key != "eos_token"}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"neox-tiny names no end-of-text token.*say `eos_token`"):
        train(recipe, tmp_path / "runs", device="cpu", only=["pretrain"])


@pytest.mark.parametrize("change", ["base=builtin:gemma-tiny", "lora.rank=8", "similarity=cosine"])
def test_what_goes_on_with_an_adapter_must_be_of_its_kind(change: str) -> None:
    key = change.partition("=")[0].partition(".")[0]
    with pytest.raises(RecipeError, match=f"stages.finetune.{key}: not that of 'pretrain'"):
        load_recipe("bmretriever-tiny", [f"stages.finetune.{change}"])


@pytest.fixture
def data(run: Path, tmp_path: Path) -> Path:
    """The small world's data, to be changed."""
    return shutil.copytree(run.parents[1] / "builtin" / "tiny", tmp_path / "data")


def _trained(data: Path, out: Path, *sets: str) -> Path:
    recipe = load_recipe("bmretriever-tiny", [*SHORT, f"data.root={data}", *sets])
    return train(recipe, out, device="cpu", only=["pretrain", "finetune"]).folder


def test_what_is_measured_is_never_trained_on_though_no_file_holds_it_out(data: Path, tmp_path: Path) -> None:
    asked = [json.loads(line)["text"] for line in (data / "dev" / "queries.jsonl").read_text("utf-8").splitlines()]
    write_training_rows(data / "rows" / "own.jsonl.gz", [TrainingRow(text, ("一个回答",)) for text in asked])
    sets = ["data.held_out=null", "stages.finetune.rows={sources: [consult, own]}"]
    with pytest.raises(LeakageError, match=r"own\.jsonl\.gz: \d+ texts are evaluation texts"):
        _trained(data, tmp_path, *sets, f"data.measure={data / 'dev.toml'}")
    assert (_trained(data, tmp_path / "elsewhere", *sets) / "finetune" / "metrics.json").is_file()


def test_an_evaluation_set_of_the_paper_is_refused_before_anything_is_trained(data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "rows" / "consult.jsonl.gz", data / "rows" / "pubmed_qa-labelled.jsonl.gz")
    named = "stages.finetune.rows.sources=[consult, pubmed_qa-labelled]"
    paper = [*SHORT, f"data.root={data}", "faithful=paper"]
    told = r"stages\.finetune\.rows\.sources: pubmed_qa-labelled is of pubmedqa, on which BMRetriever's paper measures"
    for sets in ([named], ["stages.finetune.rows.sources=null"]):
        recipe = load_recipe("bmretriever-tiny", [*paper, f"data.rows={data / 'rows'}", *sets])
        with pytest.raises(DataError, match=told):
            train(recipe, tmp_path / "runs", device="cpu")
        with pytest.raises(DataError, match=told):
            estimate(recipe)
        assert not list((tmp_path / "runs").rglob("pretrain"))
        assert estimate(recipe, names=["pretrain"]).stages
    with pytest.raises(DataError, match=told):
        train(load_recipe("bmretriever-tiny", [*paper, named]), tmp_path / "dry", device="cpu", dry_run=True)
    assert not list((tmp_path / "dry").rglob("pretrain"))
    assert (_trained(data, tmp_path / "elsewhere", named) / "finetune" / "metrics.json").is_file()


def test_odd_rows_and_cut_texts_are_counted_in_the_report(data: Path, tmp_path: Path) -> None:
    rows = [
        TrainingRow("高血压怎么办", ("少吃盐，" * 80,)),
        TrainingRow("胃痛", ("胃痛",)),
        TrainingRow("牙疼", ("看牙医",), ("看牙医", "多喝水")),
    ]
    write_training_rows(data / "rows" / "odd.jsonl.gz", rows)
    sets = ["stages.finetune.rows={sources: [odd]}", 'stages.finetune.prompts={query: "{instruction}：", document: ""}']
    folder = _trained(data, tmp_path, *sets)
    told = json.loads((folder / "finetune" / "metrics.json").read_text(encoding="utf-8"))["odd_rows"]
    assert told == {
        "rows": 3,
        "without_an_instruction": 3,
        "positive_is_the_query": 1,
        "positive_is_a_negative": 1,
        "documents_cut": 1,
    }
    assert "positive is the query: 1; positive is a negative: 1; documents cut: 1" in (folder / "report.md").read_text(
        encoding="utf-8"
    )


def test_what_is_counted_of_rows_is_of_those_that_are_trained_on(data: Path, tmp_path: Path) -> None:
    """A tenth of the rows, at least two, and of a source with one row none: it has no other row's text beside it."""
    rows = [TrainingRow(f"高血压第{number}问", (f"第{number}种说法，" * 80,)) for number in range(40)]
    write_training_rows(data / "rows" / "odd.jsonl.gz", rows)
    write_training_rows(data / "rows" / "single.jsonl.gz", [TrainingRow("唯一一问", ("别的说法，" * 80,))])
    drawn = ["stages.finetune.rows={sources: [odd, single], share: 0.1}"]
    prompts = ['stages.finetune.prompts={query: "{instruction}：", document: ""}']
    folder = _trained(data, tmp_path, *drawn, *prompts)
    told = json.loads((folder / "finetune" / "metrics.json").read_text(encoding="utf-8"))["odd_rows"]
    counts = {"rows": 5, "without_an_instruction": 5, "documents_cut": 5}
    assert told == {**counts, "left_out_as_the_only_row_of_a_source": 1}
    assert "left out as the only row of a source: 1" in (folder / "report.md").read_text(encoding="utf-8")
