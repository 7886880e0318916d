"""Towers: a side that is blended with others learns alone, and stages train and measure the blend that serves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from suwen.encoders.pair import Pair
from suwen.encoders.side import Side, load_model
from suwen.training.loop.batches import BatchError, tokenise
from suwen.training.recipe.recipe_checks import check
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stand_in import with_builtins
from suwen.training.recipe_runner import TrainError, train
from suwen.training.run_context import RunContext
from suwen.training.stages.joint import JointStage
from suwen.training.students.student_models import build_student
from suwen.training.students.student_tokenizer import train_tokenizer
from suwen.training.tasks.towers import FrozenTower, TrainedTower, vectors_of
from suwen.training.trained_student import open_student

TEXTS = ["胃痛反酸怎么办", "痛风能吃豆腐吗", "what helps against gout", "头晕"]
RECIPE = Path(__file__).parents[3] / "recipes" / "care-tiny.yaml"
BLEND = [
    "stages.document.training.steps=2",
    "stages.freeze.measure=false",
    "stages.align-static.training.steps=20",
    "stages.retromae.training.steps=1",
    "stages.align.training.steps=30",
    "stages.align.training.checkpoint_every=10",
    "stages.align.blend={align-static: 0.5}",
    "stages.joint.training.steps=2",
    "stages.joint.blend={align-static: 0.5}",
    "stages.export.blends={l2: {static: 0.5}}",
]


def towers() -> list[TrainedTower]:
    tokenizer = train_tokenizer(TEXTS * 20, size=300)
    made = [build_student(tokenizer, layers=1, width=16, heads=2, dimension=8, max_length=32)]
    made.append(build_student(tokenizer, kind="static", dimension=8, max_length=32, seed=1))
    sides = [Side(model, "query") for model in made]
    return [TrainedTower(side, tokenise(side, TEXTS), rows_budget=2) for side in sides]


def test_what_stays_comes_half_way_by_a_share_of_the_sides_own_vector() -> None:
    own, _ = towers()
    stored = np.random.default_rng(0).standard_normal((len(TEXTS), 8)).astype(np.float32)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    rows = np.array([1, 3])
    met = own.beside(FrozenTower(stored, "cpu"), 0.4).vectors(rows)
    wanted = stored[rows] + 0.4 * own.vectors(rows).detach().numpy()
    np.testing.assert_allclose(met.detach().numpy(), wanted / np.linalg.norm(wanted, axis=1)[:, None], atol=1e-6)
    assert met.requires_grad and not own.blend, "the side learns; as it was, it stays alone"


def test_a_blend_is_the_weighted_mean_and_only_its_own_side_learns() -> None:
    own, other = towers()
    blended = TrainedTower(own.side, own.tokens, rows_budget=2, blend=[(other, 0.3)])
    rows = np.array([2, 0, 3])
    found = blended.vectors(rows)
    mixed = 0.7 * own.vectors(rows).detach().numpy() + 0.3 * other.vectors(rows).detach().numpy()
    np.testing.assert_allclose(found.detach().numpy(), mixed / np.linalg.norm(mixed, axis=1)[:, None], atol=1e-6)
    pieces = [piece() for piece in blended.pieces(rows)]
    assert [len(piece) for piece in pieces] == [1, 2]
    torch.testing.assert_close(torch.cat(pieces), found)
    found.sum().backward()  # type: ignore[no-untyped-call]
    learns = [
        any(p.grad is not None and p.grad.abs().sum() > 0 for p in t.side.modules[0].parameters()) for t in (own, other)
    ]
    assert learns == [True, False]


def count_passes(side: Side, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    passes: list[int] = []
    real = side.embed_flat
    monkeypatch.setattr(side, "embed_flat", lambda flat, lengths: passes.append(len(lengths)) or real(flat, lengths))
    return passes


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_parts_of_a_batch_share_one_pass_and_give_the_same_vectors(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = train_tokenizer(TEXTS * 20, size=300)
    model = build_student(tokenizer, layers=1, width=16, heads=2, dimension=8, max_length=32)
    still = build_student(tokenizer, kind="static", dimension=8, max_length=32, seed=1)
    pieces = []
    for form, length, rows in (("query", 6, [2, 0]), ("document", 32, [3, 1, 2])):
        side, other = Side(model, form), Side(still, form)  # type: ignore[arg-type]
        side.packed = True
        blend = [(TrainedTower(other, tokenise(other, TEXTS)), share)] if share else []
        pieces.append((TrainedTower(side, tokenise(side, TEXTS, max_length=length), blend=blend), np.array(rows)))
    apart = torch.cat([tower.vectors(rows) for tower, rows in pieces])
    passes = count_passes(pieces[0][0].side, monkeypatch)
    together = vectors_of(pieces)
    assert passes == [5], "one pass over all five texts"
    torch.testing.assert_close(together, apart)
    gradients = [
        torch.autograd.grad(found.square().matmul(torch.arange(8.0)).sum(), list(model.parameters()), allow_unused=True)
        for found in (together, apart)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_models_that_differ_and_texts_that_would_be_padded_keep_passes_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other = towers()
    rows = np.array([1, 0])
    passes = count_passes(own.side, monkeypatch)
    found = vectors_of([(own, rows), (other, rows), (own, rows)])
    assert passes == [2, 2] and not own.runs_with(own), "a short text beside a long one would be mostly padding"
    torch.testing.assert_close(found[2:4], other.vectors(rows))


def test_a_prompt_that_leaves_no_room_for_the_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    side = towers()[0].side
    long = "头疼" * 40
    with pytest.raises(BatchError, match=r"fills all of the 12 tokens that are read.*shorten the prompt"):
        tokenise(side, TEXTS, prompt=long, max_length=12)
    assert len(tokenise(side, TEXTS[:1] * 3, prompt=long, max_length=12)) == 3, "one text is always like itself"
    monkeypatch.setattr("suwen.training.loop.batches._SLICE", 2)
    with pytest.raises(BatchError, match="shorten the prompt"):
        tokenise(side, TEXTS, prompt=long, max_length=12)
    alone = [*TEXTS[:2], TEXTS[0] * 9]
    assert len(tokenise(side, alone, max_length=12)) == 3, "a long text at the end of many"
    assert len(tokenise(side, TEXTS, prompt="头疼", max_length=12)) == len(TEXTS)


@pytest.fixture(scope="module")
def blended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe]:
    root = tmp_path_factory.mktemp("blended")
    recipe = load_recipe(RECIPE, BLEND)
    report = train(recipe, root, device="cpu")
    assert report.complete
    return root, with_builtins(recipe, root / "builtin")


def test_stage_two_keeps_the_losses_of_the_stage_it_starts_from(blended: tuple[Path, Recipe]) -> None:
    root, _ = blended
    kept = ["stages.align.ranking=0.5", "stages.align.neighbours=3", "stages.align.contrastive=0.25"]
    kept += ["stages.joint.keep_alignment=1.0", "stages.joint.vectors=vectors"]
    recipe = with_builtins(load_recipe(RECIPE, [*BLEND, *kept]), root / "builtin")
    context = RunContext(recipe, root / "care-tiny" / "s0", shared=root)
    stage = recipe.stage("joint")
    assert isinstance(stage, JointStage)
    task = stage.kept_alignment(context, open_student(context, "student", "align", {"align-static": 0.5}))
    assert (task.losses.ranking, task.losses.contrastive, task.losses.squared_l2) == (0.5, 0.25, 1.0)
    assert task.parts[0].neighbours is not None and task.parts[0].neighbours.shape == (len(task.parts[0].places), 3)
    told = task.step(0)
    weighed = 0.5 * told["ranking"] + 0.25 * told["contrastive"] + told["squared_l2"]
    torch.testing.assert_close(told["loss"], weighed)


def test_a_stage_trains_measures_and_exports_the_blend(blended: tuple[Path, Recipe]) -> None:
    root, recipe = blended
    context = RunContext(recipe, root / "care-tiny" / "s0", shared=root)
    student = open_student(context, "student", "joint", {"align-static": 0.5})
    alone, still = open_student(context, "student", "joint"), open_student(context, "static", "align-static")
    mixed = alone.encode(TEXTS) + still.encode(TEXTS)
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    np.testing.assert_allclose(student.encode(TEXTS), mixed, atol=1e-5)
    served = Pair.load(context.model_of("export")).encoder("l2").encode_queries(TEXTS)
    assert float((served * mixed).sum(1).min()) > 0.99


def test_stage_two_may_learn_with_documents_that_come_half_way(blended: tuple[Path, Recipe]) -> None:
    root, _ = blended
    aside = ["data.set_aside=0.2", "stages.vectors.rows={}", "stages.joint.vectors=vectors"]
    plain = [line for line in BLEND if "blend" not in line] + aside
    met = ["stages.joint.halfway=0.4", "stages.joint.early_stop={every: 1}"]
    folders = []
    for name, more in (("stays", []), ("comes", met)):
        recipe = load_recipe(RECIPE, [*plain, *more]).model_copy(update={"name": name})
        report = train(
            recipe, root, device="cpu", only=[stage.name for stage in recipe.stages if stage.name != "export"]
        )
        folders.append(report.folder)
    students = [load_model(folder / "joint" / "model", device="cpu")[0] for folder in folders]
    apart = [student[0].model.encoder.layer[0].output.dense.weight.detach() for student in students]
    assert not torch.equal(*apart), "what documents come to has learnt with them"
    events = [json.loads(line) for line in (folders[1] / "joint" / "events.jsonl").read_text().splitlines()]
    assert max(event.get("best", 0) for event in events) > 0, "it was looked at with documents that have come"
    told = json.loads((folders[1] / "joint" / "metrics.json").read_text())
    assert told["kept.score"] >= told["last.score"] > 0 and told["kept.step"] >= 1
    with pytest.raises(RecipeError, match="say `train_document: false`"):
        load_recipe(RECIPE, ["stages.joint.halfway=0.4", "stages.joint.train_document=true"])
    with pytest.raises(RecipeError, match="take it or `blend` out"):
        load_recipe(RECIPE, [*BLEND, "stages.joint.halfway=0.4"])


def test_a_students_mean_is_that_of_its_weights(blended: tuple[Path, Recipe]) -> None:
    root, recipe = blended
    raw = recipe.model_dump(mode="json")
    mean = {"stage": "merge", "name": "merged", "student": "student", "of": {"align": 0.25, "joint": 0.75}}
    whole = Recipe.model_validate(raw | {"stages": [*raw["stages"], mean]})
    check(whole)
    context = RunContext(whole, root / "care-tiny" / "s0", shared=root)
    metrics = context.run(whole.stage("merged"))
    align, joint, found = (context.student("student", name).state_dict() for name in ("align", "joint", "merged"))
    for name in found:
        torch.testing.assert_close(found[name], 0.25 * align[name] + 0.75 * joint[name])
    assert metrics["mean"] > 0
    for wrong, said in (
        ({"of": {"align": 0.5, "align-static": 0.5}}, "is of 'static'"),
        ({"of": {"align": 0.5, "joint": 0.4}}, "make 1"),
        ({"of": {"joint": 0.5}, "base": 0.4}, "and 0.4 of the base"),
        ({"of": {"joint": 0.5}, "base": 0.5}, "begins with no model"),
    ):
        with pytest.raises((RecipeError, ValueError), match=said):
            check(Recipe.model_validate(raw | {"stages": [*raw["stages"], mean | wrong]}))


def test_a_mean_may_keep_a_share_of_what_the_student_began_with(blended: tuple[Path, Recipe]) -> None:
    """Of a model that it was given: here, of what another stage has left."""
    root, recipe = blended
    raw = recipe.model_dump(mode="json")
    folder = RunContext(recipe, root / "care-tiny" / "s0", shared=root).model_of("align")
    mean = {"stage": "merge", "name": "kept", "student": "student", "of": {"joint": 0.75}, "base": 0.25}
    raw["students"]["student"]["base"] = str(folder)
    whole = Recipe.model_validate(raw | {"stages": [*raw["stages"], mean]})
    context = RunContext(whole, root / "care-tiny" / "s0", shared=root)
    context.run(whole.stage("kept"))
    align, joint, found = (
        load_model(context.model_of(name), device="cpu")[0].state_dict() for name in ("align", "joint", "kept")
    )
    for name in found:
        torch.testing.assert_close(found[name], 0.25 * align[name] + 0.75 * joint[name])


def test_a_changed_share_is_another_stage(blended: tuple[Path, Recipe], tmp_path: Path) -> None:
    root, _ = blended
    other = [
        line.replace("{align-static: 0.5}", "{align-static: 0.4}").replace("static: 0.5}}", "static: 0.4}}")
        for line in BLEND
    ]
    with pytest.raises(TrainError, match=r"blend\.align-static: 0\.5 before, 0\.4 now"):
        train(load_recipe(RECIPE, other), root, device="cpu", resume=True)
