"""Verbs of ``suwen bench``: ``run``, ``contamination``, ``suites``, ``scaffold``, ``build``.

Those over results are in ``reporting``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suwen.bench.shipped import BUILT, FORMS
from suwen.bench.shipped import suites as shipped
from suwen.choices import LEAST_SHARED
from suwen.cli import reporting
from suwen.cli.options import Json
from suwen.cli.output import FAILED, NEGATIVE, measuring, plural, print_json, print_table, say, show
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.bench.contamination import Contamination
    from suwen.bench.suite_runner import SuiteRun
    from suwen.bench.suite_tasks import Suite, Task
    from suwen.bench.task_loading import Places

_SYSTEMS = "\n\n".join(f"`{form}`: {what}." for form, what in FORMS.items())
SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help=f"One of {', '.join(shipped())}, or a suite file.")]
DataOption = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="PATH", help="A folder with SUITE/TASK or TASK in it; or TASK=PATH, repeated."),
]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only this task; repeat for several.")]
Revision = Annotated[str | None, typer.Option("--revision", help="A commit of the hub in place of the pinned one.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use the hub's cache only.")]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Leave out judgements of unknown ids and repeated ones, and say so.")
]

bench_app = typer.Typer(
    name="bench",
    help="Benchmarks: run suites, compare and report results, check training rows for a suite's queries.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@bench_app.command(epilog=f"Systems:\n\n{_SYSTEMS}\n\nA label names one: `mine=st:models/mine`.")
def run(
    suite: SuiteName,
    system: Annotated[
        list[str] | None, typer.Option("--system", "-s", metavar="SYSTEM", help="What to measure; repeat.")
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="The folder of results.")] = Path("results"),
    data: DataOption = None,
    task: Tasks = None,
    cache: Annotated[Path | None, typer.Option("--cache", help="The folder of vectors [OUT/vectors].")] = None,
    depth: Annotated[int | None, typer.Option("--depth", min=1, help="Hits kept of each query.")] = None,
    revision: Revision = None,
    offline: Offline = False,
    lenient: Lenient = False,
    again: Annotated[bool, typer.Option("--again", help="Score finished tasks again.")] = False,
    json: Json = False,
) -> None:
    """Measure systems on a suite. Interrupt it and run it again: finished tasks and shards are kept.

    Exit code 3 when some task has no result (the reason is printed), 1 when none has.

    Example: `suwen bench run cmirb --data data -s pair:default#all -s bm25:bigrams -s hybrid:pair:default`
    """
    from suwen.bench.suite_tasks import load_suite

    loaded = load_suite(suite)  # what runs it is loaded for a suite that is there
    from suwen.bench.suite_runner import run_suite

    with measuring("loading") as progress:
        done = run_suite(
            loaded,
            system or [],
            out=to,
            data=_places(data),
            tasks=task,
            cache=cache,
            depth=depth,
            revision=revision,
            offline=offline,
            lenient=lenient,
            again=again,
            progress=lambda what, made, total: progress(made, total, what),
            tell=say,
        )
    if json:
        print_json(_as_json(done))
    else:
        _show(done)
    _show_failures(done)
    if not any(one.results for one in done.systems):
        raise typer.Exit(FAILED)
    if not done.complete:
        raise typer.Exit(NEGATIVE)


@bench_app.command()
def contamination(
    training: Annotated[list[Path], typer.Argument(help="Training rows: jsonl (FlagEmbedding, CARE…), csv, parquet.")],
    suite: Annotated[
        str | None, typer.Option("--suite", help="The suite whose queries are looked for; all takes every one.")
    ] = None,
    collection: Annotated[
        Path | None, typer.Option("--collection", help="Or a collection's folder: all its queries.")
    ] = None,
    data: DataOption = None,
    task: Tasks = None,
    revision: Revision = None,
    offline: Offline = False,
    lenient: Lenient = False,
    least: Annotated[
        float, typer.Option("--least", min=0.01, max=1.0, help="Share of a query's 8-grams that makes a text near it.")
    ] = LEAST_SHARED,
    most: Annotated[int, typer.Option("--most", min=0, help="How many overlaps are printed.")] = 20,
    json: Json = False,
) -> None:
    """Look for a suite's queries in training rows, exact and near. Exit code 3 when some are found.

    Example: `suwen bench contamination train.jsonl --suite cmirb --data data`
    """
    from suwen.bench.contamination import find_overlap, suite_queries, training_texts
    from suwen.bench.suite_tasks import load_suite
    from suwen.corpora.collection import Collection

    if (suite is None) == (collection is None):
        raise SuwenError("name what to look for: either --suite or --collection")
    queries = {query.id: query.text for query in Collection.open(collection).queries()} if collection else {}
    for one in shipped() if suite == "all" else [suite] if suite else []:
        queries |= suite_queries(
            load_suite(one),
            task,
            _places(data),
            revision=revision,
            offline=offline,
            lenient=lenient,
            on_missing=lambda name, why: say(f"left out {name}: {why}"),
        )
    if not queries:
        raise SuwenError("no queries to look for: none of the data are here; give --data")
    unread: list[str] = []
    with measuring("training texts") as progress:
        texts = training_texts(training, lambda told: unread.append("" if unread else told))  # the first one is told
        result = find_overlap(queries, texts, least=least, progress=progress)
    found = {"overlaps": [overlap._asdict() for overlap in result.overlaps], "rows_without_text": len(unread)}
    if unread:
        say(f"{plural(len(unread), 'row')} could not be compared. The first: {unread[0]}")
    show({"queries": result.queries, "texts": result.texts, **found}, *_overlap_lines(result, most), json=json)
    if result.overlaps:
        raise typer.Exit(NEGATIVE)


@bench_app.command()
def suites(
    suite: Annotated[str | None, typer.Argument(metavar="SUITE", help="Show the tasks of this one.")] = None,
    json: Json = False,
) -> None:
    """List the suites that come with suwen, or the tasks of one and how to get their data.

    Example: `suwen bench suites cmedteb`
    """
    from suwen.bench.suite_tasks import load_suite

    if suite is None:
        about = [_about(load_suite(name)) for name in shipped()]
        lines = (f"{one['name']:<14}{one['tasks']:>3} tasks  {one['title']} ({one['reference']})" for one in about)
        show(about, *lines, json=json)
        return
    loaded = load_suite(suite)
    show(
        {**_about(loaded), "tasks": [task.model_dump(mode="json") for task in loaded.tasks]},
        *(
            f"{task.name}: {task.kind}, {task.main}, split {task.split}, {_whence(task)}\n    {task.get}"
            for task in loaded.tasks
        ),
        json=json,
    )


@bench_app.command()
def scaffold(
    file: Annotated[Path, typer.Argument(help="The suite file to write (.toml).")],
    collection: Annotated[Path, typer.Argument(help="Your collection: a BEIR folder.")],
    json: Json = False,
) -> None:
    """Write a suite file for a collection of your own.

    Example: `suwen bench scaffold mine.toml my-collection` then `suwen bench run mine.toml -s bm25:words`
    """
    from suwen.bench.suite_tasks import scaffold_local

    made = scaffold_local(file, collection)
    show(
        {"file": str(file), **_about(made)},
        f"{file}: a suite of {plural(len(made.tasks), 'task')}; edit it, then run",
        f"  suwen bench run {file} -s bm25:bigrams -s pair:default",
        json=json,
    )


@bench_app.command()
def build(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(BUILT)}.")],
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Files of its source, or folders of them.")],
    to: Annotated[Path | None, typer.Option("--out", help="The collection to make [data/bmretriever/TASK].")] = None,
    abstracts: Annotated[
        Path | None, typer.Option("--abstracts", help="PubMed's abstracts (BioASQ, RELISH): a file or a folder.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Of PubMedQA: test_ground_truth.json, whose questions are asked.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Of DrugBank: only drugs of this group.")] = None,
    queries: Annotated[int | None, typer.Option("--queries", min=1, help="Draw so many [as the paper].")] = None,
    documents: Annotated[
        int | None, typer.Option("--documents", min=1, help="Of BioASQ: about so many [500,000].")
    ] = None,
    encoding: Annotated[str, typer.Option("--encoding", help="Of abstracts in text files.")] = "utf-8",
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn.")] = 0,
    json: Json = False,
) -> None:
    """Build an evaluation set of BMRetriever from a local copy of its source, as a collection that `run` finds.

    Example: `suwen bench build MeSH desc2024.xml`, then `suwen bench run bmretriever --data data -s pair:default`
    """
    from suwen.bench.evaluation_sets import Wanted
    from suwen.bench.evaluation_sets import build as build_set

    folder = to or Path("data") / "bmretriever" / task
    wanted = Wanted(abstracts, test, group, queries, documents, encoding, seed)
    with measuring("read") as progress:
        counts = build_set(task, sources, folder, wanted, progress)
    lines = (f"{name.replace('_', ' ')}: {count:,}" for name, count in counts.items())
    show({**counts, "out": str(folder)}, *lines, f"written to {folder}", json=json)


def _places(data: list[str] | None) -> Places:
    if not data:
        return None
    named = dict(item.split("=", 1) for item in data if "=" in item and not Path(item).exists())
    roots = [item for item in data if "=" not in item or Path(item).exists()]
    if len(roots) > 1 or (roots and named):
        raise SuwenError("--data takes one folder, or TASK=PATH for each task; not both")
    return Path(roots[0]) if roots else dict(named)


def _show(done: SuiteRun) -> None:
    tasks, means = [], []
    for task in done.suite.tasks:
        results = [one.results.get(task.name) for one in done.systems]
        if any(results):
            tasks.append((task.name, task.main, *(_number(r.metrics[r.main] if r else None) for r in results)))
    for average in done.suite.averages:
        values = [one.averages[average.name].value for one in done.systems]
        if any(value is not None for value in values):
            means.append((f"mean: {average.name}", average.metric or "main", *map(_number, values)))
    headings = ("task", "metric", *(one.system for one in done.systems))
    print_table(f"{done.suite.title}, main metric x 100", headings, tasks, means, words=2)
    for one in done.systems:
        kept = f", {len(one.reused)} of them from before" if one.reused else ""
        say(f"{one.system}: {plural(len(one.results), 'task')}{kept}; {one.folder}")
        for name, result in one.results.items():
            for note in result.about["notes"]:
                say(f"  {name}: {note}")


def _show_failures(done: SuiteRun) -> None:
    said = set()
    for one in done.systems:
        for task, why in one.failures.items():
            # Missing data fail every system alike: said once.
            if (task, why) not in said:
                say(f"no result for {task} ({one.system}): {why}")
            said.add((task, why))
        for task, why in one.left_out.items():
            say(f"left out {task}: {why}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _as_json(done: SuiteRun) -> dict[str, Any]:
    return {
        "suite": done.suite.name,
        "systems": [
            {
                "system": one.system,
                "folder": str(one.folder),
                "results": {name: dict(result.metrics) for name, result in one.results.items()},
                "reused": one.reused,
                "averages": {name: mean._asdict() for name, mean in one.averages.items()},
                "failures": one.failures,
                "left_out": one.left_out,
            }
            for one in done.systems
        ],
    }


def _overlap_lines(result: Contamination, most: int) -> list[str]:
    exact, more = sum(one.kind == "exact" for one in result.overlaps), len(result.overlaps) - most
    return [
        f"{result.queries} queries against {result.texts} training texts: {exact} exact, "
        f"{len(result.overlaps) - exact} near ({100 * result.share:.2f}%)",
        *(
            f"  {one.kind} {one.share:.2f}  {one.query}  {one.text[:60]}  <- {one.place} {one.field}: {one.found[:60]}"
            for one in result.overlaps[:most]
        ),
        *([f"  and {more} more; --json prints all"] if more > 0 else []),
    ]


def _about(suite: Suite) -> dict[str, Any]:
    return {"name": suite.name, "title": suite.title, "reference": suite.reference, "tasks": len(suite.tasks)}


def _whence(task: Task) -> str:
    if task.path is not None:
        return f"at {task.path}"
    if task.hub.id is None:
        return "no public copy: give a path"
    return f"hub {task.hub.id}" + ("" if task.hub.revision else " (no revision pinned: pass --revision)")


for _verb in reporting.VERBS:
    bench_app.command()(_verb)
