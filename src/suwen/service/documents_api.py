"""``/documents``: put documents in, look at them, take them out. On an answer they are durable and searchable."""

from __future__ import annotations

from typing import Annotated, Any
from unicodedata import category

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
from suwen.service.filter_checks import Metadata
from suwen.service.holder import Holder
from suwen.service.keys import needs
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import LONGEST_ID, Asked, Many, Part, check_count, check_index, check_length
from suwen.service.request_log import note

#: A text with more characters than this for each passage that is taken is not even cut into them.
CHARACTERS = 1000
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


class Posted(Part):
    """One document."""

    id: str = Field(min_length=1, max_length=LONGEST_ID, description="Replaces the document that has this id.")
    text: str = Field(description="Plain text; long ones are cut into passages.")
    title: str = Field(default="", max_length=2000)
    metadata: Metadata = Field(
        default_factory=dict,
        description="Flat: a value or a list of values under each field, for filters; null is no value.",
    )


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


def routes(holder: Holder) -> APIRouter:
    """The document endpoints."""
    router = APIRouter(route_class=DirectRoute, tags=["documents"])
    _add_post(router, holder)
    _add_reading(router, holder)
    _add_deleting(router, holder)
    return router


def _add_post(router: APIRouter, holder: Holder) -> None:
    @router.post(
        "/documents",
        dependencies=[Depends(needs("write"))],
        response_class=Response,
        responses={
            **answered(PostAnswer, "Stored; the next search finds them.", POSTED),
            **documented(*_WRITES, *_POST_PROBLEMS),
        },
        summary="Store documents",
    )
    async def post(asked: Post, request: Request) -> Response:
        """Insert or replace documents, all of them or none. They are durable and searchable on the answer."""
        check_index(holder.settings, asked.index)
        _check_batch(holder, asked.documents)
        step = OneStep(holder.settings.batch_passages)
        stored = await holder.write(lambda index: _store(index, asked.documents, holder.encoder(index), step))
        note(request, documents=len(asked.documents), passages=stored["passages"])
        return json_answer(stored)


def _add_reading(router: APIRouter, holder: Holder) -> None:
    @router.get(
        "/documents",
        dependencies=[Depends(needs("read"))],
        response_class=Response,
        responses={**answered(IdsAnswer, "A page of ids.", {"ids": ["note-7"], "next": None}), **documented()},
        summary="List ids",
    )
    async def list_ids(
        after: Annotated[str, Query(max_length=LONGEST_ID, description="Give the ids that come after this one.")] = "",
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Ids in ascending order, a page at a time; `next` is the `after` of the next page, null on the last."""
        page = await holder.read(lambda index: list(index.ids(after, limit + 1)), "document")
        return json_answer({"ids": page[:limit], "next": page[limit - 1] if len(page) > limit else None})

    @router.get(
        "/documents/{id:path}",
        dependencies=[Depends(needs("read"))],
        response_class=Response,
        responses={**answered(DocumentAnswer, "The document.", DOCUMENT), **documented("unknown_document")},
        summary="Look at a document",
    )
    async def get(id: Id) -> Response:
        """A document with its passages, and who encoded each."""
        return json_answer(await holder.read(lambda index: _look(index, id), "document"))


def _add_deleting(router: APIRouter, holder: Holder) -> None:
    @router.delete(
        "/documents/{id:path}",
        dependencies=[Depends(needs("write"))],
        response_class=Response,
        responses={
            **answered(DeletedAnswer, "It is gone, durably.", {"deleted": 1}),
            **documented(*_WRITES, "unknown_document"),
        },
        summary="Delete a document",
    )
    async def delete_one(id: Id) -> Response:
        """Delete one document by its id, percent-encoded."""
        deleted = await holder.write(lambda index: index.delete([id]))
        if not deleted:
            raise _unknown(id)
        return json_answer({"deleted": deleted})

    @router.post(
        "/documents/delete",
        dependencies=[Depends(needs("write"))],
        response_class=Response,
        responses={
            **answered(DeletedAnswer, "They are gone, durably.", {"deleted": 1}),
            **documented(*_WRITES, "too_many"),
        },
        summary="Delete documents",
    )
    async def delete(asked: Delete, request: Request) -> Response:
        """Delete documents by their ids; those that are not there are passed over."""
        check_index(holder.settings, asked.index)
        check_count(len(asked.ids), holder.settings.batch_documents, "ids")
        deleted = await holder.write(lambda index: index.delete(asked.ids))
        note(request, documents=deleted)
        return json_answer({"deleted": deleted})


def _check_batch(holder: Holder, documents: list[Posted]) -> None:
    """Everything that can be wrong with a batch, before any of it is stored."""
    check_count(len(documents), holder.settings.batch_documents, "documents")
    longest = holder.settings.text_characters
    seen: dict[str, int] = {}
    for number, document in enumerate(documents):
        check_document(document, longest, seen, number)
    characters = sum(len(one.text) for one in documents)
    if characters > (most := holder.settings.batch_passages * CHARACTERS):
        raise Problem(
            "too_many",
            f"the texts have {characters} characters, at most {most} are taken in one request: POST them to /imports, "
            "as 'suwen add --server' does, or send fewer at once",
            param="documents",
        )


def check_document(document: Posted, longest: int, seen: dict[str, int], number: int) -> None:
    """Raise the problem of one document of several, of which it is the one of this number.

    Args:
        document: The document.
        longest: The most characters its text may have.
        seen: Ids and their numbers so far; its own is added.
        number: Its own.
    """
    param = f"documents.{number}"
    if (first := seen.setdefault(document.id, number)) != number:
        raise Problem(
            "duplicate_id",
            f"the id {document.id!r} is twice in this batch (documents {first} and {number}): nothing was stored",
            param=f"{param}.id",
        )
    if any(category(character) == "Cc" for character in document.id):
        raise Problem(
            "bad_document", f"the id {document.id!r} holds a control character: leave it out", param=f"{param}.id"
        )
    if not document.text.strip():
        raise Problem(
            "empty_document",
            f"document {document.id!r} has no text: give it some, or leave it out",
            param=f"{param}.text",
        )
    check_length(document.text, longest, f"{param}.text")


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
        raise _unknown(id_)
    return document


def _unknown(id_: str) -> Problem:
    return Problem("unknown_document", f"no document has the id {id_!r}: GET /documents lists the ids", param="id")
