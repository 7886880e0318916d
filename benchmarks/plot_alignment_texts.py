"""Accuracy against the number of alignment texts, from finished runs of the `texts-*` variants of a recipe.

Run: suwen train recipes/care-ablations.yaml --variant texts-25k --out RUNS ...   (texts-100k, texts-400k, texts-all)
     python benchmarks/plot_alignment_texts.py RUNS [--recipe care-ablations --out docs/performance/alignment_texts]

Reads the metrics.json of the stages `vectors`, `align` and `joint` of RUNS/RECIPE.texts-*/s*/ and of RUNS/RECIPE/s*/
(the recipe itself is a point too), and writes OUT.csv and OUT.png. Only the number of texts may differ between them.
The line to reach is the document encoder's own score, with it on both sides.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: What may differ between runs that are set side by side.
_MAY_DIFFER = ("limit", "seed")
STAGES = {"align": "after Stage I", "joint": "after Stage II"}


class Point(NamedTuple):
    """One run: its number of alignment texts, and nDCG@10 by stage and measure."""

    variant: str
    seed: str
    texts: int
    scores: dict[str, dict[str, float]]
    both_sides: dict[str, float]


class Row(NamedTuple):
    """One line of the table: runs of one number of texts, over seeds."""

    texts: int
    stage: str
    measure: str
    mean: float
    least: float
    most: float
    seeds: int
    both_sides: float

    @property
    def kept(self) -> float:
        """The share of the document encoder's own score."""
        return self.mean / self.both_sides if self.both_sides else float("nan")


def read_points(runs: Path, recipe: str) -> list[Point]:
    """The finished runs, fewest texts first; an unfinished one is named and left out."""
    found: list[Point] = []
    settings: dict[str, Any] = {}
    for folder in sorted([*runs.glob(f"{recipe}/s*"), *runs.glob(f"{recipe}.texts-*/s*")]):
        if not all((folder / stage / "metrics.json").is_file() for stage in ("vectors", "align")):
            print(f"{folder} is not finished: left out", file=sys.stderr)
            continue
        config = _read(folder / "align" / "config.json")
        limit = config["limit"]
        rest = {key: value for key, value in config.items() if key not in _MAY_DIFFER}
        settings = settings or rest
        if rest != settings:
            differ = sorted(key for key in {*rest, *settings} if rest.get(key) != settings.get(key))
            raise SystemExit(f"{folder} differs in {', '.join(differ)}: only the number of texts may; train it again")
        found.append(_point(folder, recipe, limit))
    if not found:
        raise SystemExit(f"{runs} has no finished run of {recipe}.texts-*: train those variants into it first")
    return sorted(found, key=lambda point: point.texts)


def _point(folder: Path, recipe: str, limit: int | None) -> Point:
    vectors = _read(folder / "vectors" / "metrics.json")
    available = int(vectors["texts.query"])
    both = {key.removeprefix("both sides."): value for key, value in vectors.items() if key.startswith("both sides.")}
    if not both:
        raise SystemExit(f"{folder} was not measured: train with --set data.measure=SUITE.toml")
    scores = {
        stage: {name: float(found[name]) for name in both if name in found}
        for stage in STAGES
        if (file := folder / stage / "metrics.json").is_file() and (found := _read(file))
    }
    variant = folder.parent.name.removeprefix(recipe).removeprefix(".")
    return Point(variant, folder.name, min(limit or available, available), scores, both)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(points: Sequence[Point]) -> list[Row]:
    """A row for every stage, measure and number of texts."""
    rows = []
    for stage in STAGES:
        for measure in points[0].both_sides:
            for texts in sorted({point.texts for point in points}):
                mine = [one for one in points if one.texts == texts and measure in one.scores.get(stage, {})]
                if mine:
                    values = [one.scores[stage][measure] for one in mine]
                    both = statistics.mean(one.both_sides[measure] for one in mine)
                    rows.append(
                        Row(
                            texts,
                            stage,
                            measure,
                            statistics.mean(values),
                            min(values),
                            max(values),
                            len(values),
                            both,
                        )
                    )
    return rows


def write_csv(rows: Sequence[Row], file: Path) -> None:
    """Every number of the picture."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*Row._fields, "kept"])
        for row in rows:
            numbers = [f"{value:.4f}" for value in (row.mean, row.least, row.most)]
            writer.writerow([*row[:3], *numbers, row.seeds, f"{row.both_sides:.4f}", f"{row.kept:.4f}"])


def draw(rows: Sequence[Row], file: Path) -> None:
    """The mean on the left, each task after the last stage on the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    marks = {"align": "s--", "joint": "o-"}
    for stage, label in STAGES.items():
        if mine := [row for row in rows if (row.stage, row.measure) == (stage, "mean")]:
            spread = [[row.mean - row.least for row in mine], [row.most - row.mean for row in mine]]
            left.errorbar(
                [row.texts for row in mine],
                [row.mean for row in mine],
                spread,
                fmt=marks[stage],
                label=label,
                capsize=3,
            )
    last = "joint" if any(row.stage == "joint" for row in rows) else "align"
    left.axhline(
        next(row.both_sides for row in rows if row.measure == "mean"), color="black", lw=1, label="document encoder"
    )
    left.set(title="Mean of the tasks", xlabel="alignment texts", ylabel="nDCG@10")
    for measure in dict.fromkeys(row.measure for row in rows if row.measure != "mean"):
        mine = [row for row in rows if (row.stage, row.measure) == (last, measure)]
        (line,) = right.plot([row.texts for row in mine], [row.mean for row in mine], "o-", label=measure)
        right.axhline(mine[0].both_sides, color=line.get_color(), lw=1, ls=":")
    right.set(title=f"Each task {STAGES[last]} (dotted: document encoder)", xlabel="alignment texts", ylabel="nDCG@10")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.grid(which="both", alpha=0.2)
        axes.legend(fontsize=8)
    figure.savefig(file, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of runs (--out of suwen train)")
    parser.add_argument("--recipe", default="care-ablations", help="whose variants")
    parser.add_argument("--out", type=Path, default=Path("docs/performance/alignment_texts"), help="without a suffix")
    options = parser.parse_args(arguments)
    rows = table(read_points(options.runs, options.recipe))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_csv(rows, options.out.with_suffix(".csv"))
    draw(rows, options.out.with_suffix(".png"))
    for row in rows:
        if row.measure == "mean":
            print(f"{row.texts:>9,} texts, {STAGES[row.stage]}: {row.mean:.2f}, {row.kept:.3f} of the document encoder")
    return 0


if __name__ == "__main__":
    sys.exit(main())
