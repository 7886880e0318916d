"""What an adaptation makes of a recipe; the whole way is in tests/cli/test_adapting.py."""

from __future__ import annotations

from pathlib import Path

from suwen.training.adapting import Adaptation, _models
from suwen.training.recipe.recipe_file import load_recipe


def test_a_specialist_goes_on_from_the_pair_that_is_named_and_from_its_tier() -> None:
    recipe = load_recipe("cardioembed-mini")
    keys = _models(recipe, Adaptation(Path("shelf"), Path("work"), pair="house", base="base.gguf"))
    assert {"stages.specialist.base=base.gguf", "stages.specialist.pair=house", "stages.average.pair=house"} <= {*keys}
    assert "students.l6.base=pair:house#l6" in keys
    assert _models(recipe, Adaptation(Path("shelf"), Path("work"))) == []
