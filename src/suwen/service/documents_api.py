"""``/documents``: put documents in, look at them, take them out. On an answer they are durable and searchable."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from suwen.corpora.records import Document
from suwen.encoders.query import Encoder
from suwen.encoders.who_encodes import state
from suwen.index.engine import StoredDocument
from suwen.retrieve.ingest import OneStep
from suwen.retrieve.retriever import Index
from suwen.service.answers import (
    DOCUMENT,
    POSTED,
    DeletedAnswer,
    DocumentAnswer,
    IdsAnswer,
    PostAnswer,
    answered,
    json_answer,
)
from suwen.service.direct_route import DirectRoute
from suwen.service.keys import needs
from suwen.service.posted_documents import Posted, check_batch
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import LONGEST_ID, Asked, Many, check_count, check_index
from suwen.service.request_log import note
from suwen.service.served_index import holder_of

Id = Annotated[str, Path(description="The document's id, percent-encoded.")]

_POST: list[Any] = [
    {
        "documents": [
            {
                "id": "note-7",
                "title": "布洛芬",
                "text": "布洛芬不宜与阿司匹林同服。",
                "metadata": {"department": "药剂科", "year": 2024},
            }
        ]
    }
]
_WRITES = ("read_only", "disk_full")
_POST_PROBLEMS = ("empty_document", "bad_document", "duplicate_id", "too_many", "text_too_long")


class Post(Asked):
    """Documents to store."""

    model_config = ConfigDict(json_schema_extra={"examples": _POST})

    documents: Many[Posted] = Field(min_length=1, max_length=10_000)
    index: str | None = None


class Delete(Asked):
    """Ids of documents to drop."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": ["note-7"]}]})

    ids: Many[str] = Field(min_length=1, max_length=10_000)
    index: str | None = None


def routes() -> APIRouter:
    """The document endpoints."""
    router = APIRouter(route_class=DirectRoute, tags=["documents"], default_response_class=Response)
    _add_post(router)
    _add_reading(router)
    _add_deleting(router)
    return router


def _add_post(router: APIRouter) -> None:
    @router.post(
        "/documents",
        dependencies=[Depends(needs("write"))],
        responses={
            **answered(PostAnswer, "Stored; the next search finds them.", POSTED),
            **documented(*_WRITES, *_POST_PROBLEMS),
        },
        summary="Store documents",
    )
    async def post(asked: Post, request: Request) -> Response:
        """Insert or replace documents, all of them or none. They are durable and searchable on the answer."""
        holder = holder_of(request)
        check_index(holder, asked.index)
        check_batch(holder.settings, asked.documents)
        step = OneStep(holder.settings.batch_passages)
        stored = await holder.write(lambda index: _store(index, asked.documents, holder.encoder(index), step))
        note(request, documents=len(asked.documents), passages=stored["passages"])
        return json_answer(stored)


def _add_reading(router: APIRouter) -> None:
    @router.get(
        "/documents",
        dependencies=[Depends(needs("read"))],
        responses={**answered(IdsAnswer, "A page of ids.", {"ids": ["note-7"], "next": None}), **documented()},
        summary="List ids",
    )
    async def list_ids(
        request: Request,
        after: Annotated[str, Query(max_length=LONGEST_ID, description="Give the ids that come after this one.")] = "",
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Ids in ascending order, a page at a time; `next` is the `after` of the next page, null on the last."""
        page = await holder_of(request).read(lambda index: list(index.ids(after, limit + 1)), "document")
        return json_answer({"ids": page[:limit], "next": page[limit - 1] if len(page) > limit else None})

    @router.get(
        "/documents/{id:path}",
        dependencies=[Depends(needs("read"))],
        responses={**answered(DocumentAnswer, "The document.", DOCUMENT), **documented("unknown_document")},
        summary="Look at a document",
    )
    async def get(id: Id, request: Request) -> Response:
        """A document with its passages, and who encoded each."""
        return json_answer(await holder_of(request).read(lambda index: _look(index, id), "document"))


def _add_deleting(router: APIRouter) -> None:
    @router.delete(
        "/documents/{id:path}",
        dependencies=[Depends(needs("write"))],
        responses={
            **answered(DeletedAnswer, "It is gone, durably.", {"deleted": 1}),
            **documented(*_WRITES, "unknown_document"),
        },
        summary="Delete a document",
    )
    async def delete_one(id: Id, request: Request) -> Response:
        """Delete one document by its id, percent-encoded."""
        deleted = await holder_of(request).write(lambda index: index.delete([id]))
        if not deleted:
            raise unknown(id)
        return json_answer({"deleted": deleted})

    @router.post(
        "/documents/delete",
        dependencies=[Depends(needs("write"))],
        responses={
            **answered(DeletedAnswer, "They are gone, durably.", {"deleted": 1}),
            **documented(*_WRITES, "too_many"),
        },
        summary="Delete documents",
    )
    async def delete(asked: Delete, request: Request) -> Response:
        """Delete documents by their ids; those that are not there are passed over."""
        holder = holder_of(request)
        check_index(holder, asked.index)
        check_count(len(asked.ids), holder.settings.batch_documents, "ids")
        deleted = await holder.write(lambda index: index.delete(asked.ids))
        note(request, documents=deleted)
        return json_answer({"deleted": deleted})


def _store(index: Index, documents: list[Posted], encoder: Encoder, step: OneStep) -> dict[str, Any]:
    records = [Document(one.id, one.text, one.title, one.metadata) for one in documents]
    report = index.add(records, encoder=encoder, step=step)
    stored = [_there(index, one.id) for one in documents]
    return {
        "added": report.added,
        "changed": report.changed,
        # Encoded anew, perhaps, and the same document.
        "unchanged": report.unchanged + report.reencoded,
        "passages": report.passages,
        "documents": [
            {"id": one.id, "version": one.digest, "state": _state(index, one), "passages": len(one.passages)}
            for one in stored
        ],
    }


def _look(index: Index, id_: str) -> dict[str, Any]:
    document = _there(index, id_)
    passages = [
        {
            "id": item.passage.id,
            "start": item.passage.start,
            "end": item.passage.end,
            "encoder": item.encoder,
            "state": state(index.pair, item.encoder),
            "text": item.passage.text,
        }
        for item in document.passages
    ]
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": document.metadata,
        "version": document.digest,
        "state": _state(index, document),
        "passages": passages,
    }


def _state(index: Index, document: StoredDocument) -> str:
    states = {state(index.pair, item.encoder) for item in document.passages}
    return "fresh" if "fresh" in states else "encoded"


def _there(index: Index, id_: str) -> StoredDocument:
    document = index.document(id_)
    if document is None:
        raise unknown(id_)
    return document


def unknown(id_: str) -> Problem:
    """That there is no document of this id."""
    return Problem("unknown_document", f"no document has the id {id_!r}: GET /documents lists the ids", param="id")
