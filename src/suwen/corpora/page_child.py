"""The process that reads a stranger's file, within limits of memory: a line of JSON for each page it is asked for.

The numbers of pages come on standard input. Started by ``page_processes`` as ``python -m suwen.corpora.page_child``; a
file that takes this process down takes nothing else with it. What a page means is decided by the parent.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

from suwen.corpora.files import CorpusError
from suwen.corpora.marked_up import read_parts
from suwen.corpora.page_cache import PageCache
from suwen.corpora.pdf_pages import PdfPageContent, open_pdf, read_pdf_page, title_of
from suwen.corpora.scanned_pages import scan_reader
from suwen.text.page_layout import Line, Word, reading_order


def main(arguments: list[str] | None = None) -> int:
    """Read the file named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("kind")
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
    try:
        for record in _records(asked):
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
            out.flush()
    except CorpusError as problem:
        out.write(json.dumps({"failed": str(problem)}, ensure_ascii=False) + "\n")
    except MemoryError:
        out.write(
            json.dumps({"failed": f"{asked.path}: it needs more than {asked.memory // 2**20} MiB of memory"}) + "\n"
        )
    out.flush()
    return 0


def _records(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if asked.kind == "pdf":
        yield from _pdf(asked)
        return
    yield {"title": "", "pages": 0}
    for part in read_parts(asked.path, asked.kind):
        about = {"error": part.bad} if part.bad else {"title": part.title, "book": part.book, "blocks": part.blocks}
        yield {"page": part.number, **about}


def _pdf(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    document = open_pdf(asked.path)
    yield {"title": title_of(document), "pages": len(document)}
    cache = PageCache(asked.cache, asked.path) if asked.cache else None
    reader: list[Callable[..., Any]] = []
    for line in sys.stdin:
        number, before = int(line), _used()
        _allow(asked.seconds)
        try:
            record = _pdf_page(document, number, cache, reader, asked.scans)
        except MemoryError:
            record = {"error": f"it needs more than {asked.memory // 2**20} MiB of memory"}
        except Exception as problem:  # pdfium's, the recogniser's: one page's trouble is its own
            record = {"error": f"{type(problem).__name__}: {problem}"}
        yield {"page": number, "seconds": _used() - before, **record}


def _allow(seconds: float) -> None:
    """So much time of a core from now on, then the kernel ends this process: a busy machine costs no page."""
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(_used() + seconds), resource.RLIM_INFINITY))


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _pdf_page(
    document: Any, number: int, cache: PageCache | None, reader: list[Callable[..., Any]], scans: str
) -> dict[str, Any]:
    if cache is not None and scans != "send" and (known := cache.get(number)) is not None:
        return _scan(known) | {"kept": True}
    content = read_pdf_page(document, number)
    own: dict[str, Any] = {"height": content.height, "lines": _lines(content)}
    if content.picture is None:
        return own
    if scans == "send":
        return {"picture": _as_png(content.picture), "scan": True}
    try:
        seen = _seen(content.picture, reader, scans)
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


def _length(words: list[Word]) -> int:
    return sum(len(word.text) for word in words)


def _seen(picture: Any, reader: list[Callable[..., Any]], scans: str) -> dict[str, Any]:
    if scans == "refuse":
        raise CorpusError("this page is a scan, and scans are not read here (--no-ocr)")
    if not reader:
        reader.append(scan_reader())
    words, height = reader[0](picture)
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
