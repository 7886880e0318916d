"""Verbs of ``suwen bench`` over stored results: ``compare``, ``ranks``, ``report``. Nothing is scored here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suwen.cli.options import Json
from suwen.cli.output import out, print_json, print_table, say, show

if TYPE_CHECKING:
    from suwen.bench.comparison import TaskComparison

Results = Annotated[Path, typer.Argument(metavar="OUT", help="The folder that `suwen bench run --out` wrote.")]


def compare(
    results: Results,
    a: Annotated[
        str,
        typer.Option(
            "--a",
            metavar="SYSTEM",
            help="The first system: its name, or as `run` was given it; 'name-*' averages several seeds.",
        ),
    ],
    b: Annotated[str, typer.Option("--b", metavar="SYSTEM", help="The second.")],
    metric: Annotated[
        str | None, typer.Option("--metric", help="Compare by this metric [each task's main one].")
    ] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this task; repeat.")] = None,
    most: Annotated[int, typer.Option("--most", min=0, help="Queries shown of each side of each task.")] = 3,
    json: Json = False,
) -> None:
    """Compare two systems on the tasks they share: means, paired t-test, bootstrap interval, wins and losses.

    Example: `suwen bench compare results --a pair:default --b bm25:words`
    """
    from suwen.bench.benchmark_report import comparison_cells, mean_cells
    from suwen.bench.comparison import as_json
    from suwen.bench.comparison import compare as compared_systems
    from suwen.bench.result_files import read_results
    from suwen.bench.retrieval_metrics import definition

    compared = compared_systems(read_results(results), a, b, metric=metric, tasks=task or [])
    if json:
        print_json(as_json(compared))
        return
    headings = ("task", "metric", "a", "b", "a - b [95%]", "p", "won / lost / tied")
    rows = [(one.task, *comparison_cells(one)) for one in compared.tasks]
    rows += [(f"mean of {len(compared.tasks)}", *cells) for cells in mean_cells(compared)]
    print_table(f"a: {compared.a}, b: {compared.b}; x 100", headings, rows, words=2)
    for name in dict.fromkeys(one.metric for one in compared.tasks):
        out.print(f"{name}: {definition(name)}", markup=False, soft_wrap=True)
    out.print("p: two-sided paired t-test; interval: paired bootstrap of the queries, 10,000 draws", soft_wrap=True)
    for one in compared.tasks:
        _show_queries(one, most)
        if one.note:
            say(f"{one.task}: {one.note}")
    for name, why in compared.left_out.items():
        say(f"not compared: {name}: {why}")


def _show_queries(task: TaskComparison, most: int) -> None:
    for word, pairs in (("won", task.wins), ("lost", task.losses)):
        for pair in pairs[:most]:
            out.print(f"{task.task} {word} {100 * pair.difference:+.1f}  {pair.text}", markup=False, soft_wrap=True)
            for side, hits in (("a", pair.hits_a), ("b", pair.hits_b)):
                first = hits[0] if hits else None
                shown = "nothing" if first is None else f"{first.text[:80]} ({first.id}, grade {first.grade})"
                out.print(f"    {side} found {shown}", markup=False, style="dim", soft_wrap=True)


def ranks(
    source: Annotated[str, typer.Argument(help="The folder of `suwen bench run`, or a published table: care:11.")],
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Only this task, mean or column; repeat.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell how alike tasks rank the systems: Spearman's and Kendall's correlation of every two columns.

    Example: `suwen bench ranks care:11 --column "Avg CMed" --column "Avg New"`
    """
    from suwen.bench.benchmark_report import column_scores
    from suwen.bench.comparison import CompareError
    from suwen.bench.paired_statistics import rank_agreement

    scores = column_scores(source)
    if unknown := [name for name in column or () if name not in scores]:
        raise CompareError(f"no column {unknown[0]!r} in {source}; there are: {', '.join(scores) or 'none'}")
    found = list(rank_agreement({name: scores[name] for name in column or scores}))
    lines = [
        f"{one['first']} and {one['second']}: Spearman {one['spearman']:.3f} (p {one['spearman_p']:.3f}), "
        f"Kendall {one['kendall']:.3f} (p {one['kendall_p']:.3f}), {one['systems']} systems"
        for one in found
    ]
    show(found, *(lines or ["no two columns share three systems that differ: run more systems"]), json=json)


def report(
    results: Results,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where index.html and plots/ are written.")],
    curves: Annotated[
        list[Path] | None, typer.Option("--curves", help="A CSV of training curves: step, then numbers; repeat.")
    ] = None,
    json: Json = False,
) -> None:
    """Write one HTML page that works offline, with every plot as PNG and CSV beside it.

    Example: `suwen bench report results --to report`
    """
    from suwen.bench.benchmark_report import write_report

    made = write_report(results, to, curves=curves or [])
    show(
        {"page": str(made.page), "plots": [str(path) for path in made.plots], "notices": made.notices},
        f"{made.page}: open it in a browser; {len(made.plots)} files of plots beside it",
        json=json,
    )
    for notice in () if json else made.notices:
        say(notice)


VERBS = (compare, ranks, report)
