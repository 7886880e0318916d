"""What is said of a recipe that cannot be read: the file that was meant, the keys it lacks, the cure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipes_on_the_spot import raw_recipe, write_recipe

from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe

VARIANTS = "variants: {small: {description: a small one}}\n"


def test_a_circle_of_includes_is_refused(tmp_path: Path) -> None:
    write_recipe(tmp_path, {"include": "b.yaml"}, "a.yaml")
    write_recipe(tmp_path, {"include": "a.yaml"}, "b.yaml")
    with pytest.raises(RecipeError, match="includes itself"):
        load_recipe(tmp_path / "a.yaml")


@pytest.mark.parametrize(("text", "words"), [("- a\n- b\n", "is not a recipe"), ("name: [", "is not YAML")])
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError, match=words):
        load_recipe(tmp_path / "x.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"nowhere\.yaml: there is no such recipe"):
        load_recipe(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("care-tinny", r"there is no recipe 'care-tinny'.*did you mean 'care-tiny'\?"),
        ("care-tiny.yaml", "leave folder and ending out: 'care-tiny'"),
        ("recipes/care-tiny.yml", "leave folder and ending out: 'care-tiny'"),
        ("compsoe.yaml", r"did you mean 'compose\.yaml'\?"),
        ("other.yaml", r"there are: compose\.yaml"),
    ],
)
def test_a_recipe_that_is_not_there_gets_the_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (tmp_path / "compose.yaml").write_text("services: {}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=said):
        load_recipe(name)


def test_one_wrong_key_is_one(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="has 1 wrong key:"):
        load_recipe(write_recipe(tmp_path, raw_recipe()), ["data.rowz=x"])


def test_keys_that_are_missing_are_named_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("seed: 1\n", encoding="utf-8")
    with pytest.raises(RecipeError) as refused:
        load_recipe(file)
    first, *lines = str(refused.value).splitlines()
    assert first == f"the recipe '{file}' lacks 3 keys:"
    assert [line.split(":")[0] for line in lines] == ["name", "dimension", "stages"]


@pytest.mark.parametrize("name", ["care-variants", "bmretriever-variants"])
def test_for_a_file_of_variants_the_recipes_that_have_them_are_named(name: str) -> None:
    with pytest.raises(RecipeError, match=r"it has variants for others and no stages") as refused:
        load_recipe(name)
    meant = str(refused.value).partition("`suwen train ")[2].partition(" ")[0]
    assert f"{meant}, " in str(refused.value)
    assert load_recipe(meant).variants


def test_a_file_of_variants_that_no_recipe_includes_says_how_to_include_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(VARIANTS, encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("name: [", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"write one with `include: mine\.yaml`"):
        load_recipe(file)
