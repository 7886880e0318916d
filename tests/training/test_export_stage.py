"""The stage ``export``: tiers of a frozen space, and the blends of them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recipes_on_the_spot import raw_recipe, write_recipe

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.space import Manifest, load_manifest, save_manifest
from suwen.encoders.static import unit
from suwen.training.development_measure import measure
from suwen.training.recipe.key_groups import ComeHalfway
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.tiny_data import write_tiny_data
from suwen.training.recipe_runner import train
from suwen.training.run_context import RunContext
from suwen.training.set_aside import SetAside
from suwen.training.ship.halfway_share import best_of, scores_of
from suwen.training.stages.export import ExportStage
from suwen.training.students.student_models import build_student
from suwen.training.students.student_tokenizer import train_tokenizer
from suwen.training.teacher_vectors import TeacherVectors


@pytest.fixture(scope="module")
def run(adapter_pair: Path, base_folder: Path, models, tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """A run that has come to its export: a frozen pair, its vectors of the development task, and two students."""
    root = tmp_path_factory.mktemp("run")
    write_tiny_data(root / "data", conditions=8)
    raw = raw_recipe() | {"dimension": 24}
    raw["data"] = {"root": str(root / "data"), "measure": str(root / "data" / "dev.toml")}
    raw["stages"][-1] |= {"default_tier": "l2", "precision": "both", "blends": {"l2": {"static": 0.25}}}
    context = RunContext(load_recipe(write_recipe(root, raw)), root / "s0")
    frozen = shutil.copytree(adapter_pair, context.folder_of("freeze") / "model", ignore=lambda *_: ["query"])
    bare = load_manifest(adapter_pair).model_dump() | {"tiers": {}, "default_tier": None, "form": "full"}
    save_manifest(frozen, Manifest.model_validate(bare))
    teacher = DocumentEncoder.load(adapter_pair, base=base_folder, device="cpu")
    vectors = context.folder_of("vectors")
    (vectors / "measure").mkdir(parents=True)
    (vectors / "space.json").write_text(json.dumps({"space": teacher.space.id}))
    for task in context.measures:
        np.save(vectors / "measure" / f"{task.name}-documents.npy", teacher.encode(task.data.documents))
    tokenizer = train_tokenizer(models.TEXTS, size=600)
    shape = {"dimension": 24, "max_length": 40}
    build_student(tokenizer, layers=2, width=32, heads=4, **shape).save(str(context.folder_of("joint") / "model"))
    build_student(tokenizer, kind="static", **shape).save(str(context.folder_of("align-static") / "model"))
    return context


def test_a_blend_is_written_and_measured_as_it_serves(run: RunContext) -> None:
    stage = run.recipe.stage("export")
    assert isinstance(stage, ExportStage)
    metrics = run.run(stage)
    pair = Pair.load(run.model_of("export"))
    blends = {name: tier.blend for name, tier in pair.manifest.tiers.items()}
    assert blends == {"l2": {"static": 0.25}, "l2-fp32": {"static": 0.25}, "static": {}}
    assert (pair.default_tier, pair.manifest.form) == ("l2", "light")
    assert pair.space.id == load_manifest(run.model_of("freeze")).space.id
    vectors = TeacherVectors(run.folder_of("vectors"))
    found = measure(run.measures, pair.encoder("l2").encode_queries, vectors.documents_of)
    assert {f"l2.blend.{task}": value for task, value in found.items()}.items() <= metrics.items()
    assert metrics["l2.int8_min"] == pair.manifest.tiers["l2"].parity["int8_min"], "parity is of the graph alone"
    assert run.run(stage).items() >= metrics.items(), "a finished stage says it again"


def test_without_a_blend_nothing_is_blended_or_measured(run: RunContext) -> None:
    stage = run.recipe.stage("export")
    run.run(stage)
    metrics = run.run(stage.model_copy(update={"name": "plain", "blends": {}}))
    assert not any(".blend." in name for name in metrics)
    assert '"blend"' not in (run.model_of("plain") / "suwen.json").read_text(encoding="utf-8")
    plain, blended = Pair.load(run.model_of("plain")), Pair.load(run.model_of("export"))
    assert plain.manifest.tiers["l2"].parity == blended.manifest.tiers["l2"].parity
    own, other = (plain.encoder(tier).encode_queries(["胃痛反酸"]) for tier in ("l2", "static"))
    mean = 0.75 * own + 0.25 * other
    assert np.allclose(blended.encoder("l2").encode_queries(["胃痛反酸"]), mean / np.linalg.norm(mean), atol=1e-5)


# -- documents that come half-way -----------------------------------------------------------------------------------


def test_documents_come_half_way_as_the_stage_says(run: RunContext, base_folder: Path, models) -> None:
    stage = run.recipe.stage("export")
    asked = ComeHalfway(tier="l2", share=0.3)
    metrics = run.run(stage.model_copy(update={"name": "met", "halfway": asked, "precision": "int8"}))
    assert metrics["halfway.share"] == 0.3
    pair, frozen = Pair.load(run.model_of("met")), load_manifest(run.model_of("freeze"))
    assert pair.space.halfway is not None and pair.space.id != frozen.space.id == pair.space.alone.id
    encoder = DocumentEncoder.load(pair.path, base=base_folder, device="cpu")
    texts = list(models.TEXTS)
    mixed = encoder.alone.encode(texts) + 0.3 * pair.encoder("l2").encode_documents(texts)
    assert np.allclose(encoder.encode(texts), mixed / np.linalg.norm(mixed, axis=1, keepdims=True), atol=1e-5)


# -- tiers that stay as they are --------------------------------------------------------------------------------------


def test_the_tiers_of_a_pair_stay_as_they_are(tmp_path: Path) -> None:
    """A specialist's documents learn to be found by the queries of the pair it goes on with: those stay to the byte."""
    folder = train(load_recipe("cardioembed-mini"), tmp_path, device="cpu", dry_run=True).folder
    before = Pair.load(next(tmp_path.rglob("pair-tiny/pair")))
    after = Pair.load(folder / "export" / "model")
    assert after.manifest.form == "light" and after.default_tier == "static" and after.tiers == before.tiers
    assert after.space.alone.id == load_manifest(folder / "freeze" / "model").space.id != before.space.id
    assert after.space.halfway is not None and (after.space.halfway.tier, after.space.halfway.share) == ("static", 0.7)
    (own, theirs) = (pair.manifest.tiers["static"].files for pair in (after, before))
    assert own == theirs
    queries, texts = ["高血压怎么办"], ["胃痛反酸", "the flu vaccine is safe"]
    asked, asked_before = (pair.encoder("static").encode_queries(queries) for pair in (after, before))
    assert np.array_equal(asked, asked_before)
    documents = DocumentEncoder.load(after.path, base=before.path.parent / "base", device="cpu")
    mixed = documents.alone.encode(texts) + 0.7 * after.encoder("static").encode_documents(texts)
    assert np.allclose(documents.encode(texts), unit(mixed), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("stages.export.tiers={l6: freeze}", "one of the two"),
        ("stages.export.keeps=null", "one of the two"),
        ("stages.export.blends={l6: {static: 0.25}}", "with `keeps` they are those of its pair"),
        ("stages.export.halfway={tier: l6}", "say `share`"),
        ("stages.export.halfway={tier: l9, share: 0.7}", "'l9' is not one of the tiers of default: l6, static"),
        ("stages.export.default_tier=l9", "default_tier: 'l9' is not one of the tiers of default"),
        ("stages.specialist.asked_by=null", "do not learn to be found by the tiers of default; say `pair: default`"),
        ("dimension=256", "tiers of default have 512 dimensions, 'freeze' 256"),
    ],
)
def test_tiers_that_cannot_stay_are_refused(change: str, told: str) -> None:
    sets = [change, *(["stages.specialist.halfway=null"] if "asked_by" in change else [])]
    sets += ["stages.freeze.dimension=256"] if change == "dimension=256" else []
    with pytest.raises(RecipeError) as refused:
        load_recipe("cardioembed-mini", sets)
    assert told in str(refused.value)


def test_a_share_is_scored_over_documents_that_have_come_so_far() -> None:
    """The tier is off in directions of its own, the same for a question and for its answer."""
    rng, count = np.random.default_rng(0), 120
    given, off = (unit(rng.standard_normal((count, 24)).astype(np.float32)) for _ in range(2))
    aside = SetAside(
        [""] * count, given, [""] * count, given, [np.array([n]) for n in range(count)], np.zeros(count, np.int64)
    )
    theirs = unit(given + 1.8 * off)
    by_tier, by_document = scores_of(aside, theirs, theirs)
    assert by_tier[0.0] == pytest.approx(aside.score(theirs)) and by_tier[0.3] > by_tier[0.0] + 5
    assert by_document[0.0] == pytest.approx(100) and by_document[0.3] > 99
    assert best_of(by_tier, by_document) >= 0.3
    assert best_of(by_tier, {share: 100.0 - 10 * share for share in by_document}) == 0.0, "what costs it is left"


def test_a_share_that_is_left_open_is_chosen_on_questions_set_aside(
    run: RunContext, monkeypatch: pytest.MonkeyPatch, models
) -> None:
    pair, texts = Pair.load(run.model_of("export")), list(models.TEXTS)
    given = unit(np.random.default_rng(0).standard_normal((len(texts), 24)).astype(np.float32))
    right = [np.array([number]) for number in range(len(texts))]
    aside = SetAside(texts, given, texts, given, right, np.zeros(len(texts), np.int64))
    monkeypatch.setattr(SetAside, "read", lambda context, vectors: aside)
    stage = run.recipe.stage("export")
    metrics = run.run(stage.model_copy(update={"name": "open", "halfway": ComeHalfway(tier="l2")}))
    tier = pair.encoder("l2")
    scores = scores_of(aside, tier.encode_queries(texts), tier.encode_documents(texts))
    assert metrics["halfway.share"] == best_of(*scores)
    assert metrics["halfway.0.3.l2"] == pytest.approx(scores[0][0.3])
    assert metrics["halfway.0.3.document"] == pytest.approx(scores[1][0.3])
    meeting = load_manifest(run.model_of("open")).space.halfway
    assert (meeting.share if meeting else 0.0) == metrics["halfway.share"]
