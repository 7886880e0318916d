"""What an adaptation makes of a recipe; the whole way is in tests/cli/test_adapting.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

from small_pair import make_static_pair

from suwen.encoders.pair import pair_folder
from suwen.training.adapting_keys import Adaptation, AdaptError, models_of
from suwen.training.recipe.recipe_file import load_recipe


def test_a_specialist_goes_on_from_the_pair_that_is_named_and_from_its_tier(tmp_path: Path) -> None:
    recipe, shelf = load_recipe("cardioembed-mini"), (Path("shelf"), Path("work"))
    (house := tmp_path / "house").symlink_to(pair_folder("default"), target_is_directory=True)
    keys = models_of(recipe, Adaptation(*shelf, pair=str(house), base="base.gguf"))
    made = load_recipe("cardioembed-mini", keys)
    assert made.stage("specialist").pair == made.stage("average").pair == str(house)
    assert made.students["l6"].base == f"pair:{house}#l6" and made.stage("specialist").base == "base.gguf"
    assert made.stage("export").keeps == str(house) and recipe.stage("export").keeps == "default"
    assert models_of(recipe, Adaptation(*shelf)) == []


def test_a_pair_without_that_tier_lends_no_start(tmp_path: Path) -> None:
    recipe, bare = load_recipe("cardioembed-aligned"), make_static_pair(tmp_path / "pair")
    wanted = Adaptation(Path("shelf"), Path("work"), pair=str(bare))
    keys = models_of(recipe, wanted)
    assert f"stages.specialist.pair={bare}" in keys and not any(key.startswith("students.") for key in keys)
    # The default pair's tier is where it starts, and no part of the mean: it is aligned to another space.
    assert recipe.stage("merge-l6").base == 0.5
    merged = load_recipe("cardioembed-aligned", [key for key in keys if "merge-l6" in key]).stage("merge-l6")
    assert merged.base == 0 and merged.of == {"joint-l6": 1.0}
    with pytest.raises(AdaptError, match=r"has no tier 'l6', by whose queries .* say --recipe cardioembed-aligned"):
        models_of(load_recipe("cardioembed-mini"), wanted)
