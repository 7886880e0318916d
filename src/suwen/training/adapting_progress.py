"""How far an adaptation is: a page in its work folder that is written again as it goes on, and the time it may take.

What came of it in the end is in ``adapting_page``; both are ``report.html``, so that a browser left open shows the end.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from suwen import html_kit as html
from suwen.curate.screening import in_words
from suwen.durable import write_json, write_text
from suwen.llm.ledger import Progress

#: The steps in their order.
STEPS = ("questions", "triplets", "data", "training", "measuring")
#: Seconds between two writings of the page within a step, and after which a browser asks for it again.
_AGAIN, _REFRESH = 2.0, 5
_KNOWN = {"": "waits", "running": "runs now", "stopped": "stopped", "done": "done"}


@dataclass
class Step:
    """A step, or a stage of the training: its state, its seconds over all runs, and how far it is."""

    name: str
    state: str = ""
    seconds: float = 0.0
    detail: str = ""


class UnderWay:
    """Keeps ``report.html`` and ``progress.json`` of a work folder up to date.

    Args:
        work: The work folder; nothing is written before the first step begins.
        minutes: The most time of this run; None for no end.
        calls: The most calls of language models in this run; None for no end.
    """

    def __init__(self, work: Path, minutes: float | None = None, calls: int | None = None) -> None:
        self._work, self._minutes, self._calls = work, minutes, calls
        self._began = time.monotonic()
        self._file = work / "progress.json"
        self._steps = {name: Step(name) for name in STEPS}
        if self._file.is_file():
            before = json.loads(self._file.read_text(encoding="utf-8"))
            # What was running when it was stopped is not done.
            self._steps |= {one["name"]: Step(one["name"], seconds=one["seconds"]) for one in before["steps"]}
        self._count: Callable[[], int] = lambda: 0
        self._now: Step | None = None
        #: When the step began, less what it has taken before; when the page was written.
        self._first, self._written = 0.0, -math.inf

    @property
    def until(self) -> float | None:
        """When this run must end, by the monotonic clock."""
        return None if self._minutes is None else self._began + 60 * self._minutes

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of every step, over all runs."""
        return {step.name: round(step.seconds, 1) for step in self._steps.values() if step.seconds}

    def counting(self, count: Callable[[], int]) -> None:
        """Take the calls of this run from here."""
        self._count = count

    def is_late(self) -> bool:
        """Whether the time is spent."""
        return self.until is not None and time.monotonic() > self.until

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step that is done here; its seconds count even where it is stopped."""
        own = self._now = self._steps[name]
        own.state, own.detail = "running", ""
        self._first = time.monotonic() - own.seconds
        self.write()
        try:
            yield
        except BaseException as problem:
            own.detail = str(problem) or type(problem).__name__
            self.write(stopped=own.detail)
            raise
        self.write(ended=own)

    def kept(self, name: str) -> None:
        """A step that another run has done."""
        self._steps[name].state = "done"

    def read(self, book: Path, page: int, pages: int) -> None:
        """Hear of a page of a book."""
        self._tell(f"reading {book.name}: page {page:,}" + (f" of {pages:,}" if pages else ""))

    def asked(self, made: Progress) -> None:
        """Hear of a reply of a language model."""
        left = "" if made.eta is None else f", about {spoken(made.eta)} left"
        self._tell(f"{made.done:,} of {made.total or 0:,} requests{left}")

    def trained(self, stage: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Hear of a step of a training stage."""
        loss = f", loss {values['loss']:.4f}" if "loss" in values else ""
        self._tell(f"{stage}: {done:,} of {total:,} steps{loss}" if total else f"{stage}: {done:,}{loss}")

    def finished(self, stage: str, seconds: float) -> None:
        """Hear of a stage of the training that is done."""
        self._steps[f"training: {stage}"] = Step(f"training: {stage}", "done", seconds)
        self.write()

    def _tell(self, detail: str) -> None:
        if self._now is not None:
            self._now.detail = detail
            if time.monotonic() - self._written > _AGAIN:
                self.write()

    def write(self, stopped: str = "", ended: Step | None = None) -> None:
        """Write the page now; it says where the run was stopped, or which step has ended."""
        self._written = time.monotonic()
        if self._now is not None and self._now.state == "running":
            self._now.seconds = self._written - self._first
            self._now.state = "stopped" if stopped else "running"
        if ended is not None:
            ended.state, ended.detail = "done", ""
        steps = [asdict(step) for step in self._steps.values()]
        write_json(self._file, {"steps": steps, "calls": self._count(), "stopped": stopped})
        lead = f"Stopped: {stopped}. The same command goes on." if stopped else "Under way."
        page = html.document("A specialist of your books", lead, [], self._body(), refresh=0 if stopped else _REFRESH)
        write_text(self._work / "report.html", page)

    def _body(self) -> Iterator[str]:
        passed = time.monotonic() - self._began
        time_left = "" if self._minutes is None else f", {spoken(60 * self._minutes - passed)} left of its budget"
        calls = f"{self._count():,} calls of language models" + (f" of at most {self._calls:,}" if self._calls else "")
        yield html.paragraph(f"This run: {spoken(passed)}{time_left}; {calls}.")
        yield html.paragraph(
            f"Written at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, and again every few seconds while it runs: where "
            "that is long ago, it was stopped, and the same command goes on.",
            "soft",
        )
        rows: list[html.PlainRow] = [
            (
                step.name,
                [html.Cell(_KNOWN[step.state], word=True), spoken(step.seconds), html.Cell(step.detail, word=True)],
            )
            for step in self._in_order()
        ]
        yield html.table("The steps", ["step", "state", ("time", "over all runs"), "how far"], rows)

    def _in_order(self) -> Iterator[Step]:
        stages = [step for name, step in self._steps.items() if name not in STEPS]
        for name in STEPS:
            yield self._steps[name]
            yield from stages if name == "training" else ()


def spoken(seconds: float) -> str:
    """A time for people.

    >>> spoken(4), spoken(250), spoken(9000), spoken(-3)
    ('4 s', '4 min 10 s', '2 h 30 min', '0 s')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def counted(what: str, counts: Mapping[str, int]) -> str:
    """A line on what a step has made, and what it left out.

    >>> counted("questions", {"passages": 2689, "unanswered": 41, "not_drawn": 0})
    'questions: 2,689 passages, 41 unanswered'
    """
    return f"{what}: {in_words(counts)}"
