"""How far a stage that was stopped and resumed ends from one that was not: on a CPU nowhere, on a GPU by rounding.

Run: python benchmarks/gpu_resume.py [--recipe recipes/care-tiny.yaml --stages document,retromae,align,joint]
         [--steps 100 --set key=value ... --root FOLDER --out FILE.json]
     python benchmarks/gpu_resume.py --tiny    (a CPU, fewer steps: every difference must be exactly 0)

Each stage is trained once undisturbed. Then its folder is deleted, and it is trained again from the same stages before
it, stopped in the middle and resumed: models, tasks, optimisers and folders are all made again, only the checkpoint
carries over. What is printed is the largest difference between the two losses of one step, over the steps that the
resumed part did; the target is 0.001 on a GPU. On a GPU sums are taken in no fixed order, so the undisturbed training
is done a second time as well: a resume cannot be asked to differ less than the same training does from itself.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from suwen.training.loop.curves import Curves
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe_runner import train

TARGET = 1e-3
STAGES = "document,retromae,align,joint"


class StopAt:
    """Stops a training after a number of steps of this run."""

    def __init__(self, step: int) -> None:
        self.step, self.done = step, 0

    def progress(self, stage: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Hear of a step."""
        self.done = done

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.done >= self.step


def losses(folder: Path) -> dict[int, float]:
    """The loss of every step."""
    return {int(row["step"]): row["loss"] for row in Curves(folder / "curves.csv").rows()}


def largest(one: dict[int, float], other: dict[int, float], after: int) -> float:
    """The largest difference of two losses of one step, over the steps after one."""
    steps = [step for step in one if step > after]
    if not steps or steps != [step for step in other if step > after]:
        raise SystemExit(f"the two trainings did other steps: {sorted(one)[-3:]} and {sorted(other)[-3:]}")
    return max(abs(one[step] - other[step]) for step in steps)


def again(recipe: Recipe, options: argparse.Namespace, stage: str, *, stop_at: int | None) -> dict[int, float]:
    """Train one stage again, perhaps stopped once, over the stages that are there."""
    folder = options.root / recipe.name / f"s{recipe.seed}" / stage
    shutil.rmtree(folder)
    if stop_at is not None:
        stop = StopAt(stop_at)
        train(recipe, options.root, device=options.device, only=[stage], progress=stop.progress, stop=stop, resume=True)
        last = max(losses(folder), default=0)
        if last != stop_at:
            raise SystemExit(f"{stage} was to stop after step {stop_at} and did after {last}: give --steps above that")
    train(recipe, options.root, device=options.device, only=[stage], resume=True)
    return losses(folder)


def compare(recipe: Recipe, options: argparse.Namespace, stage: str) -> dict[str, Any]:
    """One stage, three times."""
    half = options.steps // 2
    undisturbed = losses(options.root / recipe.name / f"s{recipe.seed}" / stage)
    repeated = again(recipe, options, stage, stop_at=None)
    resumed = again(recipe, options, stage, stop_at=half)
    return {
        "stage": stage,
        "steps": options.steps,
        "stopped_after": half,
        "resumed": largest(undisturbed, resumed, half),
        "repeated": largest(undisturbed, repeated, half),
        "first_loss": undisturbed[min(undisturbed)],
        "last_loss": undisturbed[max(undisturbed)],
    }


def prepared(options: argparse.Namespace) -> Recipe:
    """The recipe with a row of the curves for every step, and as many steps as asked for."""
    sets = list(options.sets)
    for stage in options.stages:
        training = {"steps": options.steps, "log_every": 1, "checkpoint_every": 0, "precision": options.precision}
        sets += [f"stages.{stage}.training.{key}={value}" for key, value in training.items()]
    return load_recipe(options.recipe, sets)


def table(rows: list[dict[str, Any]]) -> str:
    """The results in Markdown."""
    lines = ["| stage | steps | stopped after | loss | resumed: largest difference | trained twice |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        lines.append(
            f"| {row['stage']} | {row['steps']} | {row['stopped_after']} | {row['first_loss']:.4f} to "
            f"{row['last_loss']:.4f} | {row['resumed']:.2e} | {row['repeated']:.2e} |"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="care-tiny", help="a recipe's file, or the name of a shipped one")
    parser.add_argument("--stages", default=STAGES, help="those compared, with commas")
    parser.add_argument("--set", action="append", dest="sets", default=[], help="key=value of the recipe")
    parser.add_argument("--steps", type=int, default=100, help="of each stage; it is stopped after half of them")
    parser.add_argument("--precision", choices=("bf16", "fp32"), help="bf16 on a GPU by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--root", type=Path, help="where to train; a temporary folder by default")
    parser.add_argument("--out", type=Path, help="a JSON file for all numbers")
    parser.add_argument("--tiny", action="store_true", help="on a CPU with one thread, 8 steps a stage")
    options = parser.parse_args()
    if options.tiny:
        options.device, options.precision, options.steps = "cpu", "fp32", 8
        torch.set_num_threads(1)
    options.precision = options.precision or ("bf16" if options.device.startswith("cuda") else "fp32")
    options.stages = options.stages.split(",")
    return options


def main() -> int:
    """Train, compare, print; 1 where a resumed stage is too far off."""
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        options.root = options.root or Path(folder)
        recipe = prepared(options)
        last = max(place for place, stage in enumerate(recipe.stages) if stage.name in options.stages)
        needed = [stage.name for stage in recipe.stages[: last + 1]]
        train(recipe, options.root, device=options.device, only=needed, resume=True)
        # The last first: what a stage starts from is then still that of the undisturbed run.
        compared = [name for name in needed if name in options.stages]
        rows = [compare(recipe, options, stage) for stage in reversed(compared)][::-1]
    where = torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.machine()
    print(f"{where}, torch {torch.__version__}, {options.precision}\n\n{table(rows)}")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        found = {"device": where, "torch": torch.__version__, "precision": options.precision, "stages": rows}
        options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    allowed = TARGET if options.device.startswith("cuda") else 0.0
    return int(any(row["resumed"] > allowed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
