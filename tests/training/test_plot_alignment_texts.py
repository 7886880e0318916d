"""The plot of accuracy against alignment texts, over runs that are trained here."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recipes_on_the_spot import write_recipe

from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.stand_in import stand_in
from suwen.training.sweep import Job, sweep

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot_alignment_texts", ROOT / "benchmarks/plot_alignment_texts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    shipped = ROOT / "recipes" / "care-ablations.yaml"
    small = stand_in(load_recipe(shipped, ["data.measure=dev.toml"]), folder / "stand-in").model_dump(mode="json")
    small["variants"] = {
        "texts-8": {"description": "fewer", "set": {"stages.align.limit": 8}},
        "texts-all": {"description": "all", "set": {"stages.align.limit": None}},
    }
    jobs = [Job(None, 0), Job("texts-8", 0), Job("texts-all", 0), Job("texts-8", 1)]
    outcomes = sweep(write_recipe(folder, small), folder / "runs", jobs, device="cpu")
    assert [outcome.problem for outcome in outcomes] == [""] * 4
    return folder / "runs"


def test_the_shipped_variants_change_the_number_of_texts_alone() -> None:
    shipped = ROOT / "recipes" / "care-ablations.yaml"
    plain = load_recipe(shipped).stages
    limits = {}
    for name in ("texts-25k", "texts-100k", "texts-400k", "texts-all"):
        changed = load_recipe(shipped, variant=name).stages
        # A variant has no export stage; the recipe has none either.
        assert len(changed) == len(plain)
        differing = [(one, other) for one, other in zip(changed, plain, strict=True) if one != other]
        assert [one.name for one, _ in differing] == ["align"]
        (one, other) = differing[0]
        limits[name] = one.limit
        assert one.model_copy(update={"limit": other.limit}) == other and one.training.steps is not None
    assert limits == {"texts-25k": 25_000, "texts-100k": 100_000, "texts-400k": 400_000, "texts-all": None}


def test_runs_become_a_table_and_a_picture(plot: ModuleType, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "docs" / "alignment_texts"
    assert plot.main([str(runs), "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.with_suffix(".csv").open(encoding="utf-8")))
    available = json.loads((runs / "care-ablations/s0/vectors/metrics.json").read_text())["texts.query"]
    assert sorted({int(row["texts"]) for row in rows}) == [8, 24, int(available)]
    measured = json.loads((runs / "care-ablations.texts-all/s0/joint/metrics.json").read_text())
    teacher = json.loads((runs / "care-ablations.texts-all/s0/vectors/metrics.json").read_text())
    (row,) = [
        row for row in rows if (row["stage"], row["measure"], int(row["texts"])) == ("joint", "mean", int(available))
    ]
    assert float(row["mean"]) == pytest.approx(measured["mean"], abs=1e-3)
    assert float(row["both_sides"]) == pytest.approx(teacher["both sides.mean"], abs=1e-3)
    assert float(row["kept"]) == pytest.approx(measured["mean"] / teacher["both sides.mean"], abs=1e-3)
    few = [row for row in rows if row["texts"] == "8" and row["stage"] == "align"]
    assert {row["seeds"] for row in few} == {"2"} and {row["measure"] for row in few} > {"mean"}
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_runs_that_cannot_be_compared_are_refused(plot: ModuleType, runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no finished run"):
        plot.read_points(tmp_path, "care-ablations")
    copied = tmp_path / "runs"
    for name in ("care-ablations", "care-ablations.texts-8"):
        for stage in ("vectors", "align"):
            shutil.copytree(runs / name / "s0" / stage, copied / name / "s0" / stage)
    config = copied / "care-ablations.texts-8/s0/align/config.json"
    changed = json.loads(config.read_text(encoding="utf-8")) | {"temperature": 0.5}
    config.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(SystemExit, match="differs in temperature"):
        plot.read_points(copied, "care-ablations")
    (copied / "care-ablations.texts-8/s0/align/metrics.json").unlink()
    assert [point.variant for point in plot.read_points(copied, "care-ablations")] == [""]
