"""What an adaptation makes of a recipe; the whole way is in tests/cli/test_adapting.py."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

from small_pair import make_static_pair

from suwen.durable import write_json
from suwen.encoders.pair import pair_folder
from suwen.errors import Stopped
from suwen.training.adapting import Adaptation, OutOfTime, _models, _train
from suwen.training.adapting_progress import UnderWay
from suwen.training.recipe.recipe_file import load_recipe


def test_a_specialist_goes_on_from_the_pair_that_is_named_and_from_its_tier(tmp_path: Path) -> None:
    recipe, shelf = load_recipe("cardioembed-mini"), (Path("shelf"), Path("work"))
    (house := tmp_path / "house").symlink_to(pair_folder("default"), target_is_directory=True)
    keys = _models(recipe, Adaptation(*shelf, pair=str(house), base="base.gguf"))
    made = load_recipe("cardioembed-mini", keys)
    assert made.stage("specialist").pair == made.stage("average").pair == str(house)
    assert made.students["l6"].base == f"pair:{house}#l6" and made.stage("specialist").base == "base.gguf"
    assert made.stage("merge-l6").base == 0.5
    assert _models(recipe, Adaptation(*shelf)) == []


def test_a_pair_without_that_tier_lends_no_start(tmp_path: Path) -> None:
    recipe, bare = load_recipe("cardioembed-mini"), make_static_pair(tmp_path / "pair")
    keys = _models(recipe, Adaptation(Path("shelf"), Path("work"), pair=str(bare)))
    assert f"stages.specialist.pair={bare}" in keys and not any(key.startswith("students.") for key in keys)
    # The default pair's tier is where it starts, and no part of the mean: it is aligned to another space.
    assert load_recipe("cardioembed-mini").stage("merge-l6").base == 0.5
    merged = load_recipe("cardioembed-mini", [key for key in keys if "merge-l6" in key]).stage("merge-l6")
    assert merged.base == 0 and merged.of == {"joint-l6": 1.0}
    # Nor do documents learn to be found by it.
    assert load_recipe("cardioembed-mini").stage("specialist").asked_by == "l6"
    assert {"stages.specialist.asked_by=null", "stages.specialist.halfway=null"} <= set(keys)


@pytest.mark.parametrize(("minutes", "kind"), [(None, Stopped), (60.0, Stopped), (1e-9, OutOfTime)])
def test_a_training_that_is_ended_says_whether_the_time_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float | None, kind: type[Exception]
) -> None:
    """A signal ends it too, and then no budget is spent: there may be none."""
    write_json(tmp_path / "recipe-keys.json", [])
    ended = SimpleNamespace(complete=False, stopped="training stopped after step 3 because of the signal SIGTERM")
    monkeypatch.setattr("suwen.training.recipe_runner.train", lambda *_, **__: ended)
    wanted = Adaptation(Path("shelf"), tmp_path, recipe="cardioembed-tiny", minutes=minutes)
    with pytest.raises(kind, match=r"after step 3 .* run it again to go on") as stopped:
        _train(wanted, UnderWay(tmp_path, minutes), lambda _: None, None)
    assert ("minutes are spent" in str(stopped.value)) == (kind is OutOfTime)
