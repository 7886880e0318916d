"""The stages of the document encoder: trained, frozen without loading its base again, and compiled to encode much."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import suwen.training.ship.freezing
import suwen.training.stages.vectors
import suwen.training.trained_document
from suwen.encoders.base_model import load_base
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.space import load_manifest
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stand_in import with_builtins
from suwen.training.recipe_runner import train
from suwen.training.teacher_vectors import TeacherVectors

SHORT = ("stages.document.training.steps=4", "stages.freeze.measure=false")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document encoder that was trained a little."""
    folder = tmp_path_factory.mktemp("runs")
    train(load_recipe("care-tiny", SHORT), folder, device="cpu", only=["document"])
    return folder


@pytest.mark.parametrize(("resumed", "recomputed"), [(False, False), (True, False), (False, True)])
def test_freezing_loads_the_base_once_and_gives_what_is_loaded_from_the_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed: bool, recomputed: bool
) -> None:
    loads = []

    def loaded(*args: object, **options: object) -> object:
        loads.append(args)
        return load_base(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(suwen.training.trained_document, "load_base", loaded)
    monkeypatch.setattr(suwen.training.ship.freezing, "load_base", loaded)
    frozen = []
    made = suwen.training.ship.freezing.freeze

    def kept(*args: object, **options: object) -> DocumentEncoder:
        frozen.append(made(*args, **options))  # type: ignore[arg-type]
        return frozen[-1]

    monkeypatch.setattr("suwen.training.ship.freezing.freeze", kept)
    if resumed:
        shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    stages = ["freeze"] if resumed else ["document", "freeze"]
    recipe = load_recipe(
        "care-tiny", [*SHORT, f"stages.document.training.gradient_checkpointing={str(recomputed).lower()}"]
    )
    report = train(recipe, tmp_path, device="cpu", only=stages)
    assert len(loads) == 1
    folder = report.folder / "freeze" / "model"
    base = with_builtins(recipe, tmp_path).stage("document").base
    texts = ["高血压怎么办", "the flu vaccine is safe"]
    again = DocumentEncoder.load(folder, base=base, device="cpu")
    np.testing.assert_array_equal(frozen[0].encode(texts), again.encode(texts))


@pytest.mark.parametrize(
    ("start", "texts", "expected"), [("freeze", 1, [512]), ("document", 1, []), ("freeze", 10**6, [])]
)
def test_many_texts_are_encoded_by_a_compiled_encoder_once_it_is_frozen(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, texts: int, expected: list[int]
) -> None:
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    asked: list[int] = []
    monkeypatch.setattr(DocumentEncoder, "compile", lambda self, tokens: asked.append(tokens))
    monkeypatch.setattr(suwen.training.stages.vectors, "_COMPILING_PAYS", texts)
    raw = load_recipe("care-tiny", (*SHORT, "stages.vectors.token_budget=512", "stages.vectors.limit=20")).model_dump()
    vectors = next(stage for stage in raw["stages"] if stage["name"] == "vectors")
    vectors["start"] = start  # the stages after it would then want another space; they are not run
    train(Recipe.model_validate(raw), tmp_path, device="cpu", only=["freeze", "vectors"])
    assert asked == expected


def test_new_tiers_are_trained_in_the_space_of_a_pair_that_is_there(run: Path, tmp_path: Path) -> None:
    """The document encoder of a pair is taken as it is: the same space, and nothing is trained or rounded again."""
    built = with_builtins(load_recipe("care-tiny", SHORT), run / "builtin")
    first = train(built, run, device="cpu", only=["document", "freeze"])
    pair = first.folder / "freeze" / "model"
    raw = built.model_dump(mode="json")
    base = next(stage["base"] for stage in raw["stages"] if stage["stage"] == "document")
    taken = {"stage": "freeze", "name": "freeze", "pair": str(pair), "base": base}
    raw["name"] = "tiers"
    raw["stages"] = [taken, *(stage for stage in raw["stages"] if stage["stage"] == "vectors")]
    recipe = Recipe.model_validate(raw)
    assert list(recipe.stages[0].problems(recipe)) == []
    second = train(recipe, tmp_path, device="cpu")
    copied = load_manifest(second.folder / "freeze" / "model")
    assert copied.space == load_manifest(pair).space and not copied.tiers
    made = TeacherVectors(second.folder / "vectors")
    encoder = DocumentEncoder.load(pair, base=base, device="cpu")
    assert made.space == encoder.space.id
    wide = Recipe.model_validate({**raw, "dimension": 2 * raw["dimension"]})
    assert "say `dimension:" in next(iter(wide.stages[0].problems(wide)))
    for wrong, why in (
        ({"base": None}, "say the `base`"),
        ({"start": "document"}, "say `start`"),
        ({"rank": 2}, "`rank`"),
    ):
        with pytest.raises(ValidationError, match=why):
            Recipe.model_validate({**raw, "stages": [{**taken, **wrong}, *raw["stages"][1:]]})
