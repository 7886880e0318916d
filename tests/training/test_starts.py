"""Where students start: the teacher's own layers are the teacher, and its token vectors are better than dice."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from suwen.encoders.side import load_model
from suwen.training.loop.batches import opened
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe_runner import train
from suwen.training.students.student_models import build_student, init_from_vectors
from suwen.training.students.student_tokenizer import token_texts, train_tokenizer
from suwen.training.tasks.row_tables import fingerprint
from suwen.training.teacher_vectors import TeacherVectors
from suwen.training.trained_student import StudentModel

SHIPPED = Path(__file__).parents[2] / "recipes" / "care-tiny.yaml"
TRAINING = {"steps": 0, "batch": 32, "learning_rate": 1e-3}


def recipe_of(tmp: Path, students: dict[str, dict[str, Any]], sets: Sequence[str] = ()) -> Recipe:
    """The tiny recipe's teacher, hardly trained, and students that are aligned in no step, or in few."""
    import yaml

    raw = load_recipe(SHIPPED, sets).model_dump(mode="json")
    kept = [stage for stage in raw["stages"] if stage["name"] in ("document", "freeze", "vectors")]
    aligned = [
        {
            "stage": "align",
            "name": f"align-{name}",
            "student": name,
            "vectors": "vectors",
            "training": TRAINING | ({"steps": 3} if name in ("fixed", "ranked") else {}),
            **({"ranking": 1.0, "neighbours": 4} if name == "ranked" else {}),
        }
        for name in students
    ]
    if "fixed" in students:
        # Its table is taken before that table's own student is through.
        later = {"name": "more-tokens", "start": "align-tokens", "training": TRAINING | {"steps": 3}}
        aligned += [stage | later for stage in aligned if stage["student"] == "tokens"]
    if "based" in students:
        merged = {"stage": "merge", "name": "merge-based", "student": "based"}
        merged |= {"of": {"learnt-based": 0.75}, "base": 0.25}
        learnt = next(stage for stage in aligned if stage["student"] == "based")
        aligned += [learnt | {"name": "learnt-based", "training": TRAINING | {"steps": 3}}, merged]
    file = tmp / "starts.yaml"
    raw |= {"name": "starts", "students": students, "stages": [*kept, *aligned], "variants": {}}
    file.write_text(yaml.safe_dump(raw, allow_unicode=True), encoding="utf-8")
    return load_recipe(file, ["data.root=builtin:tiny"])


def pretrained(folder: Path) -> Path:
    """An encoder of another dimension than the space."""
    tokenizer = train_tokenizer(["头疼怎么办", "高血压的饮食", "how is the flu treated"], size=150)
    build_student(tokenizer, layers=1, width=32, heads=4, dimension=24, max_length=64).save(str(folder))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    folder = tmp_path_factory.mktemp("starts")
    forms = {"prompts": {"query": "[Q]", "document": "[D]"}}
    students: dict[str, dict[str, Any]] = {
        "whole": {"start": "layers-of-document", "layers": 2},
        "half": {"start": "layers-of-document", "layers": 1},
        "random": {"kind": "static", **forms},
        "tokens": {"kind": "static", "init": "vectors", **forms},
        "ranked": {"kind": "static", **forms},
        "fixed": {"layers": 1, "width": 32, "heads": 4, "init": "table:tokens", "train_table": False, **forms},
        "plain": {"layers": 1, "width": 32, "heads": 4, "projection": False, **forms},
        "based": {"base": str(pretrained(folder / "pretrained")), "layers": 1, "width": 32, "heads": 4, **forms},
    }
    recipe = recipe_of(folder, students, ["stages.document.training.steps=12"])
    report = train(recipe, folder / "runs", device="cpu")
    assert report.complete
    return recipe, report.folder


def cosines(run: tuple[Recipe, Path], student: str) -> Any:
    """Of the student with the teacher, over queries that no training text holds."""
    from suwen.training.development_measure import load_measures

    recipe, folder = run
    root = folder.parents[1] / "builtin"
    (task,) = load_measures(next(root.rglob("dev.toml")))
    model, _ = load_model(folder / f"align-{student}" / "model", device="cpu")
    found = StudentModel(model, recipe.students[student]).encode(task.data.queries)
    taught = np.load(folder / "vectors" / "measure" / f"{task.name}-queries.npy").astype(np.float32)
    return found, taught


def mean_cosine(found: Any, taught: Any) -> float:
    return float((found * taught).sum(axis=1).mean())


def test_a_student_is_projected_into_the_space_where_it_is_asked_to(run: tuple[Recipe, Path]) -> None:
    _, folder = run
    plain, _ = load_model(folder / "align-plain" / "model", device="cpu")
    assert [type(module).__name__ for module in plain] == ["Transformer", "Pooling", "Normalize"]
    based, _ = load_model(folder / "align-based" / "model", device="cpu")
    source, _ = load_model(folder.parents[2] / "pretrained", device="cpu")
    assert (source.get_embedding_dimension(), based.get_embedding_dimension()) == (24, 32)
    assert [type(module).__name__ for module in based][-3:] == ["Dense", "Dense", "Normalize"]
    assert torch.equal(*(model[0].model.embeddings.word_embeddings.weight for model in (based, source)))
    found, taught = cosines(run, "based")
    assert found.shape == taught.shape


def test_a_mean_holds_a_part_of_what_the_student_began_as(run: tuple[Recipe, Path]) -> None:
    _, folder = run
    began, learnt, mean = (
        load_model(folder / name / "model", device="cpu")[0].state_dict()
        for name in ("align-based", "learnt-based", "merge-based")
    )
    assert any(not torch.equal(began[name], learnt[name]) for name in began)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, 0.75 * learnt[name] + 0.25 * began[name])


def test_a_table_that_is_not_trained_stays_a_static_students_while_the_rest_learns(run: tuple[Recipe, Path]) -> None:
    recipe, folder = run
    fixed, _ = load_model(folder / "align-fixed" / "model", device="cpu")
    source, _ = load_model(folder / "align-tokens" / "model", device="cpu")
    start = build_student(
        Tokenizer.from_file(str(next(folder.parents[1].glob("tokenizer-*.json")))),
        layers=1,
        width=32,
        heads=4,
        dimension=recipe.dimension,
        max_length=recipe.students["fixed"].max_length,
    )
    init_from_vectors(start, source[0].embedding.weight.detach().numpy())
    tables = [student[0].model.get_input_embeddings().weight for student in (fixed, start)]
    assert torch.equal(*tables), "to the last bit"
    moved = fixed[0].model.encoder.layer[0].output.dense.weight - start[0].model.encoder.layer[0].output.dense.weight
    assert float(moved.detach().abs().max()) > 1e-4, "the rest has learnt"


def test_a_stage_may_learn_the_order_of_the_nearest_documents(run: tuple[Recipe, Path]) -> None:
    _, folder = run
    with (folder / "align-ranked" / "curves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["ranking"]) > 0 for row in rows)
    assert float(rows[-1]["loss"]) == pytest.approx(
        sum(float(rows[-1][name]) for name in ("contrastive", "squared_l2", "ranking")), rel=1e-4
    )


def test_the_nearest_documents_are_found_once_for_all_stages(
    run: tuple[Recipe, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = run
    (kept,) = (opened(path)["near"] for path in (folder / "vectors" / "nearest").iterdir() if path.is_dir())
    teacher = TeacherVectors(folder / "vectors")
    places = np.arange(len(teacher.array("query")))
    scores = teacher.array("query").astype(np.float32) @ teacher.documents().astype(np.float32).T
    found = np.take_along_axis(scores, kept, axis=1)
    np.testing.assert_allclose(found, -np.sort(-scores, axis=1)[:, :4], atol=1e-6)

    def again(*_: object, **__: object) -> None:
        pytest.fail("they were looked for again")

    monkeypatch.setattr("suwen.training.teacher_vectors.nearest_documents", again)
    np.testing.assert_array_equal(teacher.nearest("query", places, 4, device="cpu"), kept)


def test_a_stage_that_takes_a_table_knows_whose(run: tuple[Recipe, Path]) -> None:
    _, folder = run
    inputs = json.loads((folder / "align-fixed" / "inputs.json").read_text(encoding="utf-8"))
    assert "stage.align-tokens" in inputs and "stage.more-tokens" not in inputs


def test_a_table_is_taken_from_the_same_stage_when_that_student_has_learnt_more_since(run: tuple[Recipe, Path]) -> None:
    recipe, folder = run
    before = (folder / "align-fixed" / "inputs.json").read_text(encoding="utf-8")
    shutil.rmtree(folder / "align-fixed")
    assert train(recipe, folder.parents[1], device="cpu", resume=True).complete
    assert (folder / "align-fixed" / "inputs.json").read_text(encoding="utf-8") == before


def test_all_layers_of_the_teacher_are_the_teacher(run: tuple[Recipe, Path]) -> None:
    found, taught = cosines(run, "whole")
    assert found.shape == taught.shape
    # What is stored of the teacher is in fp16.
    assert np.abs(found - taught).max() < 2e-3
    assert mean_cosine(*cosines(run, "half")) < 0.999


def test_a_table_from_the_teacher_s_vectors_is_nearer_than_dice(run: tuple[Recipe, Path]) -> None:
    found, taught = cosines(run, "tokens")
    dice, _ = cosines(run, "random")
    assert mean_cosine(found, taught) > mean_cosine(dice, taught) + 0.3
    # Nearer by the tokens too, not by the form's vector alone: a text is told from the others.
    form = taught.mean(axis=0) / np.linalg.norm(taught.mean(axis=0))
    own = (found - found.mean(axis=0)) / np.linalg.norm(found - found.mean(axis=0), axis=1, keepdims=True)
    wanted = taught - (taught @ form)[:, None] * form
    right, wrong = (own * wanted).sum(axis=1), (own * np.roll(wanted, 7, axis=0)).sum(axis=1)
    assert right.mean() > wrong.mean() + 0.05


def test_the_vectors_of_the_tokens_are_kept_with_the_others(run: tuple[Recipe, Path]) -> None:
    recipe, folder = run
    import json

    metrics = json.loads((folder / "vectors" / "metrics.json").read_text(encoding="utf-8"))
    stored = np.load(folder / "vectors" / "tokens" / "vectors.npy", mmap_mode="r")
    table = load_model(folder / "align-tokens" / "model", device="cpu")[0][0].embedding.weight
    assert metrics["texts.tokens"] == len(stored) == len(table)
    assert recipe.wants_tokens and not recipe.model_copy(update={"students": {}}).wants_tokens


def test_a_token_is_encoded_as_what_it_says() -> None:
    tokenizer = train_tokenizer(["aspirin and aspirin 高血压 高血压"] * 4, size=200)
    texts = token_texts(tokenizer)
    assert len(texts) == tokenizer.get_vocab_size()
    assert texts[tokenizer.token_to_id("[CLS]")] == texts[tokenizer.token_to_id("[Q]")] == ""
    assert texts[tokenizer.token_to_id("▁aspirin")] == "aspirin"
    assert texts[tokenizer.token_to_id("高血压")] == "高血压"
    assert fingerprint(texts) == fingerprint(token_texts(tokenizer))


def test_such_a_start_is_refused_where_there_are_no_vectors(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="`init: vectors` starts the table of a static student"):
        recipe_of(tmp_path, {"wide": {"width": 64, "heads": 4, "init": "vectors"}})
    with pytest.raises(RecipeError, match="starts in an align stage"):
        load_recipe(SHIPPED, ["students.static.init=vectors", "stages.joint.student=static", "stages.joint.start=null"])
