"""The pages of a book file, read one by one in a process with limits; a page that fails is told and left out.

Formats are known to that process (``page_child``); what is made of pages is in ``books``.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from suwen.corpora.files import BadRecord
from suwen.corpora.page_cache import cache_folder


class Limits(NamedTuple):
    """What reading a file may take.

    Attributes:
        memory: Bytes of address space of the process; models for scans take about 1.5 GiB of it.
        seconds: Of a core for one page; a scan takes up to a minute on a slow one. On the clock ten times as long.
        failures: Pages in a row that may take the process down before the file is given up.
    """

    memory: int = 4 * 2**30
    seconds: float = 300.0
    failures: int = 5


#: A page that waits for something else than the core is given up after so many times its seconds.
_ON_THE_CLOCK = 10
#: Called with the number of the page, 0 for the whole file, and what is wrong with it.
OnPage = Callable[[int, str], None]
#: Called with the pages done and their number, 0 where it is not known.
PageProgress = Callable[[int, int], None]


def read_pages(
    path: Path,
    kind: str,
    on_page: OnPage,
    *,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    ocr: bool = True,
    progress: PageProgress | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what the child says of the file, then of each page that could be read.

    Raises:
        BadRecord: The file as a whole cannot be read.
    """
    first, in_a_row, total = 1, 0, 0
    while True:
        ended = False
        for record in _child(path, kind, first, limits, ocr):
            if "failed" in record:
                raise BadRecord(record["failed"])
            if "died" in record:
                why = record["died"]
                break
            if "pages" in record:
                if first == 1:
                    total = record["pages"]
                    yield record
                ended = True
                continue
            in_a_row, first = 0, record["page"] + 1
            if "error" in record:
                on_page(record["page"], record["error"])
            else:
                yield record
            if progress is not None:
                progress(record["page"], total)
        else:
            return
        if not ended or not total:
            raise BadRecord(f"{path}: it cannot be read: {why}")
        on_page(first, why)
        first, in_a_row = first + 1, in_a_row + 1
        if in_a_row >= limits.failures and first <= total:
            on_page(0, f"pages {first} to {total} are left out: {in_a_row} pages in a row could not be read")
            return
        if first > total:
            return


def _child(path: Path, kind: str, first: int, limits: Limits, ocr: bool) -> Iterator[dict[str, Any]]:
    """What one process says; at its end ``died`` where it did not come to one by itself."""
    command = [sys.executable, "-m", "suwen.corpora.page_child", str(path), kind, "--first", str(first)]
    command += [
        "--memory",
        str(limits.memory),
        "--seconds",
        str(limits.seconds),
        "--cache",
        str(cache_folder()),
        *([] if ocr else ["--no-ocr"]),
    ]
    too_long = f"it took longer than {limits.seconds:g} seconds"
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | alone
    ) as process:
        try:
            assert process.stdout is not None
            for line in _lines(process.stdout, _ON_THE_CLOCK * limits.seconds):
                if line is None:
                    yield {"died": too_long}
                    return
                yield json.loads(line)
            if process.wait() == -signal.SIGXCPU:
                yield {"died": too_long}
            elif process.returncode != 0:
                yield {"died": f"reading it ended badly (exit {process.returncode}): damaged, or over the memory limit"}
        finally:
            process.kill()


def _lines(stream: IO[bytes], seconds: float) -> Iterator[bytes | None]:
    """The whole lines of a pipe; None, and the end, where nothing comes for so long."""
    waiting = b""
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
            *whole, waiting = (waiting + part).split(b"\n")
            yield from whole
