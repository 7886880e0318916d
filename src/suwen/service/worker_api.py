"""``/worker``: documents that wait are leased to machines with a GPU, which send their vectors back. Encodes nothing.

The server stays the only writer. A lease only keeps two workers from doing the same; what guards the index is the
version that comes with every result, so results are taken after a restart too, and never for a document that changed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from suwen.encoders.cores import grouped
from suwen.encoders.probe import read_probe
from suwen.encoders.space import Space
from suwen.index.engine import Reencoded, Vectors, Waiting
from suwen.retrieve.retriever import Index
from suwen.service.answers import answered, json_answer
from suwen.service.documents_api import LONGEST_ID
from suwen.service.holder import Holder
from suwen.service.keys import needs
from suwen.service.leases import Leases
from suwen.service.problems import Problem, documented
from suwen.service.reencoding import Reencoder
from suwen.service.request_checks import Asked, check_count
from suwen.service.request_log import note

#: Characters in one lease: a worker should have something to send back well before its lease ends.
_CHARACTERS = 400_000
#: How far from length 1 a vector may be: fp16 keeps three digits.
_UNEVEN = 0.01
_WRITES = ("read_only", "disk_full")
_LEASED = {
    "lease": "5d1c0f3e9a7b2468",
    "seconds": 120.0,
    "space": "sp-2df9e02e1ba0f35a350d",
    "documents": [{"id": "note-7", "version": "4f0c…", "passages": ["布洛芬\n布洛芬不宜与阿司匹林同服。"]}],
}


class LeaseAsked(Asked):
    """A worker that wants something to do."""

    space: str = Field(description="The space of the worker's document encoder; must be the index's.")
    worker: str = Field(default="", max_length=200, description="A name for the log.")
    most: int = Field(default=16, ge=1, description="The most documents it wants.")
    skip: list[str] = Field(default_factory=list, max_length=256, description="Ids it cannot do.")


class Result(Asked):
    """The vectors of one document."""

    id: str = Field(min_length=1, max_length=LONGEST_ID)
    version: str = Field(description="As leased: the document must still have it.")
    vectors: str = Field(description="Base64 of the passages' vectors, row by row, little-endian.")
    dtype: Literal["float16", "float32"] = "float16"


class ResultsGiven(Asked):
    """What a worker has done."""

    space: str = Field(description="The space of the worker's document encoder; must be the index's.")
    lease: str | None = Field(default=None, description="The lease it was done under; one that has ended does no harm.")
    results: list[Result] = Field(min_length=1)


class Released(Asked):
    """A lease that will not be worked on."""

    lease: str


class LeasedDocument(BaseModel):
    """A document to encode."""

    id: str
    version: str
    passages: list[str]


class LeaseAnswer(BaseModel):
    """What to encode, and for how long it is the worker's alone."""

    lease: str | None = Field(description="Null when nothing waits.")
    seconds: float
    space: str
    documents: list[LeasedDocument]


class ResultsAnswer(BaseModel):
    """What became of each document's vectors."""

    stored: int
    outcomes: dict[str, Literal["stored", "done", "stale", "gone"]]


class ReleasedAnswer(BaseModel):
    """How many documents were given back."""

    released: int


class ProbeAnswer(BaseModel):
    """Texts and the vectors the document encoder of the index's space gives them; both empty where none are stored."""

    space: str
    dimension: int
    texts: list[str]
    vectors: str


def routes(holder: Holder) -> APIRouter:
    """The endpoints for workers, and the background thread of the server itself."""
    leases = Leases(holder.settings.lease_seconds)
    background = Reencoder(holder)
    holder.on_open.append(background.start)
    holder.on_close.append(background.stop)

    def workers() -> dict[str, Any]:
        there = "in process" if background.works else "remote" if leases.asked_lately() else "none"
        return {"worker": there, "leased": leases.held()}

    holder.workers = workers
    router = APIRouter(prefix="/worker", tags=["worker"], dependencies=[Depends(needs("write"))])
    _add_lease(router, holder, leases)
    _add_results(router, holder, leases)
    return router


def _add_lease(router: APIRouter, holder: Holder, leases: Leases) -> None:
    @router.post(
        "/lease",
        response_class=Response,
        responses={**answered(LeaseAnswer, "Documents to encode, oldest first.", _LEASED), **documented("read_only")},
        summary="Lease documents to encode",
    )
    async def lease(asked: LeaseAsked, request: Request) -> Response:
        """The oldest documents that wait and are not leased. Send vectors back before the lease ends."""
        if holder.settings.read_only:
            raise Problem("read_only", "this server only reads: ask the one that writes")
        leased = await holder.read(lambda index: _lease(holder, leases, index, asked), "worker")
        note(request, documents=len(leased["documents"]))
        return json_answer(leased)

    @router.post(
        "/release",
        response_class=Response,
        responses={
            **answered(ReleasedAnswer, "They wait for another worker.", {"released": 3}),
            **documented("unknown_lease"),
        },
        summary="Give a lease back",
    )
    async def release(asked: Released) -> Response:
        """End a lease before its time, so that others need not wait for it."""
        released = leases.release(asked.lease)
        if released is None:
            raise Problem(
                "unknown_lease",
                "there is no such lease: it has ended, or the server was restarted. Nothing needs to be given back",
                param="lease",
            )
        return json_answer({"released": released})

    @router.get(
        "/probe",
        response_class=Response,
        responses={
            **answered(ProbeAnswer, "The probe.", {"space": "sp-…", "dimension": 512, "texts": [], "vectors": ""}),
            **documented(),
        },
        summary="What the document encoder must reproduce",
    )
    async def probe() -> Response:
        """Texts with the vectors the space's document encoder gives them: a worker checks itself before it starts."""
        return json_answer(await holder.read(_probe, "worker"))


def _add_results(router: APIRouter, holder: Holder, leases: Leases) -> None:
    @router.post(
        "/results",
        response_class=Response,
        responses={
            **answered(ResultsAnswer, "Stored, durably.", {"stored": 1, "outcomes": {"note-7": "stored"}}),
            **documented(*_WRITES, "stale_version", "duplicate_id", "too_many"),
        },
        summary="Send vectors back",
    )
    async def results(given: ResultsGiven, request: Request) -> Response:
        """Replace vectors of documents that still have the version they were made of; 409 when none has."""
        index = holder.index
        _check_space(index, given.space)
        made = _decoded(given.results, index.pair.space, holder.settings.batch_documents)
        outcomes = await holder.write(lambda index: index.reencode(made))
        leases.settle(given.lease, outcomes)
        stored = sum(outcome in ("stored", "done") for outcome in outcomes.values())
        note(request, documents=stored)
        if not stored:
            raise Problem(
                "stale_version",
                "every one of these documents was changed or deleted meanwhile: drop their vectors and lease again",
                param="results",
            )
        return json_answer({"stored": stored, "outcomes": outcomes})


def _lease(holder: Holder, leases: Leases, index: Index, asked: LeaseAsked) -> dict[str, Any]:
    _check_space(index, asked.space)
    most = min(asked.most, holder.settings.lease_documents)

    def find(held: Collection[str]) -> list[Waiting]:
        waiting = index.waiting(most, {*held, *asked.skip})
        return next(grouped(waiting, lambda one: sum(map(len, one.contents)), _CHARACTERS), [])

    lease, waiting = leases.grant(asked.worker, find)
    return {
        "lease": lease.id if lease else None,
        "seconds": leases.seconds,
        "space": index.pair.space.id,
        "documents": [{"id": one.id, "version": one.version, "passages": one.contents} for one in waiting],
    }


def _check_space(index: Index, space: str) -> None:
    needed = index.pair.space.id
    if space != needed:
        raise Problem(
            "invalid_request",
            f"the index is in the space {needed}, the worker's encoder in {space}: start it with the pair of the index",
            param="space",
        )


def _decoded(results: list[Result], space: Space, most: int) -> list[Reencoded]:
    """The vectors of a request, checked: nothing of it is stored when one of them is wrong."""
    check_count(len(results), most, "results")
    seen: set[str] = set()
    made = []
    for number, one in enumerate(results):
        if one.id in seen:
            raise Problem("duplicate_id", f"the id {one.id!r} is twice in this request", param=f"results.{number}.id")
        seen.add(one.id)
        made.append(Reencoded(one.id, one.version, _vectors(one, space, f"results.{number}.vectors")))
    return made


def _vectors(result: Result, space: Space, param: str) -> Vectors:
    try:
        data = base64.b64decode(result.vectors, validate=True)
    except (binascii.Error, ValueError):
        raise Problem("invalid_request", f"{param} is not base64", param=param) from None
    kind = np.dtype(result.dtype).newbyteorder("<")
    if not data or len(data) % (space.dimension * kind.itemsize):
        raise Problem(
            "invalid_request",
            f"{param} has {len(data)} bytes: a row is {space.dimension} numbers of {kind.itemsize} bytes",
            param=param,
        )
    vectors = np.frombuffer(data, dtype=kind).reshape(-1, space.dimension).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise Problem("invalid_request", f"{param} holds a value that is not finite: encode again", param=param)
    lengths = np.linalg.norm(vectors, axis=1)
    if space.normalise and np.abs(lengths - 1).max() > _UNEVEN:
        worst = float(lengths[np.abs(lengths - 1).argmax()])
        raise Problem(
            "invalid_request",
            f"{param} has a vector of length {worst:.3f}: the space's have length 1, cut and renormalise them",
            param=param,
        )
    return vectors


def _probe(index: Index) -> dict[str, Any]:
    folder, space = index.pair.path, index.pair.space
    texts: list[str] = []
    vectors = ""
    if (folder / "probe.json").is_file():
        texts, stored = read_probe(folder)
        vectors = base64.b64encode(stored.astype("<f4").tobytes()).decode()
    return {"space": space.id, "dimension": space.dimension, "texts": texts, "vectors": vectors}
