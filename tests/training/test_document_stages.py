"""The stages of the document encoder: trained, frozen without loading its base again, and compiled to encode much."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import suwen.training.ship.freezing
import suwen.training.stages.vectors
import suwen.training.trained_document
from suwen.encoders.base_model import load_base
from suwen.encoders.document import DocumentEncoder
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stand_in import with_builtins
from suwen.training.recipe_runner import train

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
