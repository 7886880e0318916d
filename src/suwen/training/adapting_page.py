"""The report page of an adaptation: the answer first, then the numbers, what was refused, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suwen import html_kit as html
from suwen.bench.benchmark_report import comparison_table
from suwen.durable import write_json, write_text
from suwen.training.adapting import Outcome, as_record


def write_page(outcome: Outcome, work: Path) -> Path:
    """Write ``report.html`` and ``outcome.json`` into the work folder."""
    write_json(work / "outcome.json", dict(as_record(outcome)))
    links = [("tasks", "Before and after"), ("made", "What was made"), ("time", "Time")]
    page = html.document("A specialist of your books", outcome.answer, links, _body(outcome))
    write_text(work / "report.html", page)
    return work / "report.html"


def _body(outcome: Outcome) -> Iterator[str]:
    yield html.heading("Before and after", "tasks")
    caption = "The light query side of both pairs; questions and paraphrases were kept apart"
    yield comparison_table(caption, outcome.tasks, ("after", "before"))
    yield html.paragraph(
        "The questions were written by a language model for passages that nothing was trained on. People ask "
        "otherwise: measure on questions of your own before you rely on it (suwen bench).",
        "soft",
    )
    yield html.heading("What was made", "made")
    for name, counts in outcome.counts.items():
        flat: Mapping[str, Any] = counts.get("counts", counts)
        yield html.table(
            name, ["what", "how many"], [(key.replace("_", " "), [f"{value:,}"]) for key, value in flat.items()]
        )
    yield html.heading("Time", "time")
    yield html.table(
        "Seconds, over all runs", ["step", "seconds"], [(k, [f"{v:.1f}"]) for k, v in outcome.seconds.items()]
    )
