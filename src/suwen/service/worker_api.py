"""``/worker``: documents that wait are leased to machines with a GPU, which send their vectors back. Encodes nothing.

The server stays the only writer. A lease only keeps two workers from doing the same; what guards the index is the
version that comes with every result, so results are taken after a restart too, and never for a document that changed.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from suwen.encoders.cores import grouped
from suwen.encoders.probe import read_stored_probe
from suwen.index.engine import Outcome, Reencoded, Vectors, Waiting
from suwen.retrieve.retriever import Index
from suwen.service.answers import answered, json_answer
from suwen.service.direct_route import DirectRoute
from suwen.service.keys import needs
from suwen.service.leases import Lease, Leases
from suwen.service.places import ASKER
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import Asked, Many
from suwen.service.request_log import note
from suwen.service.served_index import ServedIndex, holder_of, served_of
from suwen.service.worker_vectors import Proof, Result, check_proof, decoded

#: Characters in one lease: a worker should have something to send back well before its lease ends.
_CHARACTERS = 400_000
_WRITES = ("read_only", "disk_full")
log = logging.getLogger("suwen.service")
_LEASED = {
    "lease": "5d1c0f3e9a7b2468",
    "seconds": 120.0,
    "space": "sp-2df9e02e1ba0f35a350d",
    "documents": [{"id": "note-7", "version": "4f0c…", "passages": ["布洛芬\n布洛芬不宜与阿司匹林同服。"]}],
    "probe": {"number": 3, "text": "孩子发烧到三十九度，手脚冰凉，要不要马上去医院？"},
}


class LeaseAsked(Asked):
    """A worker that wants something to do."""

    space: str = Field(description="The space of the worker's document encoder; must be the index's.")
    worker: str = Field(default="", max_length=200, description="A name for the log.")
    most: int = Field(default=16, ge=1, description="The most documents it wants.")
    skip: Many[str] = Field(default_factory=list, max_length=256, description="Ids it cannot do.")


class ResultsGiven(Asked):
    """What a worker has done."""

    space: str = Field(description="The space of the worker's document encoder; must be the index's.")
    lease: str | None = Field(default=None, description="The lease it was done under; one that has ended does no harm.")
    results: Many[Result] = Field(min_length=1)
    probe: Proof | None = Field(default=None, description="The vector of the lease's probe, where it has one.")


class Released(Asked):
    """A lease that will not be worked on."""

    lease: str


class LeasedDocument(BaseModel):
    """A document to encode."""

    id: str
    version: str
    passages: list[str]


class ProbeText(BaseModel):
    """A text of the probe."""

    number: int
    text: str


class LeaseAnswer(BaseModel):
    """What to encode, and for how long it is the worker's alone."""

    lease: str | None = Field(description="Null when nothing waits.")
    seconds: float
    space: str
    documents: list[LeasedDocument]
    probe: ProbeText | None = Field(description="A text to encode with them, whose vector the server knows.")


class ResultsAnswer(BaseModel):
    """What became of each document's vectors."""

    stored: int
    outcomes: dict[str, Outcome]


class ReleasedAnswer(BaseModel):
    """How many documents were given back."""

    released: int


class ProbeAnswer(BaseModel):
    """Texts and the vectors the document encoder of the index's space gives them; both empty where none are stored."""

    space: str
    dimension: int
    texts: list[str]
    vectors: str


def routes() -> APIRouter:
    """The endpoints for workers."""
    router = APIRouter(
        prefix="/worker",
        tags=["worker"],
        dependencies=[Depends(needs("worker"))],
        route_class=DirectRoute,
        default_response_class=Response,
    )
    _add_lease(router)
    _add_results(router)
    return router


def _add_lease(router: APIRouter) -> None:
    @router.post(
        "/lease",
        responses={
            **answered(LeaseAnswer, "Documents to encode, oldest first.", _LEASED),
            **documented("read_only", "barred_worker"),
        },
        summary="Lease documents to encode",
    )
    async def lease(asked: LeaseAsked, request: Request) -> Response:
        """The oldest documents that wait and are not leased. Send vectors back before the lease ends."""
        served = served_of(request)
        if served.holder.settings.read_only:
            raise Problem("read_only", "this server only reads: ask the one that writes")
        leased = await served.holder.read(lambda index: _lease(served, index, asked), "worker")
        note(request, documents=len(leased["documents"]))
        return json_answer(leased)

    @router.post(
        "/release",
        responses={
            **answered(ReleasedAnswer, "They wait for another worker.", {"released": 3}),
            **documented("unknown_lease"),
        },
        summary="Give a lease back",
    )
    async def release(asked: Released, request: Request) -> Response:
        """End a lease before its time, so that others need not wait for it."""
        released = served_of(request).leases.release(asked.lease)
        if released is None:
            raise Problem(
                "unknown_lease",
                "there is no such lease: it has ended, or the server was restarted. Nothing needs to be given back",
                param="lease",
            )
        return json_answer({"released": released})

    @router.get(
        "/probe",
        responses={
            **answered(ProbeAnswer, "The probe.", {"space": "sp-…", "dimension": 512, "texts": [], "vectors": ""}),
            **documented(),
        },
        summary="What the document encoder must reproduce",
    )
    async def probe(request: Request) -> Response:
        """Texts with the vectors the space's document encoder gives them: a worker checks itself before it starts."""
        return json_answer(await holder_of(request).read(_probe, "worker"))


def _add_results(router: APIRouter) -> None:
    @router.post(
        "/results",
        responses={
            **answered(ResultsAnswer, "Stored, durably.", {"stored": 1, "outcomes": {"note-7": "stored"}}),
            **documented(*_WRITES, "stale_version", "duplicate_id", "too_many", "wrong_vectors"),
        },
        summary="Send vectors back",
    )
    async def results(given: ResultsGiven, request: Request) -> Response:
        """Replace vectors of documents that still have the version they were made of; 409 when none has."""
        holder, leases = served_of(request).holder, served_of(request).leases
        index, lease = holder.index, leases.find(given.lease)
        _check_space(index, given.space)
        who = ASKER.get() or (lease.worker if lease else "")
        made = await asyncio.to_thread(_checked, given, index, leases, lease, who, holder.settings.batch_documents)
        outcomes = await holder.write(lambda index: index.reencode(made))
        leases.settle(given.lease, outcomes)
        for one in made:
            if outcomes[one.id] == "wrong":
                leases.note_wrong(who, one.id, one.version)
        stored = sum(outcome in ("stored", "done") for outcome in outcomes.values())
        note(request, documents=stored)
        if not stored:
            raise _unfit(outcomes)
        return json_answer({"stored": stored, "outcomes": outcomes})


def _checked(
    given: ResultsGiven, index: Index, leases: Leases, lease: Lease | None, who: str, most: int
) -> list[Reencoded]:
    """The vectors of a request; who sent wrong ones is remembered."""
    try:
        check_proof(given.probe, _probe_vectors(index), lease.probe if lease else None, index.pair.space)
        return decoded(given.results, index.pair.space, most)
    except Problem as problem:
        if problem.code == "wrong_vectors" and (problem.param or "").startswith("probe"):
            log.warning("the worker %r failed the probe and gets nothing for a while: %s", who, problem)
            leases.bar(who)
        elif problem.code == "wrong_vectors":
            number = int((problem.param or "").split(".")[1])
            leases.note_wrong(who, given.results[number].id, given.results[number].version)
        raise


def _unfit(outcomes: Mapping[str, Outcome]) -> Problem:
    wrong = [id_ for id_, outcome in outcomes.items() if outcome == "wrong"]
    if wrong:
        return Problem(
            "wrong_vectors",
            f"there are not as many vectors as passages for {', '.join(map(repr, wrong[:5]))}: one for each is needed",
            param="results",
        )
    return Problem(
        "stale_version",
        "every one of these documents was changed or deleted meanwhile: drop their vectors and lease again",
        param="results",
    )


def _lease(served: ServedIndex, index: Index, asked: LeaseAsked) -> dict[str, Any]:
    leases = served.leases
    _check_space(index, asked.space)
    who = ASKER.get() or asked.worker
    if leases.barred(who):
        raise Problem(
            "barred_worker",
            f"the encoder of {who or 'this worker'} failed the probe: start it with the pair of the index, and wait "
            "ten minutes or use another key",
        )
    texts = _probe_texts(index)
    most = min(asked.most, served.holder.settings.lease_documents)

    def find(held: Collection[str]) -> list[Waiting]:
        waiting = index.waiting(most, {*held, *asked.skip})
        return next(grouped(waiting, lambda one: sum(map(len, one.contents)), _CHARACTERS), [])

    lease, waiting = leases.grant(who, find, len(texts))
    return {
        "lease": lease.id if lease else None,
        "seconds": leases.seconds,
        "space": index.pair.space.id,
        "documents": [{"id": one.id, "version": one.version, "passages": one.contents} for one in waiting],
        "probe": {"number": lease.probe, "text": texts[lease.probe]} if lease and texts else None,
    }


def _check_space(index: Index, space: str) -> None:
    needed = index.pair.space.id
    if space != needed:
        raise Problem(
            "invalid_request",
            f"the index is in the space {needed}, the worker's encoder in {space}: start it with the pair of the index",
            param="space",
        )


def _probe(index: Index) -> dict[str, Any]:
    space, vectors = index.pair.space, _probe_vectors(index)
    packed = base64.b64encode(vectors.astype("<f4").tobytes()).decode()
    return {"space": space.id, "dimension": space.dimension, "texts": _probe_texts(index), "vectors": packed}


def _probe_texts(index: Index) -> list[str]:
    return read_stored_probe(index.pair.path, index.pair.space)[0] if _has_probe(index) else []


def _probe_vectors(index: Index) -> Vectors:
    none = np.empty((0, index.pair.space.dimension), dtype=np.float32)
    return read_stored_probe(index.pair.path, index.pair.space)[1] if _has_probe(index) else none


def _has_probe(index: Index) -> bool:
    return (index.pair.path / "probe.json").is_file()
