"""``/imports``: more documents than a request may bring, as a job: sent, watched, cancelled. The work is elsewhere."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from suwen.corpora.books import kind_of, readable_books
from suwen.index.engine import IndexProblem
from suwen.retrieve.ingest import Duplicates
from suwen.service.answers import answered, json_answer
from suwen.service.import_jobs import Job, State
from suwen.service.keys import needs
from suwen.service.places import ASKER
from suwen.service.problems import Problem, documented
from suwen.service.request_intake import Patience
from suwen.service.request_log import note
from suwen.service.served_index import ServedIndex, served_of

#: Bytes written at once: the way to another thread and back costs as much as writing a tenth of them.
_PART = 2**20
#: Seconds between two looks at whether one that was cancelled has ended.
_LOOK = 0.02
_KINDS = ("ndjson", "jsonl", "jsonlines")
_LINES = (
    '{"id": "note-7", "text": "布洛芬不宜与阿司匹林同服。"}\n{"id": "note-8", "title": "肾结石", "text": "多饮水。"}\n'
)
#: What a book is sent as; its name says which it is. Not text/plain: a page of another site may send that unasked.
_BOOKS = ("pdf", "wordprocessingml", "epub", "html", "octet-stream", "ms-word", "xml", "text/markdown")
_NAME = "Of a book or text, `heart.pdf`: .pdf, .docx, .html, .epub, .cnxml, .md, .txt."
_EXAMPLE = {
    "id": "1790000000000-5d1c0f3e",
    "duplicates": "error",
    "bytes": 1_048_576,
    "created": 1790000000.0,
    "state": "storing",
    "ended": None,
    "documents": 5000,
    "read": 1200,
    "added": 1200,
    "changed": 0,
    "unchanged": 0,
    "passages": 4100,
    "encoded": 4130,
    "error": None,
    "key": "loader",
    "name": "",
    "left_out": [],
    "left_out_total": 0,
    "page": 0,
    "pages": 0,
}


class ImportProblem(BaseModel):
    """Why an import failed."""

    code: str
    message: str
    param: str | None = Field(description="The line, `line 7`, or of a book the document, `a.pdf#page=7`.")


class LeftOut(BaseModel):
    """A page of a book, or a chapter, that could not be read; page 0 stands for several."""

    page: int
    why: str


class ImportAnswer(BaseModel):
    """How an import stands."""

    id: str
    duplicates: Duplicates
    bytes: int
    created: float
    state: State = Field(description="Checked whole before anything is stored; `done`, `failed`, `cancelled` are ends.")
    ended: float | None
    documents: int | None = Field(description="How many it holds; null until it is checked.")
    read: int = Field(description="How many of them are dealt with.")
    added: int
    changed: int
    unchanged: int
    passages: int = Field(description="Passages stored.")
    encoded: int = Field(description="Passages encoded since the server was started.")
    error: ImportProblem | None
    key: str
    name: str = Field(description="Of a book; empty for lines of JSON.")
    left_out: list[LeftOut] = Field(description="Pages or chapters of a book that are not in the index: the first 100.")
    left_out_total: int = Field(description="How many there are with those that are not listed.")
    page: int = Field(description="The last page of a book that was read.")
    pages: int = Field(description="How many it has; 0 for what has none.")


class ImportsAnswer(BaseModel):
    """The imports that wait or are at work, and the last that ended, oldest first."""

    imports: list[ImportAnswer]


def routes() -> APIRouter:
    """The import endpoints."""
    router = APIRouter(
        prefix="/imports", tags=["imports"], dependencies=[Depends(needs("write"))], default_response_class=Response
    )
    _add_post(router)
    _add_looking(router)
    return router


def _add_post(router: APIRouter) -> None:
    @router.post(
        "",
        responses={
            **answered(ImportAnswer, "Taken: it is on the disk, and its turn comes.", _EXAMPLE),
            **documented("read_only", "disk_full"),
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/x-ndjson": {"schema": {"type": "string"}, "example": _LINES},
                    "application/pdf": {"schema": {"type": "string", "format": "binary"}},
                },
            }
        },
        summary="Import documents",
    )
    async def post(
        request: Request,
        duplicates: Annotated[Duplicates, Query(description="What to do with an id that comes twice.")] = "error",
        name: Annotated[str, Query(max_length=200, description=_NAME)] = "",
    ) -> Response:
        """Take documents in as a job: a line of JSON for each, as `POST /documents` takes them, or a book's pages.

        No kill loses it.
        """
        served = served_of(request)
        served.holder.check_writable()
        _ = served.holder.index
        _check_kind(request.headers.get("content-type", "").lower(), name)
        job = await _received(request, served, duplicates, name)
        note(request, bytes=job.bytes)
        return json_answer(asdict(job))


def _check_kind(kind: str, name: str) -> None:
    kind = kind.partition(";")[0]
    if any(one in kind for one in _KINDS) and not name:
        return
    if not any(one in kind for one in _BOOKS):
        raise Problem(
            "invalid_request",
            "an import is lines of JSON, sent with the header 'Content-Type: application/x-ndjson', or a book, sent as "
            "'Content-Type: application/octet-stream' with ?name=heart.pdf",
        )
    readable = (*readable_books(), "text")
    if kind_of(Path(name)) not in readable or Path(name).name != name or not name.isprintable():
        raise Problem(
            "invalid_request",
            f"give the book's file name as ?name=, without folders; this server reads {', '.join(readable)}",
            param="name",
        )


async def _received(request: Request, served: ServedIndex, duplicates: Duplicates, name: str = "") -> Job:
    key, imports, settings = ASKER.get(), served.imports, served.holder.settings
    file = imports.coming(key)
    try:
        with await asyncio.to_thread(file.open, "wb") as stream:
            length = await receive_to(stream, request, settings.import_bytes, settings.slow_seconds)
            await asyncio.to_thread(os.fsync, stream.fileno())
        if not length:
            wanted = f"the file {name} itself" if name else "a line of JSON for each document"
            raise Problem("invalid_request", f"the import is empty: send {wanted}")
        return await asyncio.to_thread(imports.accept, file, duplicates, key, name)
    except OSError as problem:
        # A full disk is told as such; whatever else it is, the log has it.
        raise IndexProblem(f"the import could not be written to {file} ({problem})") from problem
    finally:
        imports.gone(file, key)


async def receive_to(stream: Any, request: Request, most: int, slow_seconds: float) -> int:
    """Write the body of a request to a file as it comes; how long it is."""
    patience = Patience(slow_seconds)
    length, part, more = 0, bytearray(), True
    while more:
        message = await patience.next(request.receive, length)
        if message["type"] == "http.disconnect":
            raise Problem("slow_client", "the body did not come whole: nothing of it was kept")
        part += message.get("body", b"")
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
        if length > most:
            raise Problem(
                "too_large", f"the body is longer than {most} bytes: send it in several, or let the server take more"
            )
        if len(part) >= _PART or not more:
            await asyncio.to_thread(stream.write, bytes(part))
            part.clear()
    await asyncio.to_thread(stream.flush)
    return length


def _add_looking(router: APIRouter) -> None:
    @router.get(
        "",
        responses={**answered(ImportsAnswer, "The imports.", {"imports": [_EXAMPLE]}), **documented()},
        summary="List imports",
    )
    async def list_imports(request: Request) -> Response:
        """The imports that wait or are at work, and the last hundred that ended."""
        return json_answer({"imports": [asdict(job) for job in served_of(request).imports.known()]})

    @router.get(
        "/{id}",
        responses={**answered(ImportAnswer, "How it stands.", _EXAMPLE), **documented("unknown_import")},
        summary="Look at an import",
    )
    async def look(id: str, request: Request) -> Response:
        """How far an import has come."""
        return json_answer(asdict(served_of(request).imports.find(id)))

    @router.delete(
        "/{id}",
        responses={
            **answered(ImportAnswer, "It has ended.", _EXAMPLE | {"state": "cancelled"}),
            **documented("unknown_import", "read_only"),
        },
        summary="Cancel an import",
    )
    async def cancel(id: str, request: Request) -> Response:
        """End an import between two steps. What it has stored stays; one that has ended is not changed."""
        holder, imports = served_of(request).holder, served_of(request).imports
        holder.check_writable()
        job = await asyncio.to_thread(imports.cancel, id)
        async with holder.within_time("it ends at its next step; look at it again"):
            while not job.over:
                await asyncio.sleep(_LOOK)
                job = imports.find(id)
        return json_answer(asdict(job))
