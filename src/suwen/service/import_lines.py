"""The documents of an import, a line of JSON each: read, checked and put together for storing. Stores nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from fastapi.exceptions import RequestValidationError

from suwen.corpora.records import Document
from suwen.retrieve.ingest import Duplicates, IngestError, SeenIds
from suwen.service.direct_route import read_body
from suwen.service.json_bounds import Bounds, Count, clearly_within
from suwen.service.posted_documents import Posted, check_document
from suwen.service.problems import Problem, invalid_request

#: Characters and documents stored in one step: some seconds of a transformer on one core, and what a kill may cost.
_CHARACTERS, _DOCUMENTS = 16_000, 256


def read_documents(
    file: Path, bounds: Bounds, longest: int, duplicates: Duplicates, *, book: bool = False
) -> Iterator[Document]:
    """The documents of a file, without what is to be left out of those whose id comes twice.

    Args:
        file: A line of JSON for each, as ``POST /documents`` takes them.
        bounds: What one line may hold.
        longest: The most characters of one text.
        duplicates: What to do with an id that comes twice.
        book: Whether the lines were made of a book, whose pages are named then: nobody has seen the lines.

    Raises:
        Problem: A line is no document, or an id comes twice and that is an error; its ``param`` names the line.
    """
    at, line = 0, b""

    def problem(code: str, message: str) -> Problem:
        place = str(json.loads(line)["id"]) if book else f"line {at}"
        return Problem(code, f"{place}: {message.replace('documents.0.', 'its ') if book else message}", param=place)

    def lines() -> Iterator[Document]:
        nonlocal at, line
        with file.open("rb") as stream:
            while line := stream.readline(bounds.bytes + 1):
                at += 1
                if line.strip():
                    yield _document(line, bounds, longest)

    try:
        with SeenIds() as seen:
            yield from seen.once(lines(), duplicates, "Nothing of the import is stored", lambda: None)
    except IngestError as error:
        raise problem("duplicate_id", str(error)) from None
    except Problem as error:
        raise problem(error.code, error.message) from None


def _document(line: bytes, bounds: Bounds, longest: int) -> Document:
    if len(line) > bounds.bytes:
        raise Problem("too_large", f"it is longer than {bounds.bytes} bytes: split the document")
    if not clearly_within(line, bounds):
        Count(bounds).take(line)
    try:
        posted = read_body(Posted, b"application/json", line)
    except RequestValidationError as error:
        raise invalid_request(error.errors()[0]) from None
    assert isinstance(posted, Posted)
    check_document(posted, longest, {}, 0)
    return Document(posted.id, posted.text, posted.title, posted.metadata)


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Documents that are stored together; an id that comes again begins a new batch, so that the last one stays."""
    batch: list[Document] = []
    ids: set[str] = set()
    characters = 0
    for document in documents:
        full = len(batch) >= _DOCUMENTS or characters + len(document.text) > _CHARACTERS
        if batch and (full or document.id in ids):
            yield batch
            batch, ids, characters = [], set(), 0
        batch.append(document)
        ids.add(document.id)
        characters += len(document.text)
    if batch:
        yield batch
