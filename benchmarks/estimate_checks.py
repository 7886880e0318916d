"""How far `suwen train --estimate` is off: its time beside what runs took, stage by stage.

    python benchmarks/estimate_checks.py docs/data/estimate-checks.json

The data of these runs are not in the repository. Their numbers of rows and texts and their mean lengths in tokens are
below, as the runs reported them and as Qwen's tokenizer counts what tools/make_training_data.py writes; so this needs
no data and no GPU, and checks the arithmetic and its constants, not the sampling of texts (which is a test's,
tests/training/recipe/test_estimate.py). The constants (src/suwen/training/recipe/cost_constants.toml) were fitted to
`care-mini in one go`, and to nothing else here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from suwen.training.recipe.cost_estimate import estimate
from suwen.training.recipe.recipe_file import load_recipe

ROOT = Path(__file__).parents[1]
FITTED = "care-mini in one go"
#: Rows an epoch, by the 404 steps of its joint stages; tokens with the marks and the prompt around a text.
_SIZES = "data.expected={rows: 103424, texts: 1250000, query_tokens: 15.5, document_tokens: 64.5, text_tokens: 14.5}"
_TIERS = "data.expected={rows: 96973, texts: 151809, query_tokens: 15.5, document_tokens: 64.5, text_tokens: 17.5}"


def _steps(**steps: int) -> list[str]:
    """Keys that put steps in place of seconds."""
    names = {name.replace("_", "-"): number for name, number in steps.items()}
    return [
        key
        for name, number in names.items()
        for key in (f"stages.{name}.training.seconds=null", f"stages.{name}.training.steps={number}")
    ]


def runs() -> dict[str, tuple[str, list[str], dict[str, float]]]:
    """The runs: their recipe, what was set, and the seconds of each stage."""
    stages = json.loads((ROOT / "docs/data/care-mini-in-one-go.json").read_text("utf-8"))["stages"]
    took = {name.replace("-", "_"): one["steps"] for name, one in stages.items() if "steps" in one}
    timed = {name: took[name] for name in ("document", "align_static", "retromae_l6", "align_l6")}
    # As many texts in two forms as the run had: 592,525 and 120,006.
    forms = ["stages.vectors.forms={query: null, document: null}", "stages.vectors.limit=356265"]
    fewer = ["stages.vectors.forms={query: null, document: null}", "data.measure=dev.toml"]
    step = json.loads((ROOT / "docs/data/stage-one-cost.json").read_text("utf-8"))
    per_step = step["ways"]["stored"]["median_per_sample"] * step["setup"]["batch"]
    return {
        FITTED: (
            "care-mini",
            [_SIZES, *forms, *_steps(**timed)],
            {name: one["seconds"] for name, one in stages.items()},
        ),
        # Only its steps: 1,000 of them; see `compared`.
        "stage_one_cost.py, 1,000 steps": (
            "care-mini",
            [_SIZES, "stages.align-l6.training.batch=2048", *_steps(align_l6=1000)],
            {"align-l6": 1000 * per_step},
        ),
        # One H200; vectors alone on it (it loaded the base too), the others two at a time.
        "care-ablations, fewer texts": (
            "care-ablations",
            [_TIERS, *fewer],
            {"vectors": 146.7, "retromae": 12.4, "align": 20.9, "joint": 22.6},
        ),
        # The same H200 with two or three trainings on it.
        "care-tiers, shared GPU": (
            "care-tiers",
            [_TIERS, *fewer, *_steps(align_l6=1500, align_static=1200, retromae_l6=400)],
            {"align-static": 49.0, "joint-static": 25.4, "align-l6": 172.5, "joint-l6": 44.2},
        ),
    }


def compared(name: str) -> dict[str, dict[str, float]]:
    """Estimated and measured seconds of the stages of a run."""
    recipe, sets, measured = runs()[name]
    cost = estimate(load_recipe(ROOT / "recipes" / f"{recipe}.yaml", sets), "cuda")
    estimated = {stage.name: stage.seconds or 0.0 for stage in cost.stages}
    if "1,000 steps" in name:
        none = estimate(load_recipe(ROOT / "recipes" / f"{recipe}.yaml", [*sets, *_steps(align_l6=0)]), "cuda")
        estimated = {one.name: estimated[one.name] - (one.seconds or 0.0) for one in none.stages}
    return {
        stage: {
            "estimated": round(estimated[stage], 1),
            "measured": round(seconds, 1),
            "ratio": round(estimated[stage] / seconds, 2),
        }
        for stage, seconds in measured.items()
    }


def main() -> None:
    """Write all comparisons."""
    written: dict[str, Any] = {"command": "python benchmarks/estimate_checks.py docs/data/estimate-checks.json"}
    written |= {name: {"fitted to": name == FITTED, "stages": compared(name)} for name in runs()}
    Path(sys.argv[1]).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
