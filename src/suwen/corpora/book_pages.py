"""The pages of a book file, read in processes with limits; a page that fails is told and left out.

Formats are known to those processes (``page_child``); what is made of pages is in ``books``.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.files import BadRecord
from suwen.corpora.page_processes import Limits, PageProcesses
from suwen.text.vision_text import lines_of

__all__ = ["Limits", "OnPage", "PageProcesses", "PageProgress", "PictureReader", "page_processes", "read_pages"]

#: Called with the number of the page, or of an EPUB's chapter, 0 for the whole file, and what is wrong with it.
OnPage = Callable[[int, str], None]
#: Called with the page that is done and the number of pages, 0 where it is not known.
PageProgress = Callable[[int, int], None]
#: Pages that wait for a picture before them, at the most.
_HELD = 32


class Unread(NamedTuple):
    """Why a picture was not read."""

    why: str


class PictureReader(NamedTuple):
    """Somebody else who reads pictures of pages, in place of the models in the process that renders them.

    Attributes:
        read: Gives the text of each PNG picture, or why there is none.
        at_once: How many pictures it takes at a time: so many are in memory.
    """

    read: Callable[[Sequence[bytes]], Sequence[str | Unread]]
    at_once: int = 4


def page_processes(
    limits: Limits = Limits(),  # noqa: B008 - immutable
    *,
    ocr: bool = True,
    pictures: PictureReader | None = None,
) -> PageProcesses:
    """What reads one file after another for :func:`read_pages`; who makes it ends it."""
    return PageProcesses(limits, "send" if ocr and pictures else "read" if ocr else "refuse")


def read_pages(
    path: Path,
    kind: str,
    on_page: OnPage,
    *,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    ocr: bool = True,
    pictures: PictureReader | None = None,
    progress: PageProgress | None = None,
    processes: PageProcesses | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what is said of the file, then of each page that could be read.

    Args:
        path: The file.
        kind: What it is.
        on_page: Called with a page that is left out, and why.
        limits: What reading it may take.
        ocr: Whether scans are read.
        pictures: Who reads them, if not the models here.
        progress: Called after each page.
        processes: What read the files before, made with the same limits and readers; new ones for this file alone where
            there are none.

    Raises:
        BadRecord: The file as a whole cannot be read.
    """
    reading = processes or page_processes(limits, ocr=ocr, pictures=pictures)
    try:
        about = reading.open(path, kind)
        _check(path, about)
        yield about
        if not about["pages"]:
            for record in reading.rest():
                _check(path, record)
                if "error" in record:
                    on_page(record["page"], record["error"])
                else:
                    yield record
            return
        records = _pages(reading, about["pages"], on_page, progress)
        yield from records if pictures is None else _seen(records, pictures, on_page)
    finally:
        reading.leave()
        if processes is None:
            reading.close()


def _check(path: Path, record: dict[str, Any]) -> None:
    if "failed" in record:
        raise BadRecord(record["failed"])
    if "died" in record:
        raise BadRecord(f"{path}: it cannot be read: {record['died']}")


def _pages(
    processes: PageProcesses, total: int, on_page: OnPage, progress: PageProgress | None
) -> Iterator[dict[str, Any]]:
    """The pages that could be read; no more are tried of a file that :class:`_Patience` gives up."""
    patience = _Patience(processes.limits)
    for page, record in processes.pages(total):
        why = record.get("died") or record.get("failed") or record.get("error") or record.get("unread")
        if why is not None:
            on_page(page, why)
        if "lines" in record or "picture" in record:
            yield record
        if progress is not None:
            progress(page, total)
        if (end := patience.after(record)) and page < total:
            on_page(0, f"pages {page + 1} to {total} are left out: {end}")
            return


class _Patience:
    """What a file has cost so far, and when that is enough."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._died = self._failed = 0
        self._left = limits.whole

    def after(self, record: dict[str, Any]) -> str:
        """Why the file is given up after this page; empty while it is not."""
        limits = self._limits
        died, failed = "died" in record, any(name in record for name in ("died", "failed", "error"))
        self._died = self._died + 1 if died else 0
        self._failed = self._failed + 1 if failed else 0
        scanned = record.get("scan") and not record.get("kept")
        self._left += (limits.scan if scanned else limits.page) - record.get("seconds", limits.seconds if died else 0.0)
        if self._died >= limits.failures or self._failed >= limits.unreadable:
            return f"{self._failed} pages in a row could not be read"
        if self._left < 0:
            return "the pages before them took far longer than pages do; split the file to have them read"
        return ""


def _seen(records: Iterator[dict[str, Any]], pictures: PictureReader, on_page: OnPage) -> Iterator[dict[str, Any]]:
    """The same pages in their order, those that came as pictures as lines of text."""
    held: list[dict[str, Any]] = []
    for record in records:
        held.append(record)
        full = sum("picture" in one for one in held) >= pictures.at_once or len(held) >= _HELD
        if full or "picture" not in held[0]:
            yield from _read(held, pictures, on_page)
            held = []
    yield from _read(held, pictures, on_page)


def _read(held: list[dict[str, Any]], pictures: PictureReader, on_page: OnPage) -> Iterator[dict[str, Any]]:
    shown = [b64decode(record["picture"]) for record in held if "picture" in record]
    said = iter(pictures.read(shown) if shown else ())
    for record in held:
        if "picture" not in record:
            yield record
            continue
        text = next(said)
        if isinstance(text, Unread):
            on_page(record["page"], text.why)
        else:
            height, lines = lines_of(text)
            yield {"page": record["page"], "height": height, "lines": lines, "scan": True}
