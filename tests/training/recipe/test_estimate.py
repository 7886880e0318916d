"""What a recipe will cost: shapes against real models, bytes by hand, and a disk that is too small."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from estimate_checks import FITTED, compared
from recipes_on_the_spot import Stages, raw_recipe, write_recipe

from suwen.training.recipe.cost_estimate import EstimateError, beside_paper, estimate, memory_of, require_disk, tight
from suwen.training.recipe.data_files import mean_tokens
from suwen.training.recipe.model_shapes import Shape, shape_of, student_shape
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stand_in import with_builtins
from suwen.training.recipe.tiny_data import write_tiny_data
from suwen.training.recipe_runner import train
from suwen.training.tasks.row_tables import DataError

SHIPPED = Path(__file__).parents[3] / "recipes"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_data(folder)
    return folder


def load(folder: Path, tiny: Path, *sets: str) -> Recipe:
    return load_recipe(write_recipe(folder), [f"data.root={tiny}", *sets])


@pytest.mark.parametrize("kind", ["qwen2-tiny", "qwen3-tiny"])
def test_the_shape_of_a_folder_is_that_of_its_model(tmp_path: Path, kind: str) -> None:
    from transformers import AutoModel

    recipe = load_recipe(write_recipe(tmp_path), [f"stages.document.base=builtin:{kind}"])
    base = with_builtins(recipe, tmp_path).stage("document").base
    model, shape = AutoModel.from_pretrained(base), shape_of(base)
    assert shape is not None and (shape.layers, shape.width) == (2, 64)
    assert shape.embeddings == model.get_input_embeddings().weight.numel()
    assert shape.parameters == pytest.approx(sum(one.numel() for one in model.parameters()), rel=0.15)


def test_the_order_of_near_documents_takes_a_table_of_scores(tmp_path: Path, tiny: Path) -> None:
    plain = load(tmp_path, tiny, "stages.align.training.batch=100")
    ranked = load(
        tmp_path, tiny, "stages.align.training.batch=100", "stages.align.ranking=0.5", "stages.align.neighbours=3"
    )
    needed = [{one.name: one.memory or 0 for one in estimate(recipe).stages}["align"] for recipe in (plain, ranked)]
    assert needed[1] - needed[0] == 100 * 300 * 4 * 6


def test_known_models_need_no_file_and_unknown_ones_have_no_shape() -> None:
    shape = shape_of("Qwen/Qwen3-4B")
    assert shape is not None and shape.width == 2560
    assert shape_of("nobody/nothing") is None


def test_students_are_sized_by_where_they_start(tmp_path: Path, tiny: Path) -> None:
    raw = raw_recipe()
    raw["stages"][0]["base"] = "Qwen/Qwen3-4B"
    raw["students"] |= {
        "pruned": {"start": "layers-of-document", "layers": 3},
        "half": {"start": "prune:student", "layers": 1},
    }
    recipe = load_recipe(write_recipe(tmp_path, raw), [f"data.root={tiny}"])
    sizes = {name: student_shape(recipe, student) for name, student in recipe.students.items()}
    # The paper: three layers of Qwen3-4B are about 303M parameters beside the token table.
    pruned = sizes["pruned"]
    assert pruned is not None and pruned.parameters - pruned.embeddings == pytest.approx(303e6, rel=0.01)
    assert sizes["static"] is not None and sizes["static"].parameters == 500 * 32
    student, half = sizes["student"], sizes["half"]
    assert student is not None and half is not None
    assert student.parameters == 500 * 64 + 2 * 12 * 64**2
    assert half.parameters == 500 * 64 + 12 * 64**2


def test_the_teacher_s_vectors_are_texts_by_forms_by_width(tmp_path: Path, tiny: Path) -> None:
    def disk(*sets: str) -> int:
        stages = {one.name: one for one in estimate(load(tmp_path, tiny, *sets)).stages}
        return stages["vectors"].disk

    each = 2 * 32 * 2  # in a shard, and in the array that the shards become
    assert disk("stages.vectors.limit=1000") == 1000 * each
    titles = round(1000 * 720 / 2920)
    assert disk("stages.vectors.limit=1000", "stages.vectors.forms.document=[title]") == (1000 + titles) * each
    assert disk("stages.vectors.limit=1000", "stages.vectors.rows={sources: [titles]}") == (1000 + 2 * 360) * each
    assert disk() == 2920 * each


def test_epochs_are_counted_over_the_data(tmp_path: Path, tiny: Path) -> None:
    sets = ("stages.joint.training.epochs=2", "stages.joint.rows.sources=[consult]", "stages.align.training.epochs=1")
    stages = {one.name: one for one in estimate(load(tmp_path, tiny, *sets)).stages}
    assert stages["joint"].steps == 2 * 1080 // 2
    assert stages["align"].steps == 2920 // 2
    assert stages["retromae"].steps == 4


def test_more_work_takes_more_time_and_a_gpu_less(tmp_path: Path, tiny: Path) -> None:
    few, many = (estimate(load(tmp_path, tiny, f"stages.align.training.steps={n}")) for n in (10, 1000))
    assert many.seconds > few.seconds > 0
    assert many.memory == few.memory > 0
    sets = ("students.student.width=512", "students.student.layers=6", "stages.align.training.steps=1000")
    large = load(tmp_path, tiny, *sets, "stages.align.training.batch=512")
    assert estimate(large, "cuda:0").seconds < estimate(large, "cpu").seconds


def test_the_paper_s_recipe_is_estimated_without_data_or_download() -> None:
    cost = estimate(load_recipe(SHIPPED / "care.yaml"), "cuda")
    stages = {one.name: one for one in cost.stages}
    assert stages["document"].parameters == 4_022_000_000
    # Rank 32 on the seven matrices of 36 layers: 66 million numbers.
    assert stages["document"].trained == pytest.approx(66e6, rel=0.2)
    assert stages["document"].memory is not None and 8e9 < stages["document"].memory < 80e9
    # Its sizes are the paper's: 580,000 labelled rows in batches of 640.
    assert stages["document"].steps == 906


def too_large(folder: Path, tiny: Path) -> Recipe:
    """Vectors of a hundred thousand million dimensions: more than any disk holds."""
    raw = raw_recipe()
    raw |= {"stages": raw["stages"][:3], "dimension": 100_000_000_000}
    return load_recipe(write_recipe(folder, raw), [f"data.root={tiny}"])


def test_a_disk_that_is_too_small_is_said_before_anything_is_computed(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = too_large(tmp_path, tiny)
    with pytest.raises(EstimateError) as refused:
        require_disk(recipe, tmp_path / "runs" / "not" / "there" / "yet")
    assert "1168000.00 GB" in str(refused.value) and "are free" in str(refused.value)
    assert "--set stages.vectors.limit=N" in str(refused.value)
    stages = Stages(monkeypatch)
    with pytest.raises(EstimateError):
        train(recipe, tmp_path / "runs")
    assert stages.done == []
    require_disk(load(tmp_path, tiny), tmp_path)


def test_finished_stages_need_no_more_room(tmp_path: Path, tiny: Path) -> None:
    recipe = too_large(tmp_path, tiny)
    (tmp_path / "run" / "vectors").mkdir(parents=True)
    with pytest.raises(EstimateError):
        require_disk(recipe, tmp_path / "run")
    (tmp_path / "run" / "vectors" / "metrics.json").write_text("{}", encoding="utf-8")
    require_disk(recipe, tmp_path / "run")


def saved_per_token(model: Any, width: int) -> float:
    """Bytes that torch keeps for the backward pass of a token, weights left out."""
    tokens, found = 128, {}
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def seen(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.numel() >= tokens * width // 8:
            found[storage.data_ptr()] = (storage.nbytes(), tensor)  # kept alive, so that no address is used twice
        return tensor

    ids = torch.arange(tokens)[None] % 64
    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        model.train()(input_ids=ids)
    return sum(size for size, _ in found.values()) / tokens


@pytest.mark.parametrize("name", ["qwen2", "bert"])
def test_what_a_layer_keeps_is_what_torch_saves(name: str) -> None:
    from transformers import BertConfig, BertModel, Qwen2Config, Qwen2Model

    width, inner = 128, 512
    common: dict[str, Any] = {"hidden_size": width, "intermediate_size": inner, "vocab_size": 64}
    found = []
    for layers in (2, 4):
        torch.manual_seed(0)
        if name == "qwen2":
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
            config = Qwen2Config(num_hidden_layers=layers, use_cache=False, **heads, **common)
            model: Any = Qwen2Model(config).to(torch.bfloat16)
            model.requires_grad_(False)
            for module in model.layers.modules():
                if isinstance(module, torch.nn.Linear):
                    module.weight.requires_grad_(True)
        else:
            config = BertConfig(num_hidden_layers=layers, num_attention_heads=4, hidden_dropout_prob=0.0, **common)
            config.attention_probs_dropout_prob = 0.0
            model = BertModel(config).to(torch.bfloat16)
        found.append(saved_per_token(model, width))
    shape = Shape(2, width, 0, 0, inner, gated=name == "qwen2")
    assert found[1] - found[0] == pytest.approx(shape.kept(checkpointed=False), rel=0.25)


def test_only_the_stages_that_will_run_are_counted(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(tmp_path, tiny)
    whole, one = estimate(recipe), estimate(recipe, names=["retromae"])
    assert [stage.name for stage in one.stages] == ["retromae"] and one.stages[0] in whole.stages
    assert one.seconds < whole.seconds and one.disk < whole.disk
    free = shutil.disk_usage(tmp_path)._replace(free=(one.disk + whole.disk) // 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    require_disk(recipe, tmp_path / "run", ["retromae"])
    with pytest.raises(EstimateError, match="not enough disk"):
        require_disk(recipe, tmp_path / "run")


def test_a_stage_larger_than_the_memory_is_named_with_what_makes_it_smaller() -> None:
    recipe = load_recipe(SHIPPED / "care-mini.yaml", [])
    cost = estimate(recipe, "cuda")
    (line,) = tight(recipe, cost, 80 * 10**9)
    assert line.startswith("'document' may need 8") and "--set stages.document.training.token_budget=N" in line
    lower = estimate(load_recipe(SHIPPED / "care-mini.yaml", ["stages.document.training.token_budget=16000"]))
    assert not tight(recipe, lower, 80 * 10**9)
    assert not tight(recipe, cost, 140 * 10**9)


def test_the_machine_s_memory_is_known_and_that_of_a_gpu_which_is_not_there_is_not() -> None:
    here = memory_of("cpu")
    assert here is not None and here > 2**30
    assert torch.cuda.is_available() or memory_of("cuda") is None


@pytest.mark.parametrize(("stage", "times"), compared(FITTED).items())
def test_every_measured_stage_of_care_mini_is_estimated_within_half_as_much_again(
    stage: str, times: dict[str, float]
) -> None:
    assert 1 / 1.5 <= times["estimated"] / times["measured"] <= 1.5, stage


def test_lengths_are_read_off_a_sample_of_the_data_and_expected_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    row = {"query": "a" * 100, "pos": ["发" * 100]}
    (tmp_path / "rows" / "one.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    lines = [json.dumps({"text": "热" * 20, "kind": "query"}), *[json.dumps({"text": "x", "kind": "name"})] * 49] * 4
    (tmp_path / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    recipe = load(tmp_path, tmp_path, "data.rows=${DATA}/rows", "data.texts=${DATA}/texts.jsonl")
    stage = recipe.stage("joint")
    assert mean_tokens(recipe, stage, "query", 512) == pytest.approx(3 + 22)
    assert mean_tokens(recipe, stage, "document", 512) == pytest.approx(3 + 65)
    assert mean_tokens(recipe, stage, "document", 10) == 10
    assert mean_tokens(recipe, stage, "text", 512, ["query"]) == pytest.approx(3 + 13)
    nothing = load_recipe(SHIPPED / "care.yaml")
    assert mean_tokens(nothing, nothing.stage("joint"), "document", 512) == 358


def test_a_data_folder_that_was_named_and_is_not_there_is_refused() -> None:
    with pytest.raises(EstimateError, match=r"data.root: nowhere is not a folder"):
        estimate(load_recipe(SHIPPED / "care.yaml", ["data.root=nowhere"]))


def test_a_folder_of_rows_that_was_named_and_is_not_there_is_refused_where_rows_are_read(tmp_path: Path) -> None:
    named = load_recipe(SHIPPED / "care.yaml", ["data.rows=nowhere"])
    with pytest.raises(DataError, match=r"nowhere is no folder: name that of the rows in data\.rows"):
        estimate(named)
    with pytest.raises(DataError, match="rows is no folder"):
        estimate(load_recipe(SHIPPED / "care.yaml", [f"data.root={tmp_path}"]))
    assert [stage.name for stage in estimate(named, names=["retromae"]).stages] == ["retromae"]


def test_sources_that_a_folder_of_rows_lacks_are_refused_as_a_training_would(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps({"query": "a", "pos": ["b"]}) + "\n", encoding="utf-8")
    named = load_recipe(SHIPPED / "bmretriever-mini.yaml", [f"data.rows={tmp_path}"])
    with pytest.raises(DataError, match=r"stages\.pretrain\.rows\.sources: .* no rows called unsup-pretraining"):
        estimate(named)


def test_texts_that_were_named_and_are_not_there_are_refused_where_texts_are_read() -> None:
    named = load_recipe(SHIPPED / "care.yaml", ["data.texts=nowhere.jsonl.gz"])
    with pytest.raises(DataError, match=r"data\.texts: nowhere\.jsonl\.gz does not exist, .* 'retromae' reads it"):
        estimate(named)
    assert [stage.name for stage in estimate(named, names=["document"]).stages] == ["document"]


def test_more_gpus_take_less_time_and_memory_each_and_more_gpu_hours_and_ram_in_all() -> None:
    recipe = load_recipe(SHIPPED / "care.yaml")
    one, many = (estimate(recipe, "cuda", ["document"], gpus=gpus) for gpus in (1, 32))
    assert many.seconds < one.seconds / 8 and many.seconds * 32 > one.seconds
    assert many.memory <= one.memory and many.host == 32 * one.host


def test_the_paper_s_hours_stand_beside_the_stages_of_its_recipe_alone() -> None:
    recipe = load_recipe(SHIPPED / "care.yaml", variant="8b")
    cost = estimate(recipe, "cuda", gpus=2)
    hours = {stage.name: 2 * (stage.seconds or 0) / 3600 for stage in cost.stages}
    beside = beside_paper(recipe, cost)
    assert {name: paper for name, (_, paper) in beside.items()} == {
        "Stage-1": 608,
        "Stage-2": 529,
        "Finetune baseline": 544,
    }
    assert beside["Stage-1"][0] == pytest.approx(hours["vectors"] + hours["align"])
    other = load_recipe(SHIPPED / "care-mini.yaml")
    assert beside_paper(other, estimate(other, "cuda")) == {}
