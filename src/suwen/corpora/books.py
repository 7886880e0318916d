"""Book files as documents: one for each page of a PDF, each chapter of an EPUB, each Word, HTML or CNXML file.

A page's id is ``PATH#page=12``, which is also how a browser opens a PDF there; its metadata has ``book`` (the title
that the file gives itself, or its path without the ending), ``path`` and ``page``. A paragraph that runs over a page
belongs to the page it begins on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from suwen.corpora.book_pages import Limits, OnPage, PageProcesses, PageProgress, PictureReader, read_pages
from suwen.corpora.files import BadRecord
from suwen.corpora.records import Document, Scalar
from suwen.corpora.tabular import format_of
from suwen.text.clean import clean
from suwen.text.page_blocks import Block, blocks_of
from suwen.text.page_furniture import PageLines
from suwen.text.page_layout import Line

_ENDINGS = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".docm": "docx",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".epub": "epub",
    ".cnxml": "cnxml",
}
#: Formats whose files have no records but pages or chapters.
BOOKS = ("pdf", "docx", "html", "epub", "cnxml")
#: A file that is one document is cut where it has more characters: the longest text that servers take.
LONGEST = 2_000_000


def kind_of(path: Path) -> str | None:
    """The format that a file's name stands for, a book's or one of ``tabular``; None when it says nothing."""
    return _ENDINGS.get(path.suffix.lower()) or format_of(path)


def id_of(path: Path, root: Path) -> str:
    """What the documents of a file are called after: its path from a folder."""
    # A name that is not UTF-8 could be neither stored nor shown.
    return os.fsencode(path.relative_to(root).as_posix()).decode("utf-8", errors="replace")


def readable_books() -> list[str]:
    """The formats of books that can be read here: PDF needs an extra."""
    return [kind for kind in BOOKS if kind != "pdf" or find_spec("pypdfium2")]


def read_book(
    path: Path,
    root: Path,
    kind: str,
    on_page: OnPage | None = None,
    *,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    ocr: bool = True,
    pictures: PictureReader | None = None,
    name: str = "",
    progress: PageProgress | None = None,
    longest: int = LONGEST,
    processes: PageProcesses | None = None,
) -> Iterator[Document]:
    """The documents of a book, streamed: some pages are held, never all.

    Args:
        path: The file.
        root: Ids are paths from here.
        kind: What it is: one of :data:`BOOKS`, or ``text``, where text of strangers is read within limits too.
        on_page: Called with the number of a page that is left out, and why; None raises instead.
        limits: What reading it may take.
        ocr: Whether scans are read.
        pictures: Who reads them, if not the models here.
        name: What its documents are called after; its path from ``root`` unless given.
        progress: Called after each page.
        longest: The most characters of a document of a file without pages or chapters; the rest are further documents,
            ``PATH#part=2``.
        processes: What read the files before, as :func:`~suwen.corpora.book_pages.read_pages` takes it.

    Raises:
        BadRecord: The file cannot be read, or holds no text.
    """
    name = name or id_of(path, root)
    tell = on_page or partial(_raise, path)
    how: dict[str, Any] = {"limits": limits, "ocr": ocr, "pictures": pictures, "progress": progress}
    records = read_pages(path, kind, tell, processes=processes, **how)
    about = next(records)
    stem = clean(Path(name).stem)
    # Without a title it is called after its place: two folders may each have an a.pdf.
    unnamed = clean(PurePosixPath(name).with_suffix("").as_posix())
    found = False
    if kind == "pdf":
        title = clean(about["title"])
        pages = (page_lines(record) for record in records)
        for number, blocks in groupby(blocks_of(pages), key=lambda block: block.page):
            found = True
            place: dict[str, Scalar] = {"path": name, "book": title or unnamed, "page": number}
            yield Document(f"{name}#page={number}", page_text(blocks), title or stem, place)
    else:
        for record in records:
            if text := "\n\n".join(text for _, text in record["blocks"]):
                found = True
                place = {"path": name}
                if kind in BOOKS:
                    place["book"] = clean(record["book"]) or unnamed
                # As in a folder of texts: what looks like a heading in a .txt is a line like others.
                plain = kind == "text" and name.lower().endswith(".txt")
                document = _part(place, record, text, kind, (clean(record["title"]) if not plain else "") or stem)
                # No chapter is that long: what says it is one is for the server to refuse.
                yield from [document] if kind == "epub" else _in_parts(document, longest)
    if not found:
        raise BadRecord(f"{path}: no text was found in it: {_nothing(kind, ocr, pictures)}")


def _nothing(kind: str, ocr: bool, pictures: PictureReader | None) -> str:
    """What a book without text may be."""
    if kind != "pdf":
        return "it is empty, or holds pictures alone; remove it"
    if not ocr:
        return "its pages are empty, or scans, which are not read here (--no-ocr)"
    if pictures is None and not find_spec("rapidocr"):
        return "where it is scanned, pip install 'suwen[ocr]'"
    return "its pages are empty, or pictures without words; remove it, or skip bad records"


def place_of(path: Path, number: int) -> str:
    """What to put before what is wrong with a page or a chapter of a book; nothing where that is the whole file."""
    return f"{'chapter' if kind_of(path) == 'epub' else 'page'} {number}: " if number else ""


def page_text(blocks: Iterator[Block]) -> str:
    """A page's text for searching: everything but its furniture, a blank line between blocks."""
    return "\n\n".join(block.text for block in blocks)


def _part(place: dict[str, Scalar], record: dict[str, Any], text: str, kind: str, title: str) -> Document:
    if kind == "epub":
        number = int(record["page"])
        return Document(f"{place['path']}#chapter={number}", text, title, place | {"chapter": number})
    return Document(str(place["path"]), text, title, place)


def _in_parts(document: Document, longest: int) -> Iterator[Document]:
    """A document cut before the last paragraph, or else the last line, that fits no more."""
    rest, part = document.text, 0
    while len(rest) > longest:
        part += 1
        end = max(rest.rfind("\n\n", 1, longest), 0) or max(rest.rfind("\n", 1, longest), 0) or longest
        yield _of_part(document, part, rest[:end])
        rest = rest[end:].lstrip()
    yield _of_part(document, part + 1, rest) if part else document


def _of_part(document: Document, part: int, text: str) -> Document:
    # The first keeps the name: a file that grows does not change what it was called.
    id_ = f"{document.id}#part={part}" if part > 1 else document.id
    return Document(id_, text, document.title, {**document.metadata, "part": part})


def page_lines(record: dict[str, object]) -> PageLines:
    """What a child said of a page."""
    lines = [Line(*line) for line in record["lines"]]  # type: ignore[attr-defined]
    return PageLines(int(record["page"]), float(record["height"]), lines, bool(record.get("scan")))  # type: ignore[call-overload, arg-type]


def _raise(path: Path, page: int, why: str) -> None:
    raise BadRecord(f"{path}: {place_of(path, page)}{why}")
