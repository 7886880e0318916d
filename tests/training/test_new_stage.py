"""A stage that is defined in one file, this one, works wherever stages do; CONTRIBUTING.md shows it as the example."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field
from typing_extensions import override

sys.path.insert(0, str(Path(__file__).parent))

from recipes_on_the_spot import Stages, raw_recipe, write_recipe

from suwen.training.recipe.cost_estimate import estimate, tight
from suwen.training.recipe.key_groups import Name
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import STAGES, Needs, Stage
from suwen.training.recipe.stage_cost import Machine, StageEstimate
from suwen.training.recipe.tiny_data import write_tiny_data
from suwen.training.recipe_runner import TrainError, train

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class MeanStage(Stage):
    """Keeps the mean of the teacher's vectors."""

    stage: Literal["mean"]
    start: Annotated[Name, Needs("vectors")] = Field(description="the vectors stage")
    limit: int | None = Field(default=None, ge=1, description="number of vectors; null = all")

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        vectors = np.load(context.folder_of(self.start) / "vectors.npy")[: self.limit]
        mean = vectors.mean(axis=0)
        return folder.leave(
            lambda out: np.save(out / "mean.npy", mean), lambda: {"length": float(np.linalg.norm(mean))}
        )

    @override
    def cost(self, recipe: Recipe, machine: Machine) -> StageEstimate:
        return StageEstimate(self.name, self.stage, memory=10**15, seconds=3.0, disk=4 * recipe.dimension)

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        if recipe.dimension > 10**6:
            yield f"stages.{self.name}: no mean is that wide; lower `dimension`"


def recipe_with_it(folder: Path, *sets: str) -> Recipe:
    raw = raw_recipe()
    raw["stages"][3:] = [{"stage": "mean", "name": "mean", "start": "vectors"}]
    raw["students"] = {}
    return load_recipe(write_recipe(folder, raw), [f"data.root={folder / 'data'}", *sets])


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stages:
    """The other stages do nothing, but for a few vectors."""
    write_tiny_data(tmp_path / "data", conditions=4)
    own, others = STAGES["mean"].run, Stages(monkeypatch)

    def vectors(stage: Any, context: Any, folder: Any) -> dict[str, float]:
        np.save(folder.path / "vectors.npy", np.array([[3.0, 0.0], [3.0, 8.0]]))
        return {}

    others["vectors"], others["mean"] = vectors, own
    return others


def test_its_recipe_is_checked_and_estimated(tmp_path: Path) -> None:
    write_tiny_data(tmp_path / "data", conditions=4)
    recipe = recipe_with_it(tmp_path)
    assert isinstance(recipe.stage("mean"), MeanStage)
    cost = estimate(recipe, names=["mean"])
    assert (cost.seconds, cost.disk) == (3.0, 4 * 32)
    assert tight(recipe, cost, 10**9) == [
        "'mean' may need 1000000.00 GB of memory, and there are 1.00 GB: take a larger device, or --device cpu"
    ]
    for sets, words in (
        ("stages.mean.start=freeze", "'freeze' is a stage of kind freeze; name one of kind vectors"),
        ("stages.mean.start=vecters", "unknown stage 'vecters'; did you mean 'vectors'?"),
        ("stages.mean.limt=3", "stages.mean.limt: unknown key; did you mean 'limit'?"),
        ("stages.mean.limit=0", r"stages.mean.limit: 0 is wrong: .*\(limit: number of vectors; null = all\)"),
        ("dimension=2000000", "stages.mean: no mean is that wide"),
    ):
        with pytest.raises(RecipeError, match=words):
            recipe_with_it(tmp_path, sets)


def test_it_runs_is_kept_resumed_linked_and_refused_with_other_settings(tmp_path: Path, stages: Stages) -> None:
    own = STAGES["mean"].run
    stages["mean"] = stages.run
    stages.broken = {"mean"}
    with pytest.raises(RuntimeError, match="killed"):
        train(recipe_with_it(tmp_path), tmp_path / "runs")
    stages["mean"] = own
    with pytest.raises(TrainError, match="'mean' is unfinished"):
        train(recipe_with_it(tmp_path), tmp_path / "runs")
    report = train(recipe_with_it(tmp_path), tmp_path / "runs", resume=True)
    assert [(one.name, one.how) for one in report.stages][2:] == [("vectors", "kept"), ("mean", "run")]
    assert report.stages[-1].metrics["length"] == 5.0
    np.testing.assert_array_equal(np.load(report.folder / "mean" / "model" / "mean.npy"), [3.0, 4.0])
    assert train(recipe_with_it(tmp_path), tmp_path / "runs").stages[-1].how == "kept"
    assert train(recipe_with_it(tmp_path), tmp_path / "runs", seed=1).stages[-1].how == "linked"
    with pytest.raises(TrainError, match=r"config\.limit: None before, 1 now"):
        train(recipe_with_it(tmp_path, "stages.mean.limit=1"), tmp_path / "runs")


def test_it_stands_in_for_itself_in_a_dry_run(tmp_path: Path, stages: Stages) -> None:
    recipe = recipe_with_it(tmp_path, "stages.mean.limit=1000")
    report = train(recipe, tmp_path / "runs", dry_run=True)
    assert report.complete and report.stages[-1].metrics["length"] == 5.0
    written = (report.folder / "mean" / "config.json").read_text(encoding="utf-8")
    assert '"limit": 24' in written, "a number of texts or vectors is small in a dry run, whoever's key it is"


def test_two_stages_of_one_word_are_refused() -> None:
    with pytest.raises(TypeError, match="two stages are called 'mean'"):

        class Another(Stage):
            stage: Literal["mean"]

    assert STAGES["mean"] is MeanStage
