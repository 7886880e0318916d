"""A report of stored results: one HTML page that needs nothing else, and every plot as PNG and CSV beside it.

What is measured is read from result files, what is published from ``published_tables``; nothing is scored here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from suwen import html_kit as html
from suwen.bench.comparison import CompareError, Comparison, Hit, QueryDifference, TaskComparison, compare, system_names
from suwen.bench.paper_figures import paper_figures
from suwen.bench.published_tables import PAPERS, Figure, published
from suwen.bench.result_files import Result, read_results
from suwen.bench.result_plots import (
    NO_FONT,
    Plot,
    bars_plot,
    curves_plot,
    find_font,
    render,
    require_matplotlib,
    shared_tasks,
    similarity_plots,
    speed_plot,
)
from suwen.bench.retrieval_metrics import definition
from suwen.bench.suite_runner import averages
from suwen.bench.suite_tasks import Suite, load_suite, suites
from suwen.durable import write_bytes, write_text
from suwen.errors import SuwenError

#: Of each task, so many wins and losses are shown.
MOST_QUERIES = 5


class ReportError(SuwenError):
    """There is nothing to report on."""


@dataclass
class BenchmarkReport:
    """What was written: the page, the files of each plot, and what a reader should know."""

    page: Path
    plots: list[Path] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class _Column(NamedTuple):
    """A column of a published table, and our value in it by system."""

    heading: str
    metric: str
    name: str
    ours: dict[str, float | None]


def write_report(out: Path | str, to: Path | str, *, curves: Sequence[Path | str] = ()) -> BenchmarkReport:
    """Write ``index.html`` and the plots of all results under a folder.

    Args:
        out: The folder that ``suwen bench run`` wrote.
        to: The folder to write into; files of the same names are replaced.
        curves: CSV files of training curves; see :func:`~suwen.bench.result_plots.curves_plot`.

    Raises:
        ReportError: There are no results.
        PlotError: matplotlib is missing, or a file of curves is not understood.
    """
    results = read_results(out)
    if not results:
        raise ReportError(f"No results under {out}; make some with `suwen bench run SUITE -s SYSTEM --out {out}`.")
    require_matplotlib()
    trained = [curves_plot(file) for file in curves]
    writer = _Writer(BenchmarkReport(Path(to) / "index.html"))
    names = list(dict.fromkeys(result.suite for result in results))
    body = [part for number, name in enumerate(names) for part in writer.suite(number, name, results)]
    links = [(f"suite-{number}", name) for number, name in enumerate(names)]
    if trained:
        links.append(("curves", "Training curves"))
        body += [html.heading("Training curves", "curves"), *map(writer.picture, trained)]
    lead = (
        f"{len(results)} results of {len(system_names(results))} systems. Scores are multiplied by 100. Rows marked "
        "“measured here” come from this run, rows marked “published” are copied from the named paper."
    )
    notices = [html.paragraph(notice, "notice") for notice in writer.report.notices]
    page = html.document("Retrieval benchmark report", lead, links, [*notices, *body])
    write_text(writer.report.page, page)
    return writer.report


@dataclass
class _Writer:
    """Makes the parts of a page, writing plots and collecting notices on the way."""

    report: BenchmarkReport
    _names: set[str] = field(default_factory=set)

    def suite(self, number: int, name: str, every: Sequence[Result]) -> Iterator[str]:
        results = [result for result in every if result.suite == name]
        known = load_suite(name) if name in suites() else None
        yield html.heading(known.title if known else f"Suite {name}", f"suite-{number}")
        if known is not None:
            yield html.paragraph(f"Suite {name}, {known.reference}.", "soft")
        yield _scores_table(name, results)
        yield _notes(results)
        if known is not None and known.paper is not None:
            yield from _published_tables(known, results)
            pictures = [self.picture(plot) for plot in paper_figures(known.paper, results)]
            if pictures:
                yield html.heading("The paper's figures, with ours", level=3)
                yield html.figures(pictures)
        yield html.heading("By task, and against speed", level=3)
        pictures = [self.picture(bars_plot(results))]
        speed = speed_plot(results)
        if speed is None:
            self.notice(f"{name}: no plot of speed, since no task was timed for every system that can be timed")
        else:
            pictures.append(self.picture(speed))
        yield html.figures(pictures)
        yield from self._compared(results)
        histograms = similarity_plots(results)
        if histograms:
            yield html.heading("Similarities of positives and negatives", level=3)
            yield html.figures(map(self.picture, histograms))

    def _compared(self, results: Sequence[Result]) -> Iterator[str]:
        """The best system against each of the others."""
        best = _best(results)
        for other in system_names(results):
            if other == best:
                continue
            yield html.heading(f"{best} against {other}", level=3)
            try:
                yield from _comparison(compare(results, best, other))
            except CompareError as problem:
                yield html.paragraph(str(problem), "notice")

    def picture(self, plot: Plot) -> str:
        # Two systems may share a name once it is made fit for a file.
        name = plot.name if plot.name not in self._names else f"{plot.name}-{len(self._names)}"
        self._names.add(name)
        light, folder = render(plot), self.report.page.parent / "plots"
        write_bytes(folder / f"{name}.png", light)
        write_text(folder / f"{name}.csv", plot.csv())
        self.report.plots += [folder / f"{name}.png", folder / f"{name}.csv"]
        if plot.has_chinese and find_font() is None:
            self.notice(NO_FONT)
        caption = f"{plot.title}. Files: plots/{name}.png and plots/{name}.csv"
        return html.figure(light, render(plot, dark=True), plot.alt, caption, plot.size)

    def notice(self, notice: str) -> None:
        if notice not in self.report.notices:
            self.report.notices.append(notice)


def _best(results: Sequence[Result]) -> str:
    """The system with the highest mean over the tasks that all have, or over its own where they share none."""
    tasks = set(shared_tasks(results)) or {result.task for result in results}

    def mean(system: str) -> float:
        return float(np.mean([r.metrics[r.main] for r in results if r.system == system and r.task in tasks]))

    return max(system_names(results), key=mean)


def _scores_table(suite: str, results: Sequence[Result]) -> str:
    """Every metric of every task, a column for each system; the best is bold."""
    systems = system_names(results)
    rows = []
    for task in dict.fromkeys(result.task for result in results):
        own = {result.system: result for result in results if result.task == task}
        for metric in dict.fromkeys(name for result in own.values() for name in result.metrics):
            shown = f"{metric} (main)" if any(result.main == metric for result in own.values()) else metric
            values = [own[system].metrics.get(metric) if system in own else None for system in systems]
            rows.append(html.Row(task, [html.Cell(shown, word=True), *_cells(values, metric)]))
    for name, values in _means(suite, results, systems).items():
        rows.append(html.Row(f"mean: {name}", [html.Cell("as the suite says", word=True), *_cells(values, "")]))
    headings: list[html.Column] = ["task", "metric", *((system, "measured here") for system in systems)]
    return html.table(f"{suite}: every metric x 100", headings, rows, _definitions(r.metrics for r in results))


def _notes(results: Sequence[Result]) -> str:
    """What the runs remarked about their data, each remark once."""
    notes = dict.fromkeys(f"{result.task}: {note}" for result in results for note in result.about.get("notes", ()))
    return html.bullets(notes, "notice") if notes else ""


def _cells(values: Sequence[float | None], metric: str) -> list[html.Cell]:
    known = [value for value in values if value is not None]
    pick = min if metric.startswith("hole") else max
    best = pick(known) if len(known) > 1 and min(known) != max(known) else None
    return [html.Cell(_number(value), best=value is not None and value == best) for value in values]


def _means(suite: str, results: Sequence[Result], systems: Sequence[str]) -> dict[str, list[float | None]]:
    """The averages that a suite names; of a suite of one's own, as the run left them in its summaries."""
    by_system = [_averages_of(suite, [r for r in results if r.system == system]) for system in systems]
    names = dict.fromkeys(name for means in by_system for name, value in means.items() if value is not None)
    return {name: [means.get(name) for means in by_system] for name in names}


def _averages_of(suite: str, results: Sequence[Result]) -> dict[str, float | None]:
    if suite in suites():
        metrics = {result.task: result.metrics for result in results}
        return {name: mean.value for name, mean in averages(load_suite(suite), metrics).items()}
    try:
        summary = json.loads((results[0].path.parent / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(summary["averages"])


def column_scores(source: str) -> dict[str, dict[str, float]]:
    """The scores of every system by column: of a published table (``care:11``), or of stored results.

    Args:
        source: A paper and the number of its table, or the folder that ``suwen bench run`` wrote: its columns are the
            main metrics of tasks (``SUITE/TASK``) and the averages that a suite names (``SUITE/mean: NAME``).
    """
    paper, _, table = source.partition(":")
    if paper in PAPERS and table.isdigit():
        cells = [
            (figure.column, figure.row, figure.number)
            for figure in published(paper, int(table))
            # Changes in per cent and means over rows are no systems.
            if not figure.kind.startswith(("%", "mean of the rows"))
        ]
    else:
        results = read_results(source)
        cells = [
            *((f"{one.suite}/{one.task}", one.system, one.metrics[one.main]) for one in results),
            *(
                (f"{suite}/mean: {name}", system, value)
                for suite, system in dict.fromkeys((one.suite, one.system) for one in results)
                for name, value in _averages_of(
                    suite, [one for one in results if (one.suite, one.system) == (suite, system)]
                ).items()
            ),
        ]
    return {
        column: {row: value for at, row, value in cells if at == column and value is not None}
        for column in dict.fromkeys(column for column, *_ in cells)
    }


def _definitions(metrics: Iterable[Iterable[str]]) -> dict[str, str]:
    return {name: definition(name) for name in dict.fromkeys(name for names in metrics for name in names)}


def _published_tables(suite: Suite, results: Sequence[Result]) -> Iterator[str]:
    """The paper's tables that hold a task we have: our rows first, then the printed ones."""
    columns = [column for task in suite.tasks for column in task.published]
    columns += [column for average in suite.averages for column in average.published]
    numbers = sorted({column.table for column in columns})
    parts = [text for number in numbers if (text := _published_table(suite, number, results))]
    if parts:
        yield html.heading("Beside the published numbers", level=3)
        yield html.paragraph(
            "Both are x 100 and by the metric that the column names. The papers' systems were not run here: their "
            "data, instructions and hardware are as their authors had them. Columns without a result of ours are left "
            "out.",
            "soft",
        )
        yield from parts


def _published_table(suite: Suite, number: int, results: Sequence[Result]) -> str | None:
    columns = [c for c in _columns(suite, number, results) if any(value is not None for value in c.ours.values())]
    if not columns or suite.paper is None:
        return None
    measured = [(system, [column.ours[system] for column in columns]) for system in system_names(results)]
    # A row of changes in per cent ("Improve.") is no system.
    printed = [figure for figure in published(suite.paper, number) if not figure.kind.startswith("%")]
    ours = [html.Row(name, [_number(v) for v in values], "measured here", True) for name, values in measured]
    theirs = []
    for row in dict.fromkeys(figure.row for figure in printed):
        cells = {figure.column: _printed(figure) for figure in printed if figure.row == row}
        if any(column.heading in cells for column in columns):
            shown = [cells.get(column.heading, html.DASH) for column in columns]
            theirs.append(html.Row(row, shown, "published"))
    headings: list[html.Column] = [
        "system",
        *((column.heading, f"{column.name}, {column.metric}") for column in columns),
    ]
    caption = f"{PAPERS[suite.paper]}, Table {number} (x 100), and ours"
    metrics = [column.metric for column in columns if column.metric != "main metric"]
    return html.table(caption, headings, [*ours, *theirs], _definitions([metrics or [t.main for t in suite.tasks]]))


def _columns(suite: Suite, number: int, results: Sequence[Result]) -> Iterator[_Column]:
    measured = {(result.system, result.task): result.metrics for result in results}
    systems = system_names(results)
    means = {system: _averages_of(suite.name, [r for r in results if r.system == system]) for system in systems}
    for task in suite.tasks:
        for column in (c for c in task.published if c.table == number):
            metric = column.metric or task.main
            values = {system: measured.get((system, task.name), {}).get(metric) for system in systems}
            yield _Column(column.column, metric, task.name, values)
    for average in suite.averages:
        for column in (c for c in average.published if c.table == number):
            values = {system: means[system].get(average.name) for system in systems}
            yield _Column(column.column, average.metric or "main metric", f"mean: {average.name}", values)


def _printed(figure: Figure) -> str:
    """A printed cell x 100, with the digits the paper gives; a word stays as it is."""
    if figure.number is None or "x100" in figure.kind or figure.kind.endswith("%"):
        return figure.value
    digits = max(0, len(figure.value.partition(".")[2]) - 2)
    return f"{100 * figure.number:.{digits}f}"


def _comparison(compared: Comparison) -> Iterator[str]:
    definitions = _definitions([[task.metric for task in compared.tasks]])
    caption = "Task by task; a difference is that of the first system minus the second"
    yield comparison_table(caption, compared.tasks, (compared.a, compared.b), definitions)
    if notes := "; ".join(f"{task.task}: {task.note}" for task in compared.tasks if task.note):
        yield html.paragraph(notes, "soft")
    for task in compared.tasks:
        chosen = [("won", pair) for pair in task.wins[:MOST_QUERIES]]
        chosen += [("lost", pair) for pair in task.losses[:MOST_QUERIES]]
        if chosen:
            yield html.heading(f"{task.task}: where they differ most by {task.metric}", level=4)
            yield from (_query(compared, mark, pair) for mark, pair in chosen)
        elif task.queries:
            yield html.paragraph(f"{task.task}: the two are equal on every query by {task.metric}.", "soft")
    if compared.left_out:
        yield html.paragraph(
            "Not compared: " + "; ".join(f"{k} ({why})" for k, why in compared.left_out.items()), "soft"
        )


def comparison_table(
    caption: str, tasks: Iterable[TaskComparison], systems: tuple[str, str], names: Mapping[str, str] | None = None
) -> str:
    """Two systems task by task, as an HTML table."""
    rows: list[html.PlainRow] = []
    for task in tasks:
        metric, *numbers = comparison_cells(task)
        rows.append((task.task, [html.Cell(metric, word=True), *numbers]))
    headings: list[html.Column] = [
        "task",
        "metric",
        (systems[0], "x 100"),
        (systems[1], "x 100"),
        ("difference", "95% bootstrap interval"),
        ("p", "paired t-test"),
        ("won / lost / tied", "queries"),
    ]
    return html.table(caption, headings, rows, names)


def comparison_cells(task: TaskComparison) -> list[str]:
    """A comparison's row as text: metric, both means, the difference with its interval, p, and the queries."""
    span = html.interval(100 * task.interval.low, 100 * task.interval.high, "+.2f") if task.interval else ""
    p = html.DASH if task.test is None else "< 0.0001" if task.test.p < 0.0001 else f"{task.test.p:.4f}"
    counts = f"{len(task.wins)} / {len(task.losses)} / {task.ties}" if task.queries else html.DASH
    return [task.metric, _number(task.a), _number(task.b), f"{100 * task.difference:+.2f}{span}", p, counts]


def mean_cells(compared: Comparison) -> list[list[str]]:
    """The row of the mean over tasks; none where there is no such mean."""
    if (mean := compared.mean()) is None:
        return []
    sides = [
        sum(values) / len(compared.tasks) for values in zip(*((one.a, one.b) for one in compared.tasks), strict=True)
    ]
    span = html.interval(100 * mean.low, 100 * mean.high, "+.2f")
    return [["", *map(_number, sides), f"{100 * mean.difference:+.2f}{span}", "", ""]]


def _query(compared: Comparison, mark: str, pair: QueryDifference) -> str:
    columns = [
        (f"{compared.a}: {_number(pair.a)}", [_hit(hit) for hit in pair.hits_a]),
        (f"{compared.b}: {_number(pair.b)}", [_hit(hit) for hit in pair.hits_b]),
        ("judged relevant", [_hit(hit) for hit in pair.relevant]),
    ]
    return html.details(
        f"{mark} {100 * pair.difference:+.1f}", pair.text, html.sides(columns), "gain" if mark == "won" else "loss"
    )


def _hit(hit: Hit) -> str:
    judged = "not judged" if hit.grade is None else f"grade {hit.grade}"
    return f"{hit.text} ({hit.id}, {judged})"


def _number(value: float | None) -> str:
    return html.number(None if value is None else 100 * value, ".2f")
