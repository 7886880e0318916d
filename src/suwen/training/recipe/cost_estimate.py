"""What a recipe will cost, known before it starts, and whether it fits into memory and disk. Rough: from shapes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from suwen.bench.published_tables import published
from suwen.errors import SuwenError
from suwen.training.recipe.data_files import COST, absent, refuse_measured, require_sources
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Stage
from suwen.training.recipe.stage_cost import Machine, StageEstimate
from suwen.training.tasks.row_tables import rows_folder_sources

_SPARE = 0.05
_DEVICES = {"cuda": "H200", "cpu": "CPU of two cores"}
#: The stages of the recipe `care` behind the columns of the paper's Table 19.
TABLE_19 = {"Stage-1": ("vectors", "align"), "Stage-2": ("joint",), "Finetune baseline": ("document",)}


class EstimateError(SuwenError):
    """Data that were named and are not there, or too little room for what the recipe will write."""


@dataclass(frozen=True)
class Estimate:
    """The cost of a recipe."""

    stages: tuple[StageEstimate, ...]
    gpus: int = 1
    device: str = _DEVICES["cpu"]

    @property
    def seconds(self) -> float:
        """All stages whose time is known, together."""
        return sum(stage.seconds or 0.0 for stage in self.stages)

    @property
    def memory(self) -> int:
        """The largest stage."""
        return max((stage.memory or 0 for stage in self.stages), default=0)

    @property
    def host(self) -> int:
        """RAM of the largest stage, of all processes together."""
        return max((stage.host for stage in self.stages), default=0)

    @property
    def disk(self) -> int:
        """What is written in all."""
        return sum(stage.disk for stage in self.stages)


def estimate(recipe: Recipe, device: str = "cpu", names: Collection[str] | None = None, *, gpus: int = 1) -> Estimate:
    """The cost of these stages, or of all, from shapes, the data and settings.

    Raises:
        EstimateError: the data folder that was named is not there.
        DataError: a stage reads rows or texts, and what was named of them is not there, or may not be trained on.
    """
    kind = "cuda" if device.startswith("cuda") else "cpu"
    machine = Machine(**COST[kind], gpus=gpus)
    stages = [stage for stage in recipe.stages if names is None or stage.name in names]
    _require_data(recipe, stages)
    return Estimate(tuple(stage.cost(recipe, machine) for stage in stages), gpus, _DEVICES[kind])


def _require_data(recipe: Recipe, stages: Collection[Stage]) -> None:
    """Refuse data that a training would: the expected numbers would stand for data nobody has, or may not use."""
    root, rows = recipe.data.root, recipe.data.rows
    if _is_missing(root):
        raise EstimateError(f"data.root: {root} is not a folder; correct the path, or leave data.root out")
    if _is_missing(rows) and any(stage.rows_read is not None for stage in stages):
        rows_folder_sources(Path(rows))  # it says what to do, as it does to a training
    refuse_measured(recipe, stages)
    for stage in stages:
        if rows is not None and Path(rows).is_dir():
            require_sources(recipe, stage)
        if stage.reads_texts and _is_missing(file := stage.texts_file(recipe), Path.is_file):
            raise absent("texts", file, stage)


def _is_missing(path: str | None, there: Callable[[Path], bool] = Path.is_dir) -> bool:
    """Whether a folder, or a file, is named and is not there; one of a variable that nothing says is not named yet."""
    return path is not None and not path.startswith("builtin:") and "${" not in path and not there(Path(path))


def beside_paper(recipe: Recipe, cost: Estimate) -> dict[str, tuple[float, float]]:
    """GPU-hours by column of the paper's Table 19, as estimated and as printed; empty for recipes other than `care`."""
    row = f"CARE-0.3B-{getattr(recipe.decoder_stage, 'base', '')[-2:]}"
    printed = [one for one in published("care", 19) if one.row == row and recipe.name.split(".")[0] == "care"]
    hours = {stage.name: cost.gpus * (stage.seconds or 0.0) / 3600 for stage in cost.stages}
    own = {column: sum(hours.get(name, 0.0) for name in names) for column, names in TABLE_19.items()}
    return {one.column: (own[one.column], one.number or 0.0) for one in printed if own[one.column]}


def tight(recipe: Recipe, cost: Estimate, room: int) -> list[str]:
    """A line for every stage that may not fit into ``room`` bytes of memory, with what would make it smaller."""
    return [
        f"'{stage.name}' may need {_gigabytes(stage.memory)} of memory, and there are {_gigabytes(room)}: "
        f"{recipe.stage(stage.name).less_memory}"
        for stage in cost.stages
        if stage.memory is not None and stage.memory > room
    ]


def memory_of(device: str) -> int | None:
    """All memory of a GPU, or of the machine; None where it cannot be known."""
    import torch

    if not device.startswith("cuda"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    return int(torch.cuda.get_device_properties(device).total_memory) if torch.cuda.is_available() else None


def require_disk(recipe: Recipe, folder: Path, names: Collection[str] | None = None) -> None:
    """Refuse to start when the teacher's vectors and the models of these stages, or of all, will not fit.

    Raises:
        EstimateError: with the room needed and the room there is.
    """
    stages = estimate(recipe, names=names).stages
    todo = [stage for stage in stages if not (folder / stage.name / "metrics.json").is_file()]
    needed = sum(stage.disk for stage in todo)
    there = folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if needed > free * (1 - _SPARE):
        largest = max(todo, key=lambda stage: stage.disk)
        raise EstimateError(
            f"not enough disk at {there}: about {_gigabytes(needed)} are needed ('{largest.name}' alone writes "
            f"{_gigabytes(largest.disk)}) and {_gigabytes(free)} are free; free some, choose another --out"
            + (f", or {less}" if (less := recipe.stage(largest.name).less_disk) else "")
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
