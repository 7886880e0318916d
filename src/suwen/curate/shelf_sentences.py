"""The sentences of a shelf of books, each with its book, page and place, repeated ones once. Triplets: ``triplets``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.book_pages import PictureReader, page_processes, read_pages
from suwen.corpora.books import BOOKS, kind_of, page_lines
from suwen.corpora.files import CorpusError
from suwen.corpora.readers import read_documents
from suwen.corpora.text_documents import files_under
from suwen.curate.leakage import comparable
from suwen.text.book_sentences import sentences_of
from suwen.text.page_blocks import Block, blocks_of, marked_blocks

#: Called with a file, the number of a page that is left out (0: the file) and why.
OnPage = Callable[[Path, int, str], None]
#: Called with a file, the page of it that is done and how many there are (0: not known).
OnRead = Callable[[Path, int, int], None]
_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)[ \t#]*$")
#: Of a file without layout, lines that end as a sentence does are text.
_ENDED = re.compile(r"[.!?。！？；;…][\"'”’」』）)\]】]*$")


class ShelfSentence(NamedTuple):
    """A sentence: the book it is of, the page it begins on (0: the format has none), its place in the book from 0."""

    book: str
    page: int
    position: int
    text: str


def read_shelf(
    shelf: Path,
    on_page: OnPage,
    *,
    ocr: bool = True,
    pictures: PictureReader | None = None,
    on_read: OnRead | None = None,
) -> Iterator[ShelfSentence]:
    """The sentences of every book of a folder (or of one file), in order; a file that fails is told and left out.

    Args:
        shelf: Books (PDF, Word, EPUB, HTML, CNXML), texts, or tables of documents.
        on_page: Told what is left out.
        ocr: Whether scanned pages are read.
        pictures: Who reads them, if not the models of ``suwen[ocr]``.
        on_read: Told how far a file is read.

    Raises:
        CorpusError: There is nothing to read.
    """
    shelf = Path(shelf)
    if not shelf.exists():
        raise CorpusError(f"{shelf}: there is no such file or folder; check the path")
    every = [shelf] if shelf.is_file() else list(files_under(shelf))
    files = [path for path in every if kind_of(path) not in (None, "json")]
    if not files:
        raise CorpusError(f"{shelf}: no books here; put PDF, .docx, .epub, .html, .txt, .md or .jsonl files into it")
    root = shelf if shelf.is_dir() else shelf.parent
    with closing(page_processes(ocr=ocr, pictures=pictures)) as processes:
        for path in files:
            name, tell = path.relative_to(root).as_posix(), partial(_tell, on_page, path)
            how: dict[str, Any] = {"ocr": ocr, "pictures": pictures, "processes": processes}
            how["progress"] = partial(on_read, path) if on_read else None
            try:
                kind = kind_of(path) or ""
                if kind in BOOKS:
                    yield from _book(path, kind, name, tell, **how)
                else:
                    yield from _documents(path, name, tell, on_read)
            except CorpusError as problem:
                tell(0, str(problem))


def _tell(on_page: OnPage, path: Path, page: int, why: str) -> None:
    """Tell what is left out; who hears it names the file."""
    on_page(path, page, why.removeprefix(f"{path}:").lstrip())


def _book(path: Path, kind: str, name: str, tell: Callable[[int, str], None], **how: Any) -> Iterator[ShelfSentence]:
    records = read_pages(path, kind, tell, **how)
    next(records)
    if kind == "pdf":
        blocks = blocks_of(page_lines(record) for record in records)
    else:
        blocks = (block for record in records for block in _ended(_marked(record, kind)))
    for one in sentences_of(blocks):
        yield ShelfSentence(name, one.page, one.position, one.text)


def _marked(record: dict[str, Any], kind: str) -> Iterator[Block]:
    """What a child said of a chapter or a file."""
    page = int(record["page"]) if kind == "epub" else 0
    return (Block(page, of, text) for of, text in record["blocks"])


def _documents(
    path: Path, name: str, tell: Callable[[int, str], None], on_read: OnRead | None
) -> Iterator[ShelfSentence]:
    """Of texts and tables, the lines that are sentences; a table's documents are books where they name one."""
    seen: Counter[str] = Counter()
    for document in read_documents(path, on_skip=partial(tell, 0), on_read=on_read):
        book = str(document.metadata.get("book", name))
        page = document.metadata.get("page", document.metadata.get("chapter", 0))
        for one in sentences_of(_ended(map(_line, document.text.splitlines()))):
            yield ShelfSentence(book, page if isinstance(page, int) else 0, seen[book], one.text)
            seen[book] += 1


def _line(line: str) -> Block:
    heading = _HEADING.match(line)
    return Block(0, "heading", heading[1]) if heading else Block(0, "text", line)


def _ended(blocks: Iterable[Block]) -> Iterator[Block]:
    return (block for block in marked_blocks(blocks) if _ENDED.search(block.text))


def once_each(sentences: Iterable[ShelfSentence], counts: Counter[str]) -> list[ShelfSentence]:
    """Every sentence once, by its letters and digits: its first place stays, the others are counted."""
    kept: dict[str, ShelfSentence] = {}
    for one in sentences:
        first = kept.setdefault(comparable(one.text), one)
        if first is one:
            counts["sentences"] += 1
        else:
            counts["repeated_in_the_book" if first.book == one.book else "repeated_in_another_book"] += 1
    return list(kept.values())
