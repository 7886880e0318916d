"""Whom a recipe follows where a paper, its published code and our correction do not agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_identity import digest, identity
from suwen.training.recipe.tiny_data import write_tiny_data

SHIPPED = Path(__file__).parents[3] / "recipes"
DOCS = Path(__file__).parents[3] / "docs"


def followed(recipe: Recipe) -> dict[str, Any]:
    align, joint = recipe.stage("align"), recipe.stage("joint")
    return {
        "target": align.target,
        "epochs": align.training.epochs,
        "Stage I": align.prompts.query,
        "Stage II": joint.prompts.query,
    }


@pytest.mark.parametrize(
    ("faithful", "expected"),
    [
        ("paper", {"target": "bare", "epochs": 1, "Stage I": None, "Stage II": None}),
        ("code", {"target": "bare", "epochs": 2, "Stage I": "None", "Stage II": "{instruction}"}),
        ("fixed", {"target": "prompted", "epochs": 1, "Stage I": None, "Stage II": None}),
    ],
)
def test_it_chooses_the_settings_that_differ(faithful: str, expected: dict[str, Any]) -> None:
    assert followed(load_recipe(SHIPPED / "care.yaml", [f"faithful={faithful}"])) == expected


def test_what_is_set_by_hand_wins_and_another_choice_is_other_work(tmp_path: Path) -> None:
    write_tiny_data(tmp_path, conditions=1)
    sets = ["faithful=paper", f"data.root={tmp_path}"]
    mixed = load_recipe(SHIPPED / "care.yaml", [*sets, "stages.align.target=prompted"])
    assert mixed.stage("align").target == "prompted"
    paper, fixed = load_recipe(SHIPPED / "care.yaml", sets), load_recipe(SHIPPED / "care.yaml", sets[1:])
    assert digest(identity(paper, "align", 0)) != digest(identity(fixed, "align", 0))


@pytest.mark.parametrize(
    ("recipe", "sets", "variant", "left"),
    [
        ("bmretriever", [], None, {"pretrain", "finetune"}),
        ("bmretriever", ["faithful=paper"], "1b", {"pretrain", "finetune"}),
        ("bmretriever", [], "without-instruction", set()),
        ("bmretriever", [], "without-pretraining", {"finetune"}),
        ("bmretriever", ["stages.finetune.prompts.query=Q"], None, {"pretrain"}),
        (
            "care",
            ["faithful=paper", "stages.align.target=prompted"],
            None,
            {"align.training", "align.prompts", "joint"},
        ),
    ],
)
def test_a_report_names_only_what_was_followed(
    recipe: str, sets: list[str], variant: str | None, left: set[str]
) -> None:
    told = load_recipe(SHIPPED / f"{recipe}.yaml", sets, variant=variant).differs
    assert all(any(key.startswith(f"stages.{name}") for key in told) for name in left)
    assert len(told) == len(left) and "stages.align.target" not in told


def test_only_the_published_code_trains_behind_another_prompt() -> None:
    with pytest.raises(RecipeError, match=r"stages.align.prompts: 'None' is not what the encoder serves with"):
        load_recipe(SHIPPED / "care.yaml", ["stages.align.prompts={query: None, document: ''}"])


def test_the_documentation_lists_every_setting_with_its_three_values() -> None:
    page = (DOCS / "papers.md").read_text(encoding="utf-8")
    for file in SHIPPED.glob("*.yaml"):
        if file.stem.endswith("-variants"):
            continue
        for key, one in load_recipe(file).differs.items():
            values = (shown(one.under(who)) for who in ("paper", "code", "fixed"))
            assert f"| {file.stem} | `{key}` | {' | '.join(values)} |" in page, key


def shown(value: Any) -> str:
    said = value.get("query") if isinstance(value, dict) else value
    return "as served" if said is None else f"`{said}`".replace("\n", "\\n")
