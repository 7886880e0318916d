"""``/originals``: the file that a document was read from, for opening a book at a hit's page. Lists nothing.

A file is asked for by the id of a document, and only what lies in the folder of the setting ``books`` is sent: whoever
may not read the document may not read the file, and no path in an address or in metadata leads out of the folder.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastapi import APIRouter, Depends, Request
from starlette.responses import FileResponse, Response

from suwen.corpora.books import kind_of
from suwen.service.documents_api import Id, unknown
from suwen.service.keys import needs
from suwen.service.original_files import original_of
from suwen.service.problems import Problem, documented
from suwen.service.served_index import holder_of

_PDF = "application/pdf"
#: Opened by the browser's own viewer, which a stricter policy keeps from showing anything; a PDF runs nothing of this
#: site. Everything else is only saved: a page of HTML that somebody imported must not run beside the search page.
_VIEWED = {"Content-Security-Policy": "frame-ancestors 'none'"}
_SAVED = {"Content-Security-Policy": "sandbox; default-src 'none'"}


def routes() -> APIRouter:
    """The endpoint of originals."""
    router = APIRouter(tags=["documents"])

    @router.get(
        "/originals/{id:path}",
        dependencies=[Depends(needs("read"))],
        response_class=Response,
        responses={
            200: {"content": {_PDF: {"schema": {"type": "string", "format": "binary"}}}, "description": "The file."},
            **documented("unknown_document", "not_found"),
        },
        summary="Open the original of a document",
    )
    async def get(id: Id, request: Request) -> Response:
        """The book that a document is a page of, where the server has its file: PDF for a viewer, others to save."""
        holder = holder_of(request)
        document = await holder.read(lambda index: index.document(id), "document")
        if document is None:
            raise unknown(id)
        file = await asyncio.to_thread(original_of, document.metadata, holder.settings.books)
        if file is None:
            raise Problem(
                "not_found",
                "the original of this document is not here: `books` of [serve] names the folder it was indexed from",
            )
        return _sent(file)

    return router


def _sent(file: Path) -> Response:
    is_pdf = kind_of(file) == "pdf"
    return FileResponse(
        file,
        media_type=_PDF if is_pdf else "application/octet-stream",
        filename=file.name,
        content_disposition_type="inline" if is_pdf else "attachment",
        headers={"Cache-Control": "private, no-cache", **(_VIEWED if is_pdf else _SAVED)},
    )
