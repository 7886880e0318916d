"""Verbs that train: ``train`` (one recipe) and ``sweep`` (its variants over seeds, as the paper's tables)."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suwen.cli.options import Json
from suwen.cli.output import NEGATIVE, err, now_and_then, plural, print_json, print_table, say, show, so_far
from suwen.errors import Stopped, SuwenError

if TYPE_CHECKING:
    from suwen.training.loop.journal import StageReport
    from suwen.training.recipe.cost_estimate import Estimate
    from suwen.training.recipe.recipe_model import Recipe
    from suwen.training.recipe.stage_cost import StageEstimate
    from suwen.training.run_context import StageProgress
    from suwen.training.sweep import Outcome

#: What the training extra brings that the base has not.
_NEEDED = ("torch", "transformers", "sentence_transformers", "yaml", "safetensors")
RecipePath = Annotated[
    Path, typer.Argument(metavar="RECIPE", help="A .yaml file, or a recipe of the package such as care-tiny.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as stages.align.training.steps=100; repeat."),
]
Root = Annotated[Path, typer.Option("--out", metavar="ROOT", help="The folder of runs.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1; a GPU if there is one.")]


def train(
    recipe: RecipePath,
    sets: Sets = None,
    variant: Annotated[str | None, typer.Option("--variant", help="A variant of the recipe.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the run [the recipe's].")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="STAGE", help="Only this stage; repeat.")] = None,
    to: Root = Path("runs"),
    device: Device = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Build everything on tiny stand-ins of the models, two steps a stage.")
    ] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only say what time, memory and disk it takes.")] = False,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="With --estimate: for so many GPUs.")] = 1,
    json: Json = False,
) -> None:
    """Train by a recipe (needs suwen[train]). Finished stages are kept; interrupt it and go on with --resume.

    A run is `ROOT/RECIPE/sSEED/STAGE/`, with report.md beside the stages. On several GPUs:
    `accelerate launch --no_python suwen train RECIPE`.

    Example: `suwen train care-tiny --out runs`
    """
    _require_extra()
    recipe = found_recipe(recipe)
    from suwen.training.recipe.recipe_file import load_recipe

    # The runner, and transformers with it, is for a recipe that is sound.
    loaded = load_recipe(recipe, sets or [], variant)
    _quiet_bars()
    from suwen.training.recipe_runner import train as run

    rank, size = (int(os.environ.get(name, least)) for name, least in (("RANK", "0"), ("WORLD_SIZE", "1")))
    first = rank == 0 or size == 1  # of several processes, only the first prints
    if estimate:
        _show_cost(loaded, only, device, gpus, lambda loaded, cost: _show_estimate(loaded, cost, json))
        return
    if first and not dry_run:
        _show_cost(loaded, only, device, size, _say_estimate)
    with _how_to_go_on(first), shown_steps() as progress:
        report = run(
            loaded,
            to,
            seed=seed,
            resume=resume,
            device=device,
            only=only,
            dry_run=dry_run,
            progress=progress,
            on_stage=(lambda stage: say(_line(stage))) if first else None,
        )
    if first:
        about = {"folder": str(report.folder), **report.as_json()}
        show(about, f"{report.folder}: {plural(len(report.stages), 'stage')}; see report.md", json=json)
    if not report.complete:
        raise Stopped(report.stopped if first else "")


def sweep(
    recipe: RecipePath,
    table: Annotated[
        str,
        typer.Option("--table", help="Of CARE's paper: 3, 4, 5, 15, 16; of BMRetriever's: 4, 5, figure-3, figure-4."),
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds of every variant.")] = 3,
    single: Annotated[
        list[str] | None, typer.Option("--single", metavar="VARIANT", help="One seed is enough for this one; repeat.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Runs side by side on the device.")] = 1,
    sets: Sets = None,
    to: Root = Path("runs"),
    device: Device = None,
    json: Json = False,
) -> None:
    """Run a recipe's variants over seeds and write a table or figure of its paper (needs suwen[train]).

    Stop it at any time: the same command goes on. Stages that variants share are computed once.
    Exit code 3 when some row has no numbers.

    Example: `suwen sweep care-ablations --table 4 --seeds 3 --workers 4`
    """
    _require_extra()
    recipe = found_recipe(recipe)
    _quiet_bars()
    from suwen.training.recipe.recipe_file import load_recipe
    from suwen.training.sweep import Job, Outcome, jobs_of, paper_table, table_of
    from suwen.training.sweep import sweep as run

    loaded = load_recipe(recipe, sets or [])
    asked = table_of(loaded.name, table)
    for name in set(single or ()) - set(asked.variants):
        there = ", ".join(map(str, asked.variants))
        raise SuwenError(f"--single {name}: not in {asked.title}; its variants are {there}")
    counts = {variant: 1 if variant in (single or ()) else seeds for variant in asked.variants}
    missing = [variant for variant in asked.variants if variant and variant not in loaded.variants]
    jobs = [job for job in jobs_of(asked, counts) if job.variant not in missing]
    say(f"{plural(len(jobs), 'run')} into {to}; finished ones are kept")
    outcomes = run(
        recipe,
        to,
        jobs,
        sets=sets or [],
        side=asked.side,
        workers=workers,
        device=device,
        on_outcome=lambda o: say(_outcome(o)),
    )
    outcomes += [Outcome(Job(name, 0), None, f"{loaded.name} has no variant {name}") for name in missing]
    made = paper_table(asked, loaded.name, outcomes)
    file = made.write(to / loaded.name)
    show({"file": str(file), "complete": made.complete, "csv": made.as_csv()}, made.as_markdown(), json=json)
    if not json:
        say(f"written to {file}")
    if not made.complete:
        raise typer.Exit(NEGATIVE)


def found_recipe(named: Path | str) -> Path:
    """The file of a recipe, looked for before the stages are loaded: that takes half a second."""
    from suwen.training.recipe.recipe_names import find_recipe

    return find_recipe(named)


def _require_extra() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SuwenError(f"training needs {', '.join(missing)}; pip install 'suwen[train]'")


def _quiet_bars() -> None:
    """The bars of transformers, of a millisecond each, would tear our own."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    logging.disable_progress_bar()


@contextmanager
def _how_to_go_on(first: bool) -> Iterator[None]:
    """An interrupt outside the steps, which stop by themselves: the same command alone would be refused."""
    try:
        yield
    except KeyboardInterrupt:
        said = "interrupted: finished stages and checkpoints are kept; go on with the same command and --resume"
        raise Stopped(said if first else "") from None


@contextmanager
def shown_steps() -> Iterator[StageProgress]:
    """Show the steps of a training as they are logged."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err.console, transient=True, disable=not err.is_terminal) as progress:
        bar, log = progress.add_task("starting", total=None), now_and_then()

        def report(stage: str, done: int, total: int, values: Mapping[str, float]) -> None:
            loss = f" loss {values['loss']:.4f}" if "loss" in values else ""
            progress.update(bar, description=stage + loss, completed=done, total=total or None)
            log(so_far(stage, done, total) + loss)

        yield report


def _line(stage: StageReport) -> str:
    shown = ", ".join(f"{key} {value:.2f}" for key, value in stage.metrics.items() if isinstance(value, float))
    how = {"kept": "kept from before", "linked": "linked from another run"}.get(stage.how, f"{stage.seconds:.1f} s")
    return f"{stage.name} ({stage.kind}): {how}" + (f"; {shown}" if shown else "")


def _outcome(outcome: Outcome) -> str:
    name = f"{outcome.job.variant or 'full'}, seed {outcome.job.seed}"
    if outcome.metrics is None:
        return f"{name}: {outcome.problem}"
    return f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in outcome.metrics.items())


def _show_cost(
    recipe: Recipe, only: list[str] | None, device: str | None, gpus: int, show: Callable[[Recipe, Estimate], None]
) -> None:
    import torch

    from suwen.training.recipe.cost_estimate import estimate, memory_of, tight
    from suwen.training.recipe.recipe_file import wanted_stages

    where = device or ("cuda" if torch.cuda.is_available() or gpus > 1 else "cpu")
    cost = estimate(recipe, where, wanted_stages(recipe, only), gpus=gpus)
    show(recipe, cost)
    if (room := memory_of(where)) is not None:
        for line in tight(recipe, cost, room):
            say(f"warning: {line}")


def _say_estimate(_: Recipe, cost: Estimate) -> None:
    unknown = sum(stage.unknown for stage in cost.stages)
    left_out = f" ({plural(unknown, 'stage')} not counted: size or data unknown)" if unknown else ""
    say(
        f"about {_time(cost.seconds)}, {_size(cost.memory)} GB of memory, {_size(cost.host)} GB of RAM, "
        f"{_size(cost.disk)} GB of disk{left_out}"
    )


def _show_estimate(recipe: Recipe, cost: Estimate, json: bool) -> None:
    from suwen.training.recipe.cost_estimate import TABLE_19, beside_paper

    paper, each = beside_paper(recipe, cost), cost.gpus / 3600
    if json:
        totals = {name: getattr(cost, name) for name in ("seconds", "memory", "host", "disk", "gpus")}
        print_json({"stages": [vars(stage) for stage in cost.stages], **totals, "table 19": paper})
        return

    def row(name: str, steps: int | None, some: StageEstimate | Estimate) -> tuple[str, ...]:
        sizes = map(_size, (some.memory, some.host, some.disk))
        hours = "-" if some.seconds is None else f"{some.seconds * each:,.2f}"
        return name, "-" if steps is None else f"{steps:,}", _time(some.seconds), hours, *sizes

    headings = ("stage", "steps", "time", "GPU hours", "GB of GPU", "GB of RAM", "GB of disk")
    stages = [row(stage.name, stage.steps, stage) for stage in cost.stages]
    print_table(f"Estimate for {cost.gpus} {cost.device}", headings, stages, [row("in all", None, cost)])
    if paper:
        rows = [
            (f"{name}: {', '.join(TABLE_19[name])}", f"{own:,.0f}", f"{said:,.0f}")
            for name, (own, said) in paper.items()
        ]
        print_table("GPU hours beside the paper's Table 19", ("stages", "here, H200", "paper, A100-40G"), rows)
        say("the machines differ: an H200 multiplies about three times as fast as an A100 (bf16) and has more memory")
    _say_estimate(recipe, cost)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _size(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e9:,.2f}"


VERBS = (train, sweep)
