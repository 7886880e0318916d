"""A run: stages in order, what is kept, linked, refused and resumed, and the report."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from recipes_on_the_spot import Stages, raw_recipe, write_recipe

from suwen.corpora.tabular import records
from suwen.corpora.training_rows import read_training_rows
from suwen.durable import FileLock
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.space import load_manifest
from suwen.training.loop.training_loop import TrainingStopped
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stand_in import stand_in, with_builtins
from suwen.training.recipe.tiny_data import write_tiny_data
from suwen.training.recipe_runner import TrainError, train
from suwen.training.stages.document import DocumentStage
from suwen.training.tasks.row_tables import DataError

Load = Callable[..., Recipe]
ALL = ["document", "freeze", "vectors", "align-static", "retromae", "align", "joint", "export"]
SHIPPED = Path(__file__).parents[2] / "recipes"
#: The instructions of CARE's Table 6: retrieval, reranking, synonyms.
TABLE_6 = (
    "Given a Chinese medical question, retrieve medical documents that answer the question.",
    "Based on a Chinese medical question, evaluate and rank the medical information that provide answers to the "
    "question.",
    "Retrieve semantically similar text.",
)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(monkeypatch)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_data(folder)
    return folder


@pytest.fixture
def load(tmp_path: Path, tiny: Path) -> Callable[..., Recipe]:
    def make(*sets: str, variant: str | None = None) -> Recipe:
        return load_recipe(write_recipe(tmp_path), [f"data.root={tiny}", *sets], variant)

    return make


def test_stages_run_in_order_and_are_kept_the_second_time(tmp_path: Path, load: Load, stages: Stages) -> None:
    told: list[str] = []
    report = train(load(), tmp_path / "runs", on_stage=lambda one: told.append(one.name))
    assert stages.done == told == ALL
    assert report.folder == tmp_path / "runs" / "small" / "s0"
    assert (report.folder / "joint" / "model" / "settings.json").is_file()
    again = train(load(), tmp_path / "runs")
    assert stages.done == ALL
    assert [one.how for one in again.stages] == ["kept"] * len(ALL)
    assert [one.metrics for one in again.stages] == [one.metrics for one in report.stages]


def test_the_report_holds_every_stage_with_its_time_and_metrics(tmp_path: Path, load: Load, stages: Stages) -> None:
    report = train(load(), tmp_path / "runs", seed=3)
    found = json.loads((report.folder / "report.json").read_text(encoding="utf-8"))
    assert (found["recipe"], found["seed"], found["complete"]) == ("small", 3, True)
    assert [one["name"] for one in found["stages"]] == ALL
    assert all(one["seconds"] > 0 for one in found["stages"])
    assert found["stages"][6]["metrics"].items() >= {"consult": 61.0, "mean": 61.0}.items()
    text = (report.folder / "report.md").read_text(encoding="utf-8")
    assert "| joint | joint |" in text and "mean 61" in text


def test_another_seed_shares_what_does_not_depend_on_it(tmp_path: Path, load: Load, stages: Stages) -> None:
    train(load(), tmp_path / "runs", seed=0)
    stages.done.clear()
    report = train(load(), tmp_path / "runs", seed=1)
    # The document stage has a seed of its own.
    assert stages.done == ["align-static", "retromae", "align", "joint", "export"]
    assert [one.how for one in report.stages][:3] == ["linked"] * 3
    linked = report.folder / "vectors"
    assert linked.is_symlink() and linked.resolve() == (tmp_path / "runs/small/s0/vectors").resolve()
    assert (linked / "model" / "settings.json").is_file()


def test_a_variant_runs_only_what_it_changes(tmp_path: Path, load: Load, stages: Stages) -> None:
    train(load(), tmp_path / "runs")
    stages.done.clear()
    train(load(variant="without-mse"), tmp_path / "runs")
    assert stages.done == ["align", "joint"]
    stages.done.clear()
    train(load(variant="without-document-init"), tmp_path / "runs")
    assert stages.done == ["document", "freeze", "vectors", "align-static", "align", "joint"]


def test_the_runs_of_a_moved_root_still_find_their_links(tmp_path: Path, load: Load, stages: Stages) -> None:
    train(load(), tmp_path / "runs")
    report = train(load(variant="without-mse"), tmp_path / "runs")
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / report.folder.relative_to(tmp_path / "runs")
    assert (moved / "vectors" / "metrics.json").is_file()


def test_a_broken_stage_goes_on_only_when_asked(tmp_path: Path, load: Load, stages: Stages) -> None:
    stages.broken = {"align"}
    with pytest.raises(RuntimeError, match="killed"):
        train(load(), tmp_path / "runs")
    stages.broken = set()
    with pytest.raises(TrainError, match=r"'align' is unfinished in .*: go on with --resume"):
        train(load(), tmp_path / "runs")
    report = train(load(), tmp_path / "runs", resume=True)
    assert stages.done == ALL
    assert [one.how for one in report.stages] == ["kept"] * 5 + ["run"] * 3


def test_a_half_done_stage_is_linked_nowhere(tmp_path: Path, load: Load, stages: Stages) -> None:
    stages.broken = {"vectors"}
    with pytest.raises(RuntimeError):
        train(load(), tmp_path / "runs")
    stages.broken = set()
    report = train(load(variant="without-mse"), tmp_path / "runs")
    assert [one.how for one in report.stages][:3] == ["linked", "linked", "run"]


def test_changed_settings_are_refused_with_the_difference(tmp_path: Path, load: Load, stages: Stages) -> None:
    train(load(), tmp_path / "runs")
    with pytest.raises(TrainError) as refused:
        train(load("stages.align.temperature=0.5"), tmp_path / "runs")
    assert "config.temperature: 0.03 before, 0.5 now" in str(refused.value)
    assert "stage 'align'" in str(refused.value)


def test_a_stage_that_failed_at_its_start_takes_other_settings(tmp_path: Path, load: Load, stages: Stages) -> None:
    """The setting is what made it fail, as a rule: nobody should have to delete a folder for that."""
    stages.broken = {"align"}
    with pytest.raises(RuntimeError, match="killed"):
        train(load(), tmp_path / "runs")
    stages.broken, place = set(), tmp_path / "runs" / "small" / "s0" / "align"
    assert train(load("stages.align.temperature=0.5"), tmp_path / "runs", only=["align"]).complete
    assert json.loads((place / "config.json").read_text(encoding="utf-8"))["temperature"] == 0.5


@pytest.mark.parametrize("held", ["curves.csv", "lock"])
def test_a_stage_that_kept_something_or_is_at_work_does_not(
    tmp_path: Path, load: Load, stages: Stages, held: str
) -> None:
    stages.broken = {"align"}
    with pytest.raises(RuntimeError, match="killed"):
        train(load(), tmp_path / "runs")
    stages.broken, place = set(), tmp_path / "runs" / "small" / "s0" / "align"
    other = FileLock(place / "lock")
    other.acquire() if held == "lock" else (place / held).write_text("step,loss\n1,2\n", encoding="utf-8")
    with pytest.raises(TrainError, match=r"config.temperature: 0.03 before, 0.5 now"):
        train(load("stages.align.temperature=0.5"), tmp_path / "runs", resume=True)
    other.release()
    assert json.loads((place / "config.json").read_text(encoding="utf-8"))["temperature"] == 0.03


def test_how_a_stage_fits_into_memory_may_change_between_its_steps(tmp_path: Path, load: Load, stages: Stages) -> None:
    stages.broken = {"align"}
    with pytest.raises(RuntimeError, match="killed"):
        train(load(), tmp_path / "runs")
    stages.broken = set()
    keys = ("chunk=2", "token_budget=64", "gradient_checkpointing=true", "checkpoint_every=7", "log_every=3")
    how = [*(f"stages.align.training.{key}" for key in keys), "stages.vectors.token_budget=99"]
    report = train(load(*how), tmp_path / "runs", resume=True)
    assert [one.how for one in report.stages] == ["kept"] * 5 + ["run"] * 3
    config = json.loads((report.folder / "align" / "config.json").read_text(encoding="utf-8"))
    assert config["training"]["token_budget"] == 64
    assert {one.how for one in train(load(), tmp_path / "runs").stages} == {"kept"}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("align", r"stages\.align-static\.training\.token_budget=N\), or .*gradient_checkpointing=true"),
        ("vectors", r"lower its token_budget \(--set stages\.vectors\.token_budget=N\)"),
        ("retromae", r"gradient_checkpointing=true\), or lower its batch"),
        ("freeze", "take a larger device"),
    ],
)
def test_a_full_memory_is_told_with_what_makes_the_stage_smaller(
    tmp_path: Path, load: Load, stages: Stages, kind: str, words: str
) -> None:
    def greedy(stage: Any, context: Any, folder: Any) -> dict[str, float]:
        torch.empty(2**60, dtype=torch.uint8)
        return {}

    stages[kind] = greedy
    with pytest.raises(TrainError, match=rf"memory of cpu ran out in the stage '{kind}.*: .*{words}.* --resume"):
        train(load(), tmp_path / "runs", device="cpu")


def test_what_a_stage_draws_follows_from_its_seed(tmp_path: Path, load: Load, stages: Stages) -> None:
    drawn: list[float] = []
    stages["retromae"] = lambda *given: drawn.append(float(torch.rand(()))) or stages.run(*given)
    for number, seed in enumerate((0, 0, 1)):
        torch.rand(number + 1)  # whatever was drawn before
        train(load(), tmp_path / str(number), seed=seed)
    assert drawn[0] == drawn[1] != drawn[2]


def test_changed_data_are_refused(tmp_path: Path, tiny: Path, load: Load, stages: Stages) -> None:
    texts = tmp_path / "texts.jsonl.gz"
    shutil.copy(tiny / "texts.jsonl.gz", texts)
    train(load(f"data.texts={texts}"), tmp_path / "runs")
    texts.write_bytes(texts.read_bytes() + texts.read_bytes())
    with pytest.raises(TrainError, match=r"'vectors' .* other settings or data:\n +data.texts"):
        train(load(f"data.texts={texts}"), tmp_path / "runs")


def test_only_some_stages(tmp_path: Path, load: Load, stages: Stages) -> None:
    report = train(load(), tmp_path / "runs", only=["freeze", "document"])
    assert stages.done == ["document", "freeze"] == [one.name for one in report.stages]
    with pytest.raises(RecipeError, match="no stage is called 'freze'; did you mean 'freeze'"):
        train(load(), tmp_path / "runs", only=["freze"])


def test_a_stop_between_stages_leaves_an_incomplete_report(tmp_path: Path, load: Load, stages: Stages) -> None:
    report = train(load(), tmp_path / "runs", stop=lambda: len(stages.done) == 2)
    assert not report.complete and stages.done == ALL[:2]
    found = json.loads((report.folder / "report.json").read_text(encoding="utf-8"))
    assert not found["complete"] and "'freeze'" in found["stopped"]
    assert "Not complete" in (report.folder / "report.md").read_text(encoding="utf-8")
    assert train(load(), tmp_path / "runs").complete


def test_a_stop_inside_a_stage_leaves_an_incomplete_report(tmp_path: Path, load: Load, stages: Stages) -> None:
    def stopped(stage: Any, context: Any, folder: Any) -> dict[str, float]:
        raise TrainingStopped("asked to")

    stages["retromae"] = stopped
    report = train(load(), tmp_path / "runs")
    assert report.stopped == "asked to" and stages.done == ALL[:4]
    stages["retromae"] = stages.run
    assert train(load(), tmp_path / "runs", resume=True).complete


def test_a_stage_is_finished_with_the_metrics_it_gives_and_by_nothing_else(
    tmp_path: Path, load: Load, stages: Stages
) -> None:
    stages["freeze"] = lambda stage, context, folder: {"cut": 0.5}
    report = train(load(), tmp_path / "runs", only=["document", "freeze"])
    assert json.loads((report.folder / "freeze" / "metrics.json").read_text(encoding="utf-8"))["cut"] == 0.5
    stages.broken = {"vectors"}
    with pytest.raises(RuntimeError, match="killed"):
        train(load(), tmp_path / "runs")
    assert (report.folder / "vectors" / "config.json").is_file()
    assert not (report.folder / "vectors" / "metrics.json").exists()


def test_an_unfinished_stage_whose_beginning_is_not_known_is_not_gone_on_with(
    tmp_path: Path, load: Load, stages: Stages
) -> None:
    stages.broken = {"freeze"}
    with pytest.raises(RuntimeError, match="killed"):
        train(load(), tmp_path / "runs")
    (tmp_path / "runs" / "small" / "s0" / "stages.json").unlink()
    with pytest.raises(TrainError, match=r"does not say what .*freeze was begun with: delete that folder"):
        train(load(), tmp_path / "runs", resume=True)


def test_data_that_were_not_named_are_refused_before_anything_is_written(
    tmp_path: Path, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUWEN_DATA", raising=False)
    raw = raw_recipe()
    del raw["data"]
    with pytest.raises(RecipeError, match=r"data.rows: .* needs the data folder"):
        train(load_recipe(write_recipe(tmp_path, raw)), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_touches_neither_data_nor_models(tmp_path: Path, stages: Stages) -> None:
    raw = raw_recipe()
    raw["data"] = {"root": "/nowhere", "measure": "/nowhere/dev.toml"}
    recipe = load_recipe(write_recipe(tmp_path, raw))
    for _ in range(2):
        report = train(recipe, tmp_path / "runs", dry_run=True)
        assert [one.how for one in report.stages] == ["run"] * len(ALL)
    assert report.folder.is_relative_to(tmp_path / "runs" / "dry-run")
    written = json.loads((report.folder / "document" / "model" / "settings.json").read_text(encoding="utf-8"))
    assert (written["training"]["steps"], written["training"]["batch"]) == (2, 2)
    assert Path(written["base"], "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("name", "variant", "last"),
    [
        pytest.param("care", "symmetric", "finetune", marks=pytest.mark.long),
        ("care", "symmetric-document", "document"),
        pytest.param("care-tiny", "symmetric", "symmetric", marks=pytest.mark.long),
    ],
)
def test_symmetric_models_run_dry(tmp_path: Path, name: str, variant: str, last: str) -> None:
    recipe = load_recipe(SHIPPED / f"{name}.yaml", variant=variant)
    report = train(recipe, tmp_path, dry_run=True, device="cpu")
    assert report.complete and report.stages[-1].name == last
    # Without a document encoder of its own the run still measures: one encoder embeds both sides.
    assert ("mean" in report.stages[-1].metrics) == (recipe.data.measure is not None)


def test_the_paper_s_recipe_runs_dry_from_end_to_end(tmp_path: Path) -> None:
    recipe = load_recipe(SHIPPED / "care.yaml")
    report = train(recipe, tmp_path, dry_run=True, device="cpu")
    assert [one.name for one in report.stages] == [one.name for one in recipe.stages]
    assert report.complete
    pair = report.folder / "export" / "model"
    assert json.loads((pair / "suwen.json").read_text(encoding="utf-8"))["default_tier"] == "base"
    assert list((pair / "query" / "base").glob("*.onnx"))
    prompts = load_manifest(pair).space.prompts
    assert prompts.query == "<instruct>" + TABLE_6[0] + "\n<query>"
    assert prompts.before("query", TABLE_6[2]) == "<instruct>Retrieve semantically similar text.\n<query>"
    assert all(tier.prompts == prompts for tier in load_manifest(pair).tiers.values())
    # Every stage of the student was trained behind the prompt that serves.
    models = list(report.folder.glob("*/model/config_sentence_transformers.json"))
    assert {file.parents[1].name for file in models} >= {
        "retromae",
        "contrastive",
        "finetune",
        "align",
        "joint",
        "settle",
    }
    for file in models:
        assert json.loads(file.read_text(encoding="utf-8"))["prompts"] == {"query": prompts.query, "document": ""}
    # And the teacher's vectors of a row are those of its own instruction.
    (folder,) = report.folder.glob("frozen-vectors/rows-query-*")
    row = next(read_training_rows(next(tmp_path.rglob("rows/consult.jsonl.gz"))))
    marks = [line.split("\t")[1] for line in (folder / "ids.txt").read_text(encoding="utf-8").splitlines()]
    stored = np.load(folder / "vectors.npy")[marks.index(hashlib.sha1(row.query.encode()).hexdigest()[:12])]
    base = json.loads((report.folder / "document" / "config.json").read_text(encoding="utf-8"))["base"]
    encoder = DocumentEncoder.load(report.folder / "freeze" / "model", base=base, device="cpu")
    assert float(stored @ encoder.encode_queries([row.query], row.prompt)[0]) > 0.999
    assert row.prompt and float(stored @ encoder.encode_queries([row.query])[0]) < 0.999


@pytest.mark.parametrize("recipe", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_recipe_trains_or_serves_with_a_brace(recipe: Path) -> None:
    if recipe.stem.endswith("-variants"):  # not a recipe by itself
        return
    for variant in [None, *load_recipe(recipe).variants]:
        loaded = load_recipe(recipe, (), variant)
        said = [one.prompts.filled for one in (*loaded.students.values(), *loaded.stages) if hasattr(one, "prompts")]
        # A reranker reads a query and a passage together, without prompts.
        assert said or recipe.stem.startswith("reranker")
        assert not [prompts for prompts in said if {"{", "}"} & set(prompts.query + prompts.document)]


def test_a_stage_with_another_prompt_than_serves_is_refused() -> None:
    other = "stages.finetune.prompts={query: '问：', document: ''}"
    with pytest.raises(RecipeError, match=r"stages.finetune.prompts: '问：' is not what the encoder serves with"):
        load_recipe(SHIPPED / "care.yaml", [other])


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("care", "qwen3"),
        *((name, "qwen2") for name in ("care-mini", "care-mini-l3", "care-tiny", "care-ablations")),
        *(("bmretriever", "gpt_neox"), ("bmretriever:2b", "gemma"), ("bmretriever:7b", "mistral")),
        ("bmretriever-light", "qwen2"),
    ],
)
def test_every_shipped_recipe_has_a_stand_in(tmp_path: Path, name: str, architecture: str) -> None:
    file, _, variant = name.partition(":")
    recipe = load_recipe(SHIPPED / f"{file}.yaml", variant=variant or None)
    small = stand_in(recipe, tmp_path)
    assert [(one.name, one.stage) for one in small.stages] == [(one.name, one.stage) for one in recipe.stages]
    wanted = {source for one in small.stages if getattr(one, "rows", None) for source in one.rows.sources or ()}
    assert all((Path(small.data.rows) / f"{source}.jsonl.gz").is_file() for source in wanted)
    known = {record["kind"] for _, record in records(Path(str(small.data.texts)))}
    assert {kind for one in small.stages if one.stage == "vectors" for kind in one.forms.query or ()} <= known
    document = next(one for one in small.stages if isinstance(one, DocumentStage))
    config = json.loads((Path(document.base) / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == architecture


def test_the_paper_s_query_encoder_stands_in_as_its_own_architecture(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    small = stand_in(load_recipe(SHIPPED / "care.yaml"), tmp_path)
    base = small.students["base"].base
    assert base is not None
    model = SentenceTransformer(base, device="cpu")
    assert model[0].auto_model.config.model_type == "gte"
    vectors = model.encode(["高血压怎么治疗", "糖尿病吃什么药"])
    assert vectors.shape == (2, small.dimension)
    assert abs(float((vectors**2).sum(1)[0]) - 1) < 1e-5


def test_builtins_become_paths_that_are_made_once(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path), ["stages.document.base=builtin:qwen2-tiny"])
    placed = with_builtins(recipe, tmp_path / "builtin")
    assert Path(placed.data.texts) == tmp_path / "builtin" / "tiny" / "texts.jsonl.gz"
    before = Path(placed.data.texts).stat().st_mtime_ns
    assert with_builtins(recipe, tmp_path / "builtin") == placed
    assert Path(placed.data.texts).stat().st_mtime_ns == before
    assert sorted(path.name for path in (tmp_path / "builtin").iterdir()) == ["qwen2-tiny", "tiny"]


def test_an_unknown_builtin_is_refused(tmp_path: Path, load: Load) -> None:
    with pytest.raises(RecipeError, match=r"builtin:qwen9-tiny: nothing of that name .* did you mean 'qwen"):
        with_builtins(load("stages.document.base=builtin:qwen9-tiny"), tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["data.rows=nowhere"], "nowhere is no folder: name that of the rows in data.rows"),
        (["data.texts=no.jsonl.gz"], r"data.texts: no.jsonl.gz does not exist, and the stage 'vectors' reads it"),
        (["data.measure=no.toml"], "data.measure: no.toml does not exist"),
        (["stages.joint.rows.weights={dreams: 2}"], "stages.joint.rows.weights: .* holds no rows called dreams; make"),
        (["stages.joint.rows.sources=[dreams]"], "stages.joint.rows.sources: .* holds no rows called dreams; make"),
    ],
)
def test_data_that_a_late_stage_would_miss_are_asked_for_at_once(
    tmp_path: Path, load: Load, stages: Stages, changes: list[str], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        train(load(*changes), tmp_path / "runs")
    assert stages.done == []
