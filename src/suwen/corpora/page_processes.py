"""Processes that read strangers' files within limits, asked for one page after another. Knows no format."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from suwen.corpora.page_cache import cache_folder


class Limits(NamedTuple):
    """What reading a file may take.

    Attributes:
        memory: Bytes of address space of a process; models for scans take about 1.5 GiB of it.
        seconds: Of a core for one page; a scan takes up to a minute on a slow one. On the clock ten times as long.
        failures: Pages in a row that may take the process down before the file is given up.
        processes: The most that read scans side by side; 0 for one a core, four at the most. Text takes one.
        unreadable: Pages in a row that may fail in any way: a few bytes can claim to be a million pages.
        whole: Seconds of a core for the file before it is given up, and besides them for each page that was read:
        page: of text, which takes milliseconds,
        scan: and read off its picture.
    """

    memory: int = 4 * 2**30
    seconds: float = 300.0
    failures: int = 5
    processes: int = 0
    unreadable: int = 50
    whole: float = 900.0
    page: float = 3.0
    scan: float = 90.0

    @property
    def side_by_side(self) -> int:
        """How many processes may read scans."""
        return self.processes or max(1, min(4, os.cpu_count() or 1))


#: A page that waits for something else than the core is given up after so many times its seconds.
_ON_THE_CLOCK = 10
#: Pages that one process is asked for at a time: the next is there when it has done one.
_AHEAD = 2


class PageProcess:
    """One process that reads one file after another; it answers in the order in which it is asked."""

    def __init__(self, limits: Limits, scans: str) -> None:
        command = [sys.executable, "-m", "suwen.corpora.page_child", "--scans", scans]
        command += ["--memory", str(limits.memory), "--seconds", str(limits.seconds), "--cache", str(cache_folder())]
        alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | alone,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asking = self._process.stdin
        self._lines = _lines(self._process.stdout, _ON_THE_CLOCK * limits.seconds)
        self._too_long = f"it took longer than {limits.seconds:g} seconds"
        self.waiting, self.heard = 0, True

    def open(self, path: Path, kind: str) -> None:
        """Have it go on to another file: it says what that is, and all that is in one without pages."""
        self.heard = False
        self._ask({"path": str(path), "kind": kind})

    def ask(self, page: int) -> None:
        """Ask for a page of the file that is open; one that has ended says so when it is to answer."""
        self.waiting += 1
        self._ask(page)

    def _ask(self, what: object) -> None:
        try:
            self._asking.write(json.dumps(what).encode() + b"\n")
            self._asking.flush()
        except OSError:
            return

    def answer(self) -> dict[str, Any] | None:
        """What it says next; ``died`` where it ended badly, None at a good end."""
        for line in self._lines:
            self.heard = True
            return {"died": self._too_long} if line is None else json.loads(line)
        if self._process.wait() == -signal.SIGXCPU:
            return {"died": self._too_long}
        if code := self._process.returncode:
            return {"died": f"reading it ended badly (exit {code}): damaged, or over the memory limit"}
        return None

    def end(self) -> None:
        """End it, whatever it is at."""
        self._process.kill()
        for stream in (self._process.stdout, self._process.stdin):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                continue  # what was asked of one that is gone
        self._process.wait()


class PageProcesses:
    """One file's pages after another's, each in their order, by one process, or by several once pages are scans.

    A process goes on to the next file where it has said all of the last: starting one takes longer than most files.
    """

    def __init__(self, limits: Limits, scans: str) -> None:
        self.limits = limits
        self._scans = scans
        self._file = Path(), ""
        self._all: list[PageProcess] = []
        self._asked: deque[tuple[int, PageProcess]] = deque()
        self._at_rest = True

    @property
    def count(self) -> int:
        """How many processes there are by now."""
        return len(self._all)

    def open(self, path: Path, kind: str) -> dict[str, Any]:
        """Go on to a file; gives what is said of it first."""
        self._file = path, kind
        self._at_rest = False
        about = None
        if self._all:
            self._all[0].open(path, kind)
            about = self._all[0].answer()
        if about is None or "died" in about:
            # It had read enough, or what was before this file took it down: a file is judged by what it does alone.
            self._end(0)
            self._all = [self._new()]
            about = self._all[0].answer() or {"died": "it said nothing"}
        self._at_rest = "failed" in about or bool(about.get("pages"))
        return about

    def rest(self) -> Iterator[dict[str, Any]]:
        """What a file without pages holds."""
        while not self._at_rest:
            record = self._all[0].answer() or {"died": "reading it ended early"}
            self._at_rest = "end" in record or "failed" in record
            if "end" not in record:
                yield record
            if "died" in record:
                return

    def pages(self, total: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each page's number and what is said of it; ``died`` where it took its process down."""
        last = 0
        while last < total or self._asked:
            while last < total and len(self._asked) < _AHEAD * len(self._all):
                last += 1
                self._ask(last)
            page, process = self._asked.popleft()
            process.waiting -= 1
            record = process.answer()
            while record is not None and "pages" in record:
                record = process.answer()  # what a new one says of the file first
            if record is None or "died" in record or "failed" in record:
                self._replace(process)
            yield page, record or {"died": "reading it ended early"}
            if record is not None and record.get("scan") and not record.get("kept"):
                self._grow(total - last)

    def leave(self) -> None:
        """Leave the file: one process stays for the next, where nothing of this one is left to be said."""
        stays = self._at_rest and not self._asked and all(one.heard for one in self._all[:1])
        self._end(1 if stays else 0)
        self._asked.clear()

    def close(self) -> None:
        """End all of them."""
        self._end(0)

    def _end(self, kept: int) -> None:
        for process in self._all[kept:]:
            process.end()
        del self._all[kept:]

    def _new(self) -> PageProcess:
        process = PageProcess(self.limits, self._scans)
        process.open(*self._file)
        return process

    def _ask(self, page: int) -> None:
        process = min(self._all, key=lambda one: one.waiting)
        process.ask(page)
        self._asked.append((page, process))

    def _grow(self, left: int) -> None:
        for _ in range(min(left, self.limits.side_by_side) - len(self._all)):
            self._all.append(self._new())

    def _replace(self, old: PageProcess) -> None:
        """Start another in its place, which is asked for what the old one still owed."""
        old.end()
        new = self._new()
        self._all[self._all.index(old)] = new
        for place, (page, process) in enumerate(self._asked):
            if process is old:
                new.ask(page)
                self._asked[place] = (page, new)


def _lines(stream: IO[bytes], seconds: float) -> Iterator[bytes | None]:
    """The whole lines of a pipe; None, and the end, where nothing comes for so long."""
    waiting: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            until = time.monotonic() + seconds
            while not selector.select(max(0.0, until - time.monotonic())):
                if time.monotonic() >= until:
                    yield None
                    return
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                return
            first, *more = part.split(b"\n")
            waiting.append(first)
            for piece in more:
                yield b"".join(waiting)
                waiting = [piece]
