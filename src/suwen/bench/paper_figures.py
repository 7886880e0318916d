"""Figures of a paper drawn again with our results beside its printed numbers: CardioEmbed's Figures 1 to 6.

Nothing is scored here, and of a figure whose numbers the paper does not print (6, but for three) only ours are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from suwen.bench.comparison import system_names
from suwen.bench.published_tables import published
from suwen.bench.result_files import Result
from suwen.bench.result_plots import COLOURS, WIDTH, Plot, legend

Rows = list[tuple[str | float | None, ...]]
_PARAPHRASE = "Cardiology-Paraphrase"
_GENERAL = {"BIOSSES": "spearman", "SciFact": "ndcg@10", "NFCorpus": "ndcg@10"}
#: Section 3.2; Table 1 has no such column.
_AT_TEN = {"CardioEmbed": 100.0}
#: Figure 1: strong, moderate, to be improved.
_ZONES = ((60, 100, "#009E73"), (30, 60, "#E69F00"), (0, 30, "#D55E00"))
_OURS, _THEIRS = "measured here", "published"


def paper_figures(paper: str, results: Sequence[Result]) -> list[Plot]:
    """The figures of a paper, of those that some result of ours belongs to; none for other papers."""
    if paper != "cardioembed":
        return []
    made = (figure(results) for figure in (_general, _first_rank, _ranks, _reciprocal, _waterfall, _radar))
    return [plot for plot in made if plot is not None]


def _ours(results: Sequence[Result], task: str, metric: str) -> dict[str, float]:
    """Our value of a metric, x 100, by system."""
    own = {result.system: result.metrics for result in results if result.task == task}
    return {system: 100 * own[system][metric] for system in system_names(results) if metric in own.get(system, {})}


def _printed(table: int, column: str) -> dict[str, float]:
    """The paper's value of a column by system, x 100."""
    cells = [figure for figure in published("cardioembed", table) if figure.column == column]
    return {
        cell.row: cell.number * (1 if cell.kind.endswith("%") else 100) for cell in cells if cell.number is not None
    }


def _both(results: Sequence[Result], table: int, column: str, task: str, metric: str) -> Rows:
    ours = _ours(results, task, metric)
    rows: Rows = [(system, value, _OURS) for system, value in ours.items()]
    return [*rows, *((system, value, _THEIRS) for system, value in _printed(table, column).items())] if ours else []


def _general(results: Sequence[Result]) -> Plot | None:
    """Figure 1: general tasks, with zones."""
    rows: Rows = [
        (f"{task}: {system}", value, whose)
        for task, metric in _GENERAL.items()
        for system, value, whose in _both(results, 2, task, task, metric)
    ]
    return _bars("figure-1", "Figure 1: general medical tasks", "main metric x 100", rows, zones=True) if rows else None


def _first_rank(results: Sequence[Result]) -> Plot | None:
    """Figure 2: the right sentence first."""
    rows = _both(results, 1, "Acc@1", _PARAPHRASE, "accuracy@1")
    return _bars("figure-2", "Figure 2: accuracy at the first rank", "accuracy@1 x 100", rows) if rows else None


def _reciprocal(results: Sequence[Result]) -> Plot | None:
    """Figure 4: mean reciprocal ranks."""
    rows = _both(results, 1, "MRR", _PARAPHRASE, "mrr")
    return _bars("figure-4", "Figure 4: mean reciprocal rank", "MRR x 100", rows) if rows else None


def _ranks(results: Sequence[Result]) -> Plot | None:
    """Figure 3: accuracy at several ranks."""
    ours = {rank: _ours(results, _PARAPHRASE, f"accuracy@{rank}") for rank in (1, 5, 10)}
    theirs = {1: _printed(1, "Acc@1"), 5: _printed(1, "Acc@5"), 10: _AT_TEN}
    rows: Rows = [
        (system, whose, rank, value)
        for whose, by_rank in ((_OURS, ours), (_THEIRS, theirs))
        for rank, values in by_rank.items()
        for system, value in values.items()
        # The paper's figure has its model and the base alone.
        if whose == _OURS or system in ("CardioEmbed", "Qwen3-8B-Base")
    ]
    if not ours[1]:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (system, whose) in enumerate(dict.fromkeys((row[0], row[1]) for row in rows)):
            own = [(row[2], row[3]) for row in rows if row[:2] == (system, whose)]
            axes.plot(
                [rank for rank, _ in own],
                [value for _, value in own],
                color=COLOURS[number % len(COLOURS)],
                marker="osD^vP"[number % 6],
                linestyle="-" if whose == _OURS else ":",
                label=f"{system} ({whose})",
            )
        axes.set_xticks([1, 5, 10])
        axes.set_xlabel("rank")
        axes.set_ylabel("accuracy x 100")
        axes.grid(True)
        legend(figure)

    title = "Figure 3: accuracy at different ranks"
    spoken = "; ".join(f"{row[0]} ({row[1]}) at {row[2]}: {row[3]:.2f}" for row in rows)
    columns = ("system", "whose", "rank", "accuracy_x100")
    return Plot("figure-3", title, f"{title}. {spoken}.", columns, rows, (WIDTH, 4.2), draw)


def _waterfall(results: Sequence[Result]) -> Plot | None:
    """Figure 5: what each step adds, from the weakest of our systems to the best, and the paper's steps."""
    ours = sorted(_ours(results, _PARAPHRASE, "accuracy@1").items(), key=lambda item: item[1])
    theirs = sorted(_printed(1, "Acc@1").items(), key=lambda item: item[1])
    if len(ours) < 2:
        return None
    rows: Rows = []
    for whose, steps in ((_OURS, ours), (_THEIRS, theirs)):
        before = 0.0
        for system, value in steps:
            rows.append((system, whose, before, value - before))
            before = value

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            first = row[2] == 0
            colour = COLOURS[0] if row[1] == _OURS else COLOURS[6]
            bar = axes.barh([place], [row[3]], left=[row[2]], color=colour, alpha=1.0 if first else 0.6)
            axes.bar_label(bar, [f"{row[3]:.2f}" if first else f"{row[3]:+.2f}"], padding=3, fontsize=8)
        axes.set_yticks(range(len(rows)), [f"{row[0]}\n({row[1]})" for row in rows], fontsize=8)
        axes.invert_yaxis()
        least = min(float(row[2] or 0) + float(row[3] or 0) for row in rows)
        axes.set_xlim(max(0.0, 10 * np.floor((least - 5) / 10)), 104)
        axes.set_xlabel("accuracy@1 x 100, each system from the one before it")
        axes.grid(True, axis="x")

    title = "Figure 5: what each step adds"
    spoken = "; ".join(f"{row[0]} ({row[1]}): {row[3]:+.2f}" for row in rows)
    columns = ("system", "whose", "from_x100", "gain_x100")
    return Plot("figure-5", title, f"{title}. {spoken}.", columns, rows, (WIDTH, 1.4 + 0.45 * len(rows)), draw)


def _radar(results: Sequence[Result]) -> Plot | None:
    """Figure 6: several abilities at once; where fewer than three were measured, there is no figure."""
    wanted = {"cardiology": (_PARAPHRASE, "accuracy@1"), **{task: (task, metric) for task, metric in _GENERAL.items()}}
    values = {name: found for name, (task, metric) in wanted.items() if (found := _ours(results, task, metric))}
    if speed := _efficiency(results):
        values["speed"] = speed
    complete = [s for s in system_names(results) if all(s in found for found in values.values())]
    if len(values) < 3 or not complete:
        return None
    rows: Rows = [(system, axis, found[system]) for system in complete for axis, found in values.items()]
    angles = np.linspace(0, 2 * np.pi, len(values), endpoint=False)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(projection="polar")
        for number, system in enumerate(complete):
            own = [found[system] for found in values.values()]
            axes.plot(
                np.append(angles, angles[0]),
                [*own, own[0]],
                color=COLOURS[number % len(COLOURS)],
                marker="osD^vP"[number % 6],
                label=system,
            )
        axes.set_xticks(angles, list(values))
        axes.set_ylim(0, 100)
        legend(figure)

    title = "Figure 6: depth against breadth"
    spoken = "; ".join(f"{row[0]}, {row[1]}: {row[2]:.1f}" for row in rows)
    alt = f"{title}. Speed is the fastest system's milliseconds over each system's. {spoken}."
    return Plot("figure-6", title, alt, ("system", "axis", "value_x100"), rows, (WIDTH, 5.2), draw)


def _efficiency(results: Sequence[Result]) -> dict[str, float]:
    """The fastest system's time of a query as a part of each system's, x 100."""
    times = {
        system: float(np.median(own))
        for system in system_names(results)
        if (own := [r.about["query_ms"] for r in results if r.system == system and (r.about.get("query_ms") or 0) > 0])
    }
    return {system: 100 * min(times.values()) / ms for system, ms in times.items()}


def _bars(name: str, title: str, label: str, rows: Rows, *, zones: bool = False) -> Plot:
    """Bars, ours and the paper's told apart by their colour and pattern."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for low, high, colour in _ZONES if zones else ():
            axes.axvspan(low, high, color=colour, alpha=0.08)
        for whose, colour, hatch in ((_OURS, COLOURS[0], ""), (_THEIRS, COLOURS[6], "///")):
            own = [(place, row[1]) for place, row in enumerate(rows) if row[2] == whose]
            bars = axes.barh([p for p, _ in own], [v for _, v in own], color=colour, hatch=hatch, label=whose)
            axes.bar_label(bars, [f"{value:.2f}" for _, value in own], padding=3, fontsize=8)
        axes.set_yticks(range(len(rows)), [str(row[0]) for row in rows], fontsize=9)
        axes.invert_yaxis()
        axes.set_xlim(0, 112)
        axes.set_xlabel(label)
        axes.grid(True, axis="x")
        legend(figure)

    spoken = "; ".join(f"{row[0]} ({row[2]}): {row[1]:.2f}" for row in rows)
    columns = ("system", "value_x100", "whose")
    return Plot(name, title, f"{title}. {spoken}.", columns, rows, (WIDTH, 1.3 + 0.36 * len(rows)), draw)
