"""Runs variants of a recipe over seeds and sets them side by side as the paper's tables. One run is the runner's."""

from __future__ import annotations

import csv
import io
import math
import multiprocessing
import os
import queue
import tomllib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal, NamedTuple

from suwen.bench.paired_statistics import Spread, critical_t, over_seeds
from suwen.bench.published_tables import published
from suwen.errors import SuwenError
from suwen.training.loop.journal import TrainingReport
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe_runner import train

#: What the papers set side by side, in paper_tables.toml.
FILE = Path(__file__).with_name("paper_tables.toml")
Side = Literal["query", "document"]
_CONFIDENCE = 0.95
_Stop = Callable[[], bool]


class SweepError(SuwenError):
    """A sweep that cannot be done."""


class PaperTable(NamedTuple):
    """A table or figure of a paper, as ``paper_tables.toml`` explains its parts."""

    paper: str
    name: str
    side: Side = "query"
    rows: tuple[tuple[str, ...], ...] = ()
    printed: tuple[str, ...] = ()
    instead: str = ""

    @property
    def title(self) -> str:
        """As the paper calls it."""
        return self.name.replace("-", " ").capitalize()

    @property
    def variants(self) -> list[str | None]:
        """What is run for it, the full recipe (None) first: the others link its teacher."""
        return sorted({variant or None for _, _, variant, *_ in self.rows}, key=lambda name: name or "")


def table_of(recipe: str, name: str) -> PaperTable:
    """The table that a recipe's paper calls so.

    Args:
        recipe: The recipe's name; its paper is the one it begins with, else CARE.
        name: A number, or ``table-4``, ``figure-4``.
    """
    every = tomllib.loads(FILE.read_text(encoding="utf-8"))
    paper = next((known for known in every if recipe.startswith(known)), "care")
    known = {key: PaperTable(paper, key, **said) for key, said in every[paper].items()}
    table = known.get(f"table-{name}" if name.isdecimal() else name.lower().replace(" ", "-"))
    if table is None or table.instead:
        there = ", ".join(key.removeprefix("table-") for key, one in known.items() if not one.instead)
        why = f"{table.title}: {table.instead}" if table else f"there is no recipe for {name!r} of {paper}'s paper"
        raise SweepError(f"{why}; take one of {there}")
    return table


class Job(NamedTuple):
    """One run: a variant (None = the recipe as it stands) with a seed."""

    variant: str | None
    seed: int


class Outcome(NamedTuple):
    """What became of a run: the metrics of its result, or why there are none."""

    job: Job
    metrics: dict[str, float] | None
    problem: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: a spread over seeds for each measure, or why there is none."""

    heading: str
    label: str
    variant: str | None
    spreads: dict[str, Spread] = field(default_factory=dict)
    problem: str = ""
    printed: tuple[str, ...] = ()


@dataclass(frozen=True)
class SweepTable:
    """Variants against measures."""

    table: PaperTable
    recipe: str
    measures: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def complete(self) -> bool:
        """Whether every row has numbers."""
        return all(row.spreads for row in self.rows)

    def as_markdown(self) -> str:
        """The table in the paper's layout; mean and half the width of the 95% interval over seeds."""
        lines = [
            f"# {self.table.title} of the paper at the scale of `{self.recipe}`",
            "",
            f"| setting | {' | '.join((*self.measures, 'seeds', *self.table.printed))} |",
            f"|---|{'---|' * (len(self.measures) + 1 + len(self.table.printed))}",
        ]
        heading = ""
        for row in self.rows:
            if row.heading and row.heading != heading:
                lines.append(f"| **{row.heading}** |{' |' * (len(self.measures) + 1 + len(self.table.printed))}")
            heading = row.heading
            lines.append(f"| {row.label} | {' | '.join((*self._cells(row), *row.printed))} |")
        lines += ["", "Mean over seeds ± half of the 95% t-interval; † one seed: no interval."]
        lines += (
            ["Ours are in points of 100; what the paper prints is of its own data, models and scale."]
            if self.table.printed
            else []
        )
        lines += [f"- {row.label}: {row.problem}" for row in self.rows if row.problem]
        return "\n".join(lines) + "\n"

    def as_csv(self) -> str:
        """One line for each row and measure, with every number in full."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ("table", "heading", "label", "variant", "measure", "mean", "deviation", "half_width", "seeds")
        writer.writerow([*names, *self.table.printed])
        name = self.table.name.removeprefix("table-")
        for row in self.rows:
            for measure, spread in row.spreads.items():
                numbers = [spread.mean, spread.deviation, half_width(spread), spread.seeds]
                writer.writerow([name, row.heading, row.label, row.variant, measure, *numbers, *row.printed])
        return text.getvalue()

    def write(self, folder: Path) -> Path:
        """Write ``table-N.md`` and ``table-N.csv``, or a figure's; return the first."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.table.name}.csv").write_text(self.as_csv(), encoding="utf-8")
        file = folder / f"{self.table.name}.md"
        file.write_text(self.as_markdown(), encoding="utf-8")
        return file

    def _cells(self, row: Row) -> list[str]:
        if not row.spreads:
            return ["-"] * len(self.measures) + ["0"]
        seeds = max(spread.seeds for spread in row.spreads.values())
        return [*(_cell(row.spreads.get(measure)) for measure in self.measures), str(seeds)]


def half_width(spread: Spread) -> float | None:
    """Half the width of the 95% interval of a mean over seeds (Student's t); None for one seed."""
    if spread.deviation is None:
        return None
    return critical_t(1 - _CONFIDENCE, spread.seeds - 1) * spread.deviation / math.sqrt(spread.seeds)


def jobs_of(table: PaperTable, seeds: Mapping[str | None, int] | int) -> list[Job]:
    """The runs a table needs.

    Args:
        table: The table.
        seeds: How many seeds each variant gets, or one number for all.
    """
    return [
        Job(variant, seed)
        for variant in table.variants
        for seed in range(seeds if isinstance(seeds, int) else seeds.get(variant, 1))
    ]


def sweep(
    path: Path | str,
    root: Path | str,
    jobs: Sequence[Job],
    *,
    sets: Sequence[str] = (),
    side: Side = "query",
    workers: int = 1,
    device: str | None = None,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
    stop: _Stop | None = None,
) -> list[Outcome]:
    """Run (variant, seed) pairs; finished ones are kept. A run that fails is reported and the others go on.

    Args:
        path: The recipe.
        root: The folder of runs.
        jobs: What to run.
        sets: ``key=value`` for every run.
        side: Whose measures are taken, see :func:`result_of`.
        workers: Processes side by side.
        device: Where to compute.
        on_outcome: Called with every run that is done.
        stop: Asked between steps; true ends the sweep, the same call goes on with it.
    """
    for job in jobs:
        # A wrong key is said before hours of training, not after.
        recipe = load_recipe(path, sets, job.variant)
        if job.seed and all(one.how_trained.seed is not None for one in recipe.stages if one.how_trained is not None):
            raise SweepError(
                "every stage that trains names a seed of its own, so runs of several seeds would be one and the same: "
                "take `seed` out of their `training`, or ask for --seeds 1"
            )
    run = partial(_run, path, root, sets, side, device)
    outcomes: list[Outcome] = []
    if workers <= 1:
        for job in jobs:
            if stop is not None and stop():
                break
            outcomes.append(run(job, stop))
            on_outcome(outcomes[-1])
        return outcomes
    return _side_by_side(run, jobs, workers, on_outcome, stop)


def result_of(recipe: Recipe, report: TrainingReport, side: Side = "query") -> dict[str, float] | None:
    """The measures of a finished run: of its last stage that makes the encoder of this side and measures it."""
    for stage in reversed(report.stages):
        numbers = {key: float(one) for key, one in stage.metrics.items() if isinstance(one, int | float)}
        made = recipe.stage(stage.name)
        if numbers and (made.student_trained is not None if side == "query" else "teacher" in made.gives):
            return numbers
    return None


def paper_table(table: PaperTable, recipe: str, outcomes: Sequence[Outcome]) -> SweepTable:
    """The paper's table with our numbers, and with the paper's where it prints them."""
    rows, measures = [], list[str]()
    for heading, label, name, *cells in table.rows:
        variant = name or None
        mine = [outcome for outcome in outcomes if outcome.job.variant == variant]
        measured = [outcome.metrics for outcome in mine if outcome.metrics]
        problem = "; ".join(sorted({outcome.problem for outcome in mine if outcome.problem}))
        names = [name for name in (measured[0] if measured else {}) if all(name in one for one in measured)]
        measures += [name for name in names if name not in measures]
        spreads = {name: over_seeds([one[name] for one in measured]) for name in names}
        printed = tuple(_printed(table.paper, cell) for cell in cells)
        rows.append(Row(heading, label, variant, spreads, problem or ("" if measured else "not run yet"), printed))
    return SweepTable(table, recipe, tuple(measures), tuple(rows))


def _printed(paper: str, cell: str) -> str:
    """What stands in a cell of a published table, ``table/row/column``; a dash where nothing is printed."""
    if not cell:
        return "-"
    table, row, column = cell.split("/")
    return next(one.value for one in published(paper, int(table)) if (one.row, one.column) == (row, column))


def _run(
    path: Path | str,
    root: Path | str,
    sets: Sequence[str],
    side: Side,
    device: str | None,
    job: Job,
    stop: _Stop | None,
) -> Outcome:
    try:
        recipe = load_recipe(path, sets, job.variant)
        report = train(recipe, root, seed=job.seed, resume=True, device=device, stop=stop)
    except RecipeError:
        raise
    except SuwenError as problem:
        return Outcome(job, None, str(problem))
    if not report.complete:
        return Outcome(job, None, report.stopped)
    metrics = result_of(recipe, report, side)
    return Outcome(job, metrics, "" if metrics else "its last stage has no measures: give data.measure")


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    half = half_width(spread)
    return f"{spread.mean:.2f}†" if half is None else f"{spread.mean:.2f} ± {half:.2f}"


def _side_by_side(
    run: Callable[[Job, _Stop], Outcome],
    jobs: Sequence[Job],
    workers: int,
    on_outcome: Callable[[Outcome], None],
    stop: _Stop | None,
) -> list[Outcome]:
    """Several processes on one device; each takes the next job when it is free."""
    # A forked process cannot use the GPU that its parent has touched.
    spawn = multiprocessing.get_context("spawn")
    halt, waiting, answers = spawn.Event(), spawn.Queue(), spawn.Queue()
    for job in (*jobs, *[None] * workers):
        waiting.put(job)
    processes = [spawn.Process(target=_work, args=(run, waiting, answers, halt)) for _ in range(workers)]
    for process in processes:
        process.start()
    outcomes: list[Outcome] = []
    try:
        while len(outcomes) < len(jobs) and any(process.is_alive() for process in processes):
            if stop is not None and stop():
                halt.set()
            outcomes += _answers(answers, on_outcome)
    finally:
        halt.set()
        for process in processes:
            process.join()
    outcomes += _answers(answers, on_outcome)
    missing = set(jobs) - {outcome.job for outcome in outcomes}
    return outcomes + [Outcome(job, None, "not run yet") for job in sorted(missing, key=str)]


def _answers(answers: Any, on_outcome: Callable[[Outcome], None]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while True:
        try:
            outcomes.append(answers.get(timeout=0.5))
        except queue.Empty:
            return outcomes
        on_outcome(outcomes[-1])


def _work(run: Callable[[Job, _Stop], Outcome], waiting: Any, answers: Any, halt: Event) -> None:
    parent = os.getppid()

    def stop() -> bool:
        # An orphan must not train on.
        return halt.is_set() or os.getppid() != parent

    while not stop() and (job := waiting.get()) is not None:
        try:
            answers.put(run(job, stop))
        except Exception:
            # The other runs go on; this one is reported with where it broke.
            answers.put(Outcome(job, None, traceback.format_exc(limit=4)))
