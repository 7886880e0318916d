"""The process that reads strangers' files, within limits of memory: a line of JSON for each page it is asked for.

The names of files and the numbers of pages come on standard input. Started by ``page_processes`` as ``python -m
suwen.corpora.page_child``; a file that takes this process down takes nothing else with it. What a page means is decided
by the parent.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import resource
import sys
from collections.abc import Iterator
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from suwen.corpora.files import CorpusError
from suwen.corpora.marked_up import read_parts
from suwen.corpora.page_cache import PageCache
from suwen.corpora.pdf_pages import PdfPageContent, open_pdf, read_pdf_page, title_of
from suwen.corpora.scanned_pages import scan_reader
from suwen.text.page_layout import Line, Word, reading_order

#: Of the memory it may take: one that holds more, as of the models for scans, ends before the next file.
_HELD = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Read the files that are named on standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--scans", choices=["read", "refuse", "send"], default="read")
    asked = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (asked.memory, asked.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _allow(asked.seconds)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)  # what libraries print is no page
    reader = _Reader(asked)
    for line in sys.stdin:
        _allow(asked.seconds)
        question = json.loads(line)
        if isinstance(question, dict) and reader.path and _held() > _HELD * asked.memory:
            break  # who asked starts another
        try:
            for record in reader.answers(question):
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
                out.flush()
        except CorpusError as problem:
            out.write(json.dumps({"failed": str(problem)}, ensure_ascii=False) + "\n")
        except OSError as problem:
            why = f"it cannot be read ({problem.strerror or problem}); check that it is there, and its rights"
            out.write(json.dumps({"failed": f"{reader.path}: {why}"}, ensure_ascii=False) + "\n")
        except MemoryError:
            out.write(json.dumps({"failed": f"{reader.path}: {reader.too_much}"}, ensure_ascii=False) + "\n")
        out.flush()
    return 0


class _Reader:
    """The file that was named last, and what is said of it."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.path: Path | None = None
        self.too_much = f"it needs more than {asked.memory // 2**20} MiB of memory"
        self._asked = asked
        self._document: Any = None
        self._cache: PageCache | None = None

    def answers(self, question: int | dict[str, str]) -> Iterator[dict[str, Any]]:
        """What is said to the number of a page, or to a file to go on to."""
        if isinstance(question, int):
            yield self._page(question)
            return
        if self._document is not None:
            self._document.close()
            self._document = None
        self.path = Path(question["path"])
        if question["kind"] == "pdf":
            self._document = open_pdf(self.path)
            yield {"title": title_of(self._document), "pages": len(self._document)}
            self._cache = PageCache(self._asked.cache, self.path) if self._asked.cache else None
            return
        yield {"title": "", "pages": 0}
        for part in read_parts(self.path, question["kind"]):
            about = {"error": part.bad} if part.bad else {"title": part.title, "book": part.book, "blocks": part.blocks}
            yield {"page": part.number, **about}
        yield {"end": True}

    def _page(self, number: int) -> dict[str, Any]:
        before = _used()
        try:
            record = _pdf_page(self._document, number, self._cache, self._asked.scans)
        except MemoryError:
            record = {"error": self.too_much}
        except Exception as problem:  # pdfium's, the recogniser's: one page's trouble is its own
            said = str(problem).rstrip(".") or type(problem).__name__
            record = {"error": f"it cannot be read ({said}); the file may be damaged here: get it again"}
        return {"page": number, "seconds": _used() - before, **record}


def _allow(seconds: float) -> None:
    """So much time of a core from now on, then the kernel ends this process: a busy machine costs no page."""
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(_used() + seconds), resource.RLIM_INFINITY))


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _held() -> int:
    """The bytes of address space that this process has; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _pdf_page(document: Any, number: int, cache: PageCache | None, scans: str) -> dict[str, Any]:
    if cache is not None and scans != "send" and (known := cache.get(number)) is not None:
        return _scan(known) | {"kept": True}
    content = read_pdf_page(document, number)
    own: dict[str, Any] = {"height": content.height, "lines": _lines(content)}
    if content.picture is None:
        return own
    if scans == "send":
        return {"picture": _as_png(content.picture), "scan": True}
    try:
        seen = _seen(content.picture, scans)
    except CorpusError as problem:
        # The stamp on a scan is kept, but nobody shall take it for the page.
        return {**(own if content.stamped else {}), "unread": str(problem)}
    if content.stamped and _length(seen["words"]) < _length(content.words):
        return own  # words on a decorated page, in a script that the models do not know
    if cache is not None:
        cache.put(number, seen)
    return _scan(seen)


def _lines(content: PdfPageContent) -> list[Line]:
    """A page's lines; those that run another way come last, as rows: a sentence goes on over them to the next page."""
    lines = reading_order(content.words)
    for words in content.across:
        columns = lines[-1].column + 1 if lines else 0
        lines += [line._replace(column=line.column + columns, is_row=True) for line in reading_order(words)]
    return lines


#: The models are loaded for the first scan, and stay.
_scan_reader = cache(scan_reader)


def _length(words: list[Word]) -> int:
    return sum(len(word.text) for word in words)


def _seen(picture: Any, scans: str) -> dict[str, Any]:
    if scans == "refuse":
        raise CorpusError("this page is a scan, and scans are not read here (--no-ocr)")
    words, height = _scan_reader()(picture)
    return {"height": height, "words": words}


def _scan(seen: dict[str, Any]) -> dict[str, Any]:
    """A page read off a picture. Its words are what is kept: better rules for their order need no new reading."""
    lines = reading_order([Word(*word) for word in seen["words"]])
    return {"height": seen["height"], "lines": lines, "scan": True}


def _as_png(picture: Any) -> str:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode("ascii")


if __name__ == "__main__":
    sys.exit(main())
