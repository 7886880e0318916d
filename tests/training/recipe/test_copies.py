"""``--set base=PATH``: a copy on this machine in place of a model of the hub, wherever a recipe names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe

QWEN = "Qwen/Qwen2.5-Coder-1.5B-Instruct"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "large=small.gguf"
    path.touch()
    return path


def bases(recipe: str, *sets: str, variant: str | None = None) -> dict[str, str]:
    """What each stage and student of a recipe is made of."""
    loaded = load_recipe(recipe, sets, variant)
    there = {stage.name: getattr(stage, "base", None) for stage in loaded.stages}
    there |= {name: student.base for name, student in loaded.students.items()}
    return {name: base for name, base in there.items() if base}


def test_every_stage_that_names_the_model_takes_the_copy(copy: Path) -> None:
    before, after = bases("sl-hyde-mini"), bases("sl-hyde-mini", f"base={copy}")
    assert list(before.values()).count(QWEN) > 8
    assert after == {name: str(copy) if base == QWEN else base for name, base in before.items()}
    assert after["retriever"] == "moka-ai/m3e-small", "a student's base is another model"


def test_a_model_is_named_where_there_are_several(copy: Path, tmp_path: Path) -> None:
    small = tmp_path / "m3e"
    small.mkdir()
    both = bases("sl-hyde-mini", f"base=moka-ai/m3e-small={small}", f"base={copy}")
    assert both["retriever"] == str(small) and both["queries"] == str(copy)
    with pytest.raises(RecipeError, match=r"say which model, as base=HUB_ID=PATH; the recipe names: .*Qwen2-7B.*32B"):
        bases("sl-hyde", f"base={copy}")
    named = bases("sl-hyde", f"base=Qwen/Qwen2-7B-Instruct={copy}")
    assert named["generator"] == str(copy) != named["queries"]


def test_what_is_set_on_a_stage_itself_stays(copy: Path) -> None:
    made = bases("sl-hyde-mini", f"base={copy}", "stages.queries.base=builtin:qwen2-tiny")
    assert made["queries"] == "builtin:qwen2-tiny" and made["chosen"] == str(copy)


def test_a_variant_has_it_too_and_the_official_name_is_kept(copy: Path) -> None:
    made = bases("reranker-mini", f"base={copy}", variant="by-cosine")
    assert made == {"large": str(copy)}
    recipe = load_recipe("bmretriever-mini", [f"base={copy}"])
    assert {stage.hub_id for stage in recipe.stages if stage.stage == "document"} == {QWEN}


def test_a_copy_that_is_not_there_or_not_wanted_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"there is no .*gone.gguf; give the folder of Qwen/"):
        bases("sl-hyde-mini", f"base={tmp_path / 'gone.gguf'}")
    with pytest.raises(RecipeError, match=r"say which model.*: Qwen/Qwen2.5-Coder-1.5B-Instruct, moka-ai/m3e-small"):
        bases("sl-hyde-mini", f"base=Qwen/Qwen3-4B={copy}")
    with pytest.raises(RecipeError, match="the recipe names: none"):
        bases("care-tiny", f"base={copy}")
