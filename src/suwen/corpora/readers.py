"""Reading documents from whatever a user has: one function, every format, one document in memory at a time.

Queries and judgements are read by ``collection``; duplicate ids are found by whoever stores the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.book_pages import PageProcesses, PictureReader, page_processes
from suwen.corpora.books import BOOKS, id_of, kind_of, place_of, read_book
from suwen.corpora.collection_layouts import find_layout
from suwen.corpora.files import BadRecord, CorpusError, encoding_of, not_there
from suwen.corpora.record_fields import Fields, to_document
from suwen.corpora.records import Document
from suwen.corpora.tabular import rows
from suwen.corpora.text_documents import files_under, read_text_document, text_files

#: What ``format=`` takes. ``collection`` is a BEIR, CMIRB or MTEB folder; ``text`` is plain text or Markdown.
FORMATS = ("collection", "jsonl", "json", "csv", "tsv", "parquet", "text", *BOOKS)

_Item = Document | BadRecord


def read_documents(
    source: Path | str,
    *,
    format: str | None = None,
    id_field: str | None = None,
    text_field: str | None = None,
    title_field: str | None = None,
    encoding: str | None = None,
    on_skip: Callable[[str], None] | None = None,
    on_left_out: Callable[[list[Path]], None] | None = None,
    on_encoding: Callable[[Path, str], None] | None = None,
    on_page: Callable[[Path, int, str], None] | None = None,
    ocr: bool = True,
    pictures: PictureReader | None = None,
    on_read: Callable[[Path, int, int], None] | None = None,
    on_unread: Callable[[str], None] | None = None,
) -> Iterator[Document]:
    """Read the documents of a file or folder, one at a time, with their texts cleaned.

    Args:
        source: a collection folder, a table or JSON file (``.gz`` too), a text file, a book (PDF, Word, HTML, EPUB,
            CNXML), or a folder of these.
        format: one of :data:`FORMATS`; found out from names when None.
        id_field: the field or column that holds the id; guessed when None.
        text_field: the one that holds the text; guessed when None.
        title_field: the one that holds the title; guessed when None.
        encoding: the encoding of text files; when None, found for each: UTF-8, UTF-16 with its mark, or GB18030.
        on_skip: called with the reason for each record that cannot be used, which is left out; None raises instead.
        on_left_out: called at once with the files of a folder that are no documents, where there are any.
        on_encoding: called with each file that was found not to be UTF-8, and the encoding it is read in.
        on_page: called with a book, the number of a page or chapter of it that is left out (0: several) and why; None
            has such a page count as a bad record.
        ocr: whether scanned pages are read (needs ``suwen[ocr]``).
        pictures: who reads them, if not the models of ``suwen[ocr]``.
        on_read: called with a book, the page of it that is done and how many there are (0: not known).
        on_unread: called with what the ids of a file begin with that was not read, or with the id of a page: they are
            not gone, as far as anybody knows. It is empty for a record of a table.

    Raises:
        CorpusError: at once when there is nothing to read, or while reading when a record or file is bad.
    """
    source = Path(source)
    if format is not None and format not in FORMATS:
        raise CorpusError(f"there is no format {format!r}; use one of {', '.join(FORMATS)}")
    if not source.exists():
        raise CorpusError(not_there(source))
    files, root = (_files_of(source, format), source) if source.is_dir() else ([source], source.parent)
    unread = on_unread or (lambda name: None)
    if left_out := _left_out(source, files, format):
        if on_left_out is not None:
            on_left_out(left_out)
        if format is None:  # what was not asked for is not missed
            for path in left_out:
                unread(id_of(path, root))
    planned = [(path, _file_format(path, format)) for path in files]
    fields = Fields(id_field, text_field, title_field)
    known = partial(_encoding, encoding, on_encoding)
    skip = on_page or (_page_as_record(on_skip) if on_skip else None)
    reading = _Reading(skip, ocr, pictures, on_read, unread, page_processes(ocr=ocr, pictures=pictures))
    items = (
        item
        for path, kind in planned
        for item in _noted(
            _book_items(path, root, kind, reading) if kind in BOOKS else _file_items(path, root, kind, fields, known),
            partial(unread, id_of(path, root) if kind == "text" or kind in BOOKS else ""),
        )
    )
    return _good(_closing(items, reading.processes), on_skip)


def read_records(source: Path | str) -> Iterator[tuple[Document, dict[str, Any]]]:
    """Read documents like :func:`read_documents`, each with the whole record it was made of, nested fields and all."""
    source = Path(source)
    files, root = (_files_of(source, None), source) if source.is_dir() else ([source], source.parent)
    with closing(page_processes()) as processes:
        for path in files:
            kind = _file_format(path, None)
            if kind == "text" or kind in BOOKS:
                text = (read_text_document(path, root, encoding_of(path)) for _ in "1")
                for document in text if kind == "text" else read_book(path, root, kind, processes=processes):
                    yield document, document.record()
                continue
            for place, record in rows(path, kind, encoding_of(path)):
                if isinstance(record, BadRecord):
                    raise record
                yield to_document(record, place), dict(record)


def _encoding(given: str | None, on_encoding: Callable[[Path, str], None] | None, path: Path) -> str:
    found = given or encoding_of(path)
    if given is None and found != "utf-8" and on_encoding is not None:
        on_encoding(path, found)
    return found


def _left_out(source: Path, taken: list[Path], format: str | None) -> list[Path]:
    """The files under a folder that are not read; the other files of a collection are parts of it."""
    if not source.is_dir() or (format in (None, "collection") and find_layout(source).corpus):
        return []
    known = set(taken)
    return [path for path in files_under(source) if path not in known]


def _files_of(folder: Path, format: str | None) -> list[Path]:
    corpus = find_layout(folder).corpus if format in (None, "collection") else []
    if corpus:
        return corpus
    if format == "collection":
        raise CorpusError(f"{folder}: no collection here; a BEIR folder has corpus.jsonl, queries.jsonl and qrels/")
    tables = [path for path in sorted(folder.iterdir()) if _is_table(path, format)] if format != "text" else []
    texts = text_files(folder) if format is None or format in ("text", *BOOKS) else []
    texts = [path for path in texts if format in (None, kind_of(path))]
    if tables and any(path.stem.lower() not in ("readme", "license", "licence") for path in texts):
        raise CorpusError(
            f"{folder}: holds both tables ({tables[0].name}) and texts ({texts[0].name}); "
            f"give --format {kind_of(tables[0])} or --format {kind_of(texts[0])} to say which are the documents"
        )
    if not tables and not texts:
        wanted = (
            f"{format} files"
            if format
            else "files this can read (.jsonl, .csv, .tsv, .parquet, .txt, .md, .docx, .html, .epub, .pdf)"
        )
        there = ", ".join(path.name for path in files_under(folder)[:3])
        found = f", only {there}" if there else ""
        raise CorpusError(f"{folder}: no {wanted} here{found}; check the path or give --format")
    return tables or texts


def _is_table(path: Path, format: str | None) -> bool:
    if path.name.startswith(".") or not path.is_file():
        return False
    named = kind_of(path)
    # A lone .json beside other files is mostly somebody's settings: it is read when asked for.
    return named == format if format else named in ("jsonl", "csv", "tsv", "parquet")


def _file_format(path: Path, format: str | None) -> str:
    known = format if format not in (None, "collection") else kind_of(path)
    if known is None:
        what = f"{path.suffix} files are not read" if path.suffix else "its name does not say what it is"
        raise CorpusError(
            f"{path}: {what}; save its text as .txt or .md, or, if it is one of these under another name, give "
            f"--format {', '.join(FORMATS[1:])}"
        )
    return known


def _file_items(path: Path, root: Path, kind: str, fields: Fields, known: Callable[[Path], str]) -> Iterator[_Item]:
    encoding = "utf-8" if kind == "parquet" else known(path)
    if kind == "text":
        yield _or_bad(partial(read_text_document, path, root, encoding))
        return
    empty = True
    for place, record in rows(path, kind, encoding):
        empty = False
        yield record if isinstance(record, BadRecord) else _or_bad(partial(to_document, record, place, fields))
    if empty:
        raise CorpusError(f"{path}: the file holds no records; remove it or write it again")


class _Reading(NamedTuple):
    """How books are read, and who hears of it."""

    skip: Callable[[Path, int, str], None] | None
    ocr: bool
    pictures: PictureReader | None
    on_read: Callable[[Path, int, int], None] | None
    unread: Callable[[str], None]
    processes: PageProcesses


def _book_items(path: Path, root: Path, kind: str, how: _Reading) -> Iterator[_Item]:
    tell = how.skip

    def skip(page: int, why: str) -> None:
        part = f"#{'chapter' if kind == 'epub' else 'page'}={page}" if page else ""
        how.unread(id_of(path, root) + part)
        if tell is not None:
            tell(path, page, why)

    progress = partial(how.on_read, path) if how.on_read else None
    more: dict[str, Any] = {"ocr": how.ocr, "pictures": how.pictures, "progress": progress}
    try:
        yield from read_book(path, root, kind, skip if tell else None, processes=how.processes, **more)
    except BadRecord as bad:
        yield bad


def _page_as_record(on_skip: Callable[[str], None]) -> Callable[[Path, int, str], None]:
    return lambda path, page, why: on_skip(f"{path}: {place_of(path, page)}{why}")


def _or_bad(make: Callable[[], Document]) -> _Item:
    try:
        return make()
    except BadRecord as bad:
        return bad


def _noted(items: Iterator[_Item], unread: Callable[[], None]) -> Iterator[_Item]:
    for item in items:
        if isinstance(item, BadRecord):
            unread()
        yield item


def _closing(items: Iterator[_Item], processes: PageProcesses) -> Iterator[_Item]:
    """The same, and no process is left behind."""
    with closing(processes):
        yield from items


def _good(items: Iterator[_Item], on_skip: Callable[[str], None] | None) -> Iterator[Document]:
    for item in items:
        if isinstance(item, Document):
            yield item
        elif on_skip is None:
            raise item
        else:
            on_skip(str(item))
