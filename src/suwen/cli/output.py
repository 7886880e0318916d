"""How the commands speak: tables and progress for people, one JSON document for programs, exit codes for scripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Speaker:
    """Where lines go. Its console is made when something is said: wrong arguments need none, and rich loads slowly."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> Console:
        """Rich's own, for bars."""
        from rich.console import Console

        # Nor emoji: what is shown is the user's, and `st:pick: 3` has no pickaxe in it.
        return Console(stderr=self._stderr, highlight=False, markup=False, emoji=False)

    @property
    def is_terminal(self) -> bool:
        """Whether somebody is watching."""
        return self.console.is_terminal

    def write(self, line: str) -> None:
        """A plain line: by the console where there is one, under whose bars it would tear, else without rich."""
        if "console" in vars(self):
            self.console.print(line, soft_wrap=True)
        else:
            stream = sys.stderr if self._stderr else sys.stdout
            stream.write(f"{line}\n")
            stream.flush()

    def print(self, *things: Any, **how: Any) -> None:
        """As rich prints."""
        self.console.print(*things, **how)


#: Results go to standard output, everything said on the way to standard error.
out, err = Speaker(stderr=False), Speaker(stderr=True)

#: Exit codes beside 0 (done) and 2 (wrong usage).
FAILED, NEGATIVE, UNFINISHED, INTERRUPTED = 1, 3, 4, 130
#: How long a log may stay silent while work goes on.
QUIET_SECONDS = 60.0
#: Columns of a terminal that has room for a bar beside what is said.
_WIDE = 110


def print_json(value: Any) -> None:
    """One JSON document on standard output, Chinese readable."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def show(about: Any, *lines: str, json: bool) -> None:
    """What a command came to: one JSON document for programs, or lines for people."""
    if json:
        print_json(about)
        return
    for line in lines:
        out.print(line, soft_wrap=True)


def print_table(title: str, headings: Sequence[str], *sections: Iterable[Sequence[str]], words: int = 1) -> None:
    """A table for people, its sections of rows parted by a line; the first ``words`` columns are words, not numbers.

    The very first names the row, and is not broken.
    """
    from rich.table import Table

    table = Table(title=title)
    for place, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=place == 0, justify="left" if place < words else "right")
    for rows in sections:
        for row in rows:
            table.add_row(*row)
        table.add_section()
    out.print(table)


def say(text: str) -> None:
    """A line for people, on standard error; square brackets in it are not markup."""
    err.write(text)


def plural(count: int, noun: str) -> str:
    """A number of things: ``1 passage``, ``2 passages``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def so_far(what: str, done: int, total: int) -> str:
    """How far a job is, where its end is known; 0 stands for an end that is not."""
    return f"{what}: {done:,}" + (f" of {total:,}" if total else "")


def now_and_then() -> Callable[[str], None]:
    """Says a line at most once a minute where no bar is shown: what is left of progress in a log."""
    last = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last
        if not err.is_terminal and time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            say(text)

    return tell


def about(seconds: float) -> str:
    """A time as people say it: ``40 seconds``, ``3 minutes``, ``2.5 hours``."""
    if seconds < 90:
        return plural(max(1, round(seconds)), "second")
    return plural(round(seconds / 60), "minute") if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def pace(what: str, documents: int, passages: int, total: int, seconds: float, unchanged: int = 0) -> str:
    """How far indexing is: how much is done, of how much where that is known, how fast it goes, and what is left.

    With an end it fits a terminal of 80 columns, up to a million documents: what is left stands last. Documents that
    were passed over unchanged before the first passage was encoded took no time, and foretell none.
    """
    if total:
        made = f"{passages / seconds:,.0f} passages a second" if seconds >= 1 else plural(passages, "passage")
        text = f"{what}: {documents:,} of {total:,}, {made}"
    else:
        rate = f" ({passages / seconds:,.0f} a second)" if seconds >= 1 else ""
        text = f"{what}: {plural(documents, 'document')}, {plural(passages, 'passage')} encoded{rate}"
    worked = documents - unchanged
    left = seconds * (total - documents) / worked if worked > 0 and total > documents else 0
    return text + (f", about {about(left)} left" if left and seconds >= 5 else "")


#: Shows beside the bar of the moment what it waits for.
_ASIDES: list[Callable[[str], None]] = []


def aside(text: str) -> None:
    """Say what goes on beneath the bar that is shown, where there is one."""
    if _ASIDES:
        _ASIDES[-1](text)


@contextmanager
def _beside(progress: Any, task: Any) -> Iterator[None]:
    _ASIDES.append(lambda text: progress.update(task, description=text))
    try:
        yield
    finally:
        _ASIDES.pop()


@contextmanager
def counting(what: str, total: int = 0) -> Iterator[Callable[[int, int], None]]:
    """Progress of indexing: documents done and passages encoded, the rate, and the time left where the end is known."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    beside = [*([BarColumn(bar_width=20)] if total else []), TimeElapsedColumn()]
    # Not in the way of the text, which would be cut off.
    columns = [SpinnerColumn(), TextColumn("{task.description}"), *(beside if err.console.width >= _WIDE else [])]
    with Progress(*columns, console=err.console, transient=True, disable=not err.is_terminal) as progress:
        task, tell, began = progress.add_task(what, total=total or None), now_and_then(), time.monotonic()
        unchanged = 0

        def report(documents: int, passages: int) -> None:
            nonlocal began, unchanged
            if not passages:
                # What an earlier run has done: its documents come first, and are read in no time.
                began, unchanged = time.monotonic(), documents
            text = pace(what, documents, passages, total, time.monotonic() - began, unchanged)
            progress.update(task, description=text, completed=documents)
            tell(text)

        with _beside(progress, task):
            yield report


@contextmanager
def measuring(what: str) -> Iterator[Callable[..., None]]:
    """Progress of a job with a known end, with the time left; its parts may be named as they come."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err.console, transient=True, disable=not err.is_terminal) as progress:
        task, tell = progress.add_task(what, total=None), now_and_then()

        def report(done: int, total: int, part: str = what) -> None:
            progress.update(task, description=part, completed=done, total=total or None)
            tell(so_far(part, done, total))

        with _beside(progress, task):
            yield report
