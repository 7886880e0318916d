"""Whether the service is well and what it serves: ``/healthz``, ``/readyz``, ``/metrics``, ``/info``."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, get_args

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from suwen import __version__
from suwen.errors import SuwenError
from suwen.index.recall import measure_recall
from suwen.retrieve.examples import drawn_examples
from suwen.retrieve.ranking import Mode
from suwen.retrieve.retriever import Index
from suwen.retrieve.rewriting import may_rewrite
from suwen.service.answers import (
    INFO,
    ExamplesAnswer,
    InfoAnswer,
    RecallAnswer,
    StatusAnswer,
    answered,
    json_answer,
)
from suwen.service.direct_route import DirectRoute
from suwen.service.holder import Holder
from suwen.service.indexes import Indexes
from suwen.service.keys import needs
from suwen.service.problems import documented
from suwen.service.request_checks import Asked
from suwen.service.served_index import holder_of
from suwen.service.service_metrics import CONTENT_TYPE

_OPEN = ("forbidden_host", "internal")


class Sample(Asked):
    """How much to look at."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sample": 100}]})

    sample: int = Field(default=100, ge=1, le=500, description="How many passages serve as queries.")


def routes(indexes: Indexes) -> APIRouter:
    """The endpoints that look at the service itself."""
    router = APIRouter(route_class=DirectRoute, tags=["service"], default_response_class=Response)
    _add_health(router)
    _add_metrics(router, indexes)
    _add_ready(router, indexes)
    _add_info(router)
    return router


def _add_health(router: APIRouter) -> None:
    @router.get(
        "/healthz",
        responses=answered(StatusAnswer, "Alive.", {"status": "ok"}) | documented(common=_OPEN),
        summary="Alive",
    )
    async def healthz() -> Response:
        """Answers as long as the process does."""
        return json_answer({"status": "ok"})


def _add_ready(router: APIRouter, indexes: Indexes) -> None:
    waiting = ("loading", "stopping", "index_locked", "damaged_index", "index_failed", "writer_stuck")

    @router.get(
        "/readyz",
        responses=answered(StatusAnswer, "Ready.", {"status": "ready"})
        | documented(*waiting, common=(*_OPEN, "unauthorized", "unknown_index", "forbidden")),
        summary="Ready",
    )
    async def readyz(request: Request) -> Response:
        """Whether all is well with every index, or with the one of /indexes/NAME: open, sound, its writer not stuck."""
        every = [one.holder for one in indexes if indexes.needed(one.holder)]
        for holder in every if request.scope["suwen.every"] else [holder_of(request)]:
            if (trouble := holder.trouble()) is not None:
                raise trouble
            _ = holder.index  # Raises while it is not open.
        return json_answer({"status": "ready"})


def _add_metrics(router: APIRouter, indexes: Indexes) -> None:
    plain = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}

    @router.get(
        "/metrics",
        responses={200: plain, **documented(common=_OPEN)},
        summary="Numbers for Prometheus",
    )
    async def metrics() -> Response:
        """Latencies (encode and search apart), queue, errors, size of each index, freshness lag, process and build."""
        told = indexes.shared.metrics
        for holder in [one.holder for one in indexes]:
            # Numbers are wanted most when the server is in trouble: those of the index are then the last known.
            with suppress(SuwenError):
                numbers = await holder.read(partial(_numbers, holder), "info", "numbers")
                told.measured(holder.name, *numbers)
        return Response(told.exposed(), media_type=CONTENT_TYPE)


def _numbers(holder: Holder, index: Index) -> tuple[dict[str, Any], dict[str, Any]]:
    return index.stats()._asdict(), holder.freshness(index)


def _add_info(router: APIRouter) -> None:
    reading = [Depends(needs("read"))]

    @router.get(
        "/info",
        dependencies=reading,
        responses=answered(InfoAnswer, "What is served.", INFO) | documented(),
        summary="What is served",
    )
    async def info(request: Request) -> Response:
        """The index, its space, the pair, what waits for the document encoder, the limits, and who asks."""
        holder = holder_of(request)
        told = await holder.read(lambda index: _about(holder, index), "info")
        key = request.scope["suwen.key"]
        return json_answer({**told, "role": key.role if key else None})

    @router.get(
        "/examples",
        dependencies=reading,
        responses=answered(ExamplesAnswer, "The examples.", {"examples": ["高血压可有哪些不适"]}) | documented(),
        summary="Things to ask",
    )
    async def examples(request: Request) -> Response:
        """Titles and first sentences drawn from all over the index, for a search page to propose."""
        return json_answer({"examples": await holder_of(request).read(drawn_examples, "info")})

    @router.post(
        "/info/recall",
        dependencies=reading,
        responses=answered(RecallAnswer, "The recall.", {"recall": 0.995, "k": 10, "queries": 100}) | documented(),
        summary="Check the index's recall",
    )
    async def check_recall(asked: Sample, request: Request) -> Response:
        """Ask for passages as if they were queries, and compare with exact search. Reads every vector."""
        measured = await holder_of(request).read(
            lambda index: measure_recall(index.engine, asked.sample), "recall", "recall"
        )
        return json_answer(measured._asdict())


def _about(holder: Holder, index: Index) -> dict[str, Any]:
    stats, pair, settings = index.stats(), index.pair, holder.settings
    counted = (
        *("documents", "passages", "questions", "deleted"),
        *("bytes_truth", "bytes_derived", "fields", "encoders", "format"),
    )
    limits = (
        "concurrency",
        "seconds",
        "body_bytes",
        "import_bytes",
        "batch_documents",
        "batch_passages",
        "embedding_inputs",
        "rerank_documents",
        "text_characters",
        "query_characters",
        "most_hits",
    )
    return {
        "name": "suwen",
        "version": __version__,
        "index": {"name": holder.name, **{name: getattr(stats, name) for name in counted}},
        "space": {"id": pair.space.id, "dimension": pair.space.dimension},
        "pair": {
            "name": pair.name,
            "tiers": pair.tiers,
            "take_instruction": [name for name in pair.tiers if pair.manifest.tiers[name].prompts.instruction],
            "default_tier": pair.default_tier,
            "document": pair.manifest.document.kind,
        },
        "modes": list(get_args(Mode)),
        "freshness": holder.freshness(index),
        "limits": {name: getattr(settings, name) for name in limits},
        "read_only": settings.read_only,
        "reviews": settings.reviews is not None,
        "hyde": may_rewrite(),
        "originals": settings.books is not None,
        "notices": list(filter(None, [index.wordings.left_out()])),
    }
