"""Pictures of results, each with its numbers as CSV: what is shown, how it is drawn, and a font that can write Chinese.

A :class:`Plot` is data first; :func:`render` draws it to PNG, on light or dark ground. The page is not here.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suwen.bench.comparison import system_names
from suwen.bench.result_files import Result
from suwen.errors import SuwenError

#: Families with Chinese characters, the ones for simplified Chinese first.
FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "Noto Sans CJK JP",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti SC",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
)
NO_FONT = (
    "No installed font has Chinese characters, so plots show boxes in their place; install one, for example"
    " `apt-get install fonts-noto-cjk` or `dnf install google-noto-sans-cjk-fonts`, and make the plots again."
)
#: Okabe and Ito's colours, which people with colour blindness can tell apart; yellow is left out on white ground.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F")
_MARKERS = "osD^vPX*"
_CHINESE = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_BINS = 30
#: Inches; no wider, so that the words can still be read on a phone.
WIDTH = 5.8


class PlotError(SuwenError):
    """A plot that cannot be drawn: matplotlib is missing, or a file of curves is not understood."""


@dataclass(frozen=True)
class Plot:
    """One picture: a name for its files, a title, words for those who cannot see it, and the numbers it shows."""

    name: str
    title: str
    alt: str
    columns: tuple[str, ...]
    rows: list[tuple[str | float | None, ...]]
    size: tuple[float, float]
    draw: Callable[[Any], None]

    def csv(self) -> str:
        """The numbers as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    @property
    def has_chinese(self) -> bool:
        """Whether some label needs a font with Chinese characters."""
        words = [self.title, *self.columns, *(cell for row in self.rows for cell in row if isinstance(cell, str))]
        return any(_CHINESE.search(word) for word in words)


def has_matplotlib() -> bool:
    """Whether plots can be drawn here."""
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib() -> None:
    """Raise :class:`PlotError` where plots cannot be drawn."""
    if not has_matplotlib():
        raise PlotError("Plots need matplotlib, which is not installed; install it with: pip install 'suwen[eval]'")


def find_font() -> str | None:
    """The family of an installed font with Chinese characters, or None."""
    require_matplotlib()
    from matplotlib import font_manager

    def known() -> str | None:
        names = {entry.name for entry in font_manager.fontManager.ttflist}
        return next((family for family in FONTS if family in names), None)

    if (family := known()) is not None:
        return family
    # matplotlib keeps its list of fonts between runs, and one installed since is not in it.
    for path in font_manager.findSystemFonts():
        if re.search(r"cjk|han ?sans|hans|wqy|pingfang|hiragino|heiti|yahei|simhei|unicode", Path(path).name, re.I):
            font_manager.fontManager.addfont(path)
    return known()


def render(plot: Plot, *, dark: bool = False, dpi: int = 150) -> bytes:
    """Draw a plot as PNG.

    Raises:
        PlotError: matplotlib is not installed.
    """
    require_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ink, paper = ("#e8e8e8", "#1b1e23") if dark else ("#1c1c1c", "#ffffff")
    family = find_font()
    style: dict[Any, Any] = {
        "font.family": ["DejaVu Sans", *([family] if family else [])],
        "font.size": 10,
        "axes.unicode_minus": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.alpha": 0.25,
        "text.parse_math": False,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor", "savefig.facecolor"), paper),
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=plot.size, layout="constrained")
        FigureCanvasAgg(figure)
        plot.draw(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=dpi, metadata={"Software": None})
    return stream.getvalue()


def shared_tasks(results: Sequence[Result]) -> list[str]:
    """The tasks that every system of these results has: means over them can be set side by side."""
    by_system = [{r.task for r in results if r.system == system} for system in system_names(results)]
    common = set.intersection(*by_system) if by_system else set()
    return [task for task in dict.fromkeys(r.task for r in results) if task in common]


def speed_plot(results: Sequence[Result]) -> Plot | None:
    """Accuracy against speed on a log axis, one suite, over the tasks that all systems with a known latency share.

    The time is what stands in the result: encoding for an encoder, search for BM25, their sum for a hybrid. None
    where no system has a latency (a run file has none) or they share no task.
    """
    timed = [result for result in results if (result.about.get("query_ms") or 0) > 0]
    tasks = shared_tasks(timed)
    if not tasks:
        return None
    rows: list[tuple[str | float | None, ...]] = []
    for system in system_names(timed):
        own = [result for result in timed if result.system == system and result.task in tasks]
        ms = float(np.median([result.about["query_ms"] for result in own]))
        score = 100 * float(np.mean([result.metrics[result.main] for result in own]))
        rows.append((system, ms, 1000 / ms, score))
    suite = results[0].suite
    count = f"{len(tasks)} task" + ("" if len(tasks) == 1 else "s")
    spoken = "; ".join(f"{row[0]}: {_short(row[3])} at {_short(row[1])} ms" for row in rows)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, row in enumerate(rows):
            style = {"color": _colour(number), "marker": _MARKERS[number % len(_MARKERS)]}
            axes.scatter([row[1]], [row[3]], s=90, zorder=3, label=str(row[0]), **style)
        axes.set_xscale("log")
        # Plain numbers: the powers of ten that a log axis writes by itself need the mathematical markup that is off.
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        places = [float(row[1] or 1) for row in rows]
        axes.set_xlim(10 ** math.floor(math.log10(min(places) * 0.8)), 10 ** math.ceil(math.log10(max(places) * 1.25)))
        axes.margins(y=0.2)
        axes.set_xlabel("median ms, one query at a time, log axis\n(an encoder's encoding, BM25's search)")
        axes.set_ylabel(f"mean main metric x 100, {count}")
        axes.grid(True, which="both")
        legend(figure)

    title = f"Accuracy against query latency: {suite}"
    columns = ("system", "query_ms", "qps", "mean_main_metric_x100")
    return Plot(_slug(f"latency-{suite}"), title, f"{title}. {spoken}.", columns, rows, (WIDTH, 4.6), draw)


def bars_plot(results: Sequence[Result]) -> Plot:
    """Bars of the main metric by task, a colour for each system; one suite."""
    tasks = list(dict.fromkeys((result.task, result.main) for result in results))
    systems = system_names(results)
    scores = {(result.system, result.task): 100 * result.metrics[result.main] for result in results}
    rows: list[tuple[str | float | None, ...]] = [
        (task, metric, system, scores.get((system, task))) for task, metric in tasks for system in systems
    ]
    thick = 0.8 / len(systems)
    height = max(2.6, 1.2 + len(tasks) * (0.28 * len(systems) + 0.25))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, system in enumerate(systems):
            own = [scores.get((system, task), math.nan) for task, _ in tasks]
            places = np.arange(len(tasks)) + (number - (len(systems) - 1) / 2) * thick
            # Colours come round again after seven systems; the pattern then tells them apart.
            hatch = ("", "///", "...", "xxx")[number // len(COLOURS) % 4]
            shown = axes.barh(places, own, thick * 0.92, color=_colour(number), hatch=hatch, label=system)
            axes.bar_label(shown, ["" if math.isnan(v) else f"{v:.1f}" for v in own], padding=3, fontsize=8)
        axes.set_yticks(range(len(tasks)), [f"{task}\n{metric}" for task, metric in tasks])
        axes.invert_yaxis()
        # A correlation may be below 0.
        axes.set_xlim(min(0, *scores.values()), max(100, *scores.values()) * 1.08)
        axes.set_xlabel("main metric x 100")
        axes.grid(True, axis="x")
        legend(figure)

    suite = results[0].suite
    title = f"Main metric by task: {suite}"
    spoken = "; ".join(f"{row[0]}, {row[2]}: {_short(row[3])}" for row in rows if row[3] is not None)
    columns = ("task", "metric", "system", "value_x100")
    return Plot(_slug(f"bars-{suite}"), title, f"{title}. {spoken}.", columns, rows, (WIDTH, height), draw)


def similarity_plots(results: Sequence[Result]) -> list[Plot]:
    """A histogram of the similarities of positives and negatives for each task and each system that has vectors."""
    stored = ((result, result.similarities()) for result in results)
    return [_histogram(result, both) for result, both in stored if both and both["positives"] and both["negatives"]]


def _histogram(result: Result, known: dict[str, Any]) -> Plot:
    positives, negatives = (np.asarray(known[side], np.float64) for side in ("positives", "negatives"))
    edges = np.histogram_bin_edges(np.concatenate([positives, negatives]), bins=_BINS)
    shares = [np.histogram(side, edges)[0] / len(side) for side in (positives, negatives)]
    rows: list[tuple[str | float | None, ...]] = [
        (*edges[bin_ : bin_ + 2].tolist(), float(shares[0][bin_]), float(shares[1][bin_])) for bin_ in range(_BINS)
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        labels = (f"positives ({len(positives)})", f"negatives ({len(negatives)}): {known['negatives_are']}")
        for side, label, colour, hatch in zip(shares, labels, COLOURS, ("", "///"), strict=False):
            axes.stairs(100 * side, edges, fill=True, alpha=0.45, color=colour, hatch=hatch, label=label)
            axes.stairs(100 * side, edges, color=colour)
        axes.set_xlabel(f"{known['similarity']} similarity")
        axes.set_ylabel("% of the pairs")
        axes.grid(True, axis="y")
        legend(figure)

    title = f"Similarities of positives and negatives: {result.task}, {result.system}"
    alt = f"{title}. Mean of positives {positives.mean():.3f}, of negatives {negatives.mean():.3f}."
    name = _slug(f"similarities-{result.suite}-{result.task}-{result.system}")
    columns = ("from", "to", "positives_share", "negatives_share")
    return Plot(name, title, alt, columns, rows, (WIDTH, 3.6), draw)


def curves_plot(file: Path | str) -> Plot:
    """Training curves: a CSV whose first column is the step (or epoch) and whose other columns are numbers.

    An empty cell is a step at which that number was not measured.

    Raises:
        PlotError: The file cannot be read, or holds something else.
    """
    columns, rows = _read_curves(Path(file))
    curves = {
        name: [(row[0], row[place]) for row in rows if row[place] is not None]
        for place, name in enumerate(columns[1:], 1)
    }

    def draw(figure: Any) -> None:
        # Losses and metrics have different scales: each gets axes of its own over one common step axis.
        every = np.atleast_1d(figure.subplots(len(curves), sharex=True))
        for number, (axes, (name, points)) in enumerate(zip(every, curves.items(), strict=True)):
            dots = "." if len(points) < 50 else ""
            axes.plot([x for x, _ in points], [y for _, y in points], color=_colour(number), marker=dots)
            axes.set_title(name, loc="left", fontsize=10)
            axes.grid(True)
        axes.set_xlabel(columns[0])

    title = f"Training curves: {Path(file).stem}"
    last = "; ".join(f"{name}: last {_short(points[-1][1] if points else None)}" for name, points in curves.items())
    return Plot(
        _slug(f"curves-{Path(file).stem}"),
        title,
        f"{title}. {last}.",
        columns,
        rows,
        (WIDTH, 1 + 1.9 * len(curves)),
        draw,
    )


def _read_curves(file: Path) -> tuple[tuple[str, ...], list[tuple[str | float | None, ...]]]:
    help_ = "give a CSV with a heading whose first column is the step and whose other columns are numbers"
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            heading, *lines = [line for line in csv.reader(stream) if line]
        rows: list[tuple[str | float | None, ...]] = [
            tuple(float(cell) if cell.strip() else None for cell in line) for line in lines
        ]
    except (OSError, ValueError, csv.Error) as problem:
        raise PlotError(f"{file}: not a file of curves ({problem}); {help_}") from problem
    if len(heading) < 2 or not rows or any(len(row) != len(heading) or row[0] is None for row in rows):
        raise PlotError(f"{file}: has no curve, or rows of another length than its heading; {help_}")
    return tuple(heading), rows


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def legend(figure: Any) -> None:
    """Put the legend beneath the axes."""
    # Beneath the axes: names of systems are long, and on the axes they would hide what they name.
    figure.legend(loc="outside lower left", frameon=False, fontsize=9)


def _short(value: Any) -> str:
    return "none" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _slug(name: str) -> str:
    return re.sub(r"[^\w.#+-]+", "_", name).strip("._")[:120] or "plot"
