"""The application: every router put together, and every error in one shape. Endpoints live in their own modules."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from suwen import __version__
from suwen.errors import SuwenError
from suwen.service import (
    api_page,
    cursors_api,
    documents_api,
    embeddings_api,
    health_api,
    imports_api,
    indexes_api,
    originals_api,
    rerank_api,
    search_api,
    tei_api,
    web_pages,
    worker_api,
)
from suwen.service.direct_route import direct_handlers
from suwen.service.holder import Holder
from suwen.service.indexes import Indexes
from suwen.service.packing import Packing
from suwen.service.problems import CODES, Problem, as_problem, error_response, invalid_request
from suwen.service.request_intake import ERRORS, OF_AN_INDEX, Intake
from suwen.service.request_log import Envelope, note, request_id
from suwen.service.restoring import Restoring
from suwen.service.serve_settings import DEFAULT

log = logging.getLogger("suwen.service")
_ABOUT = """Medical text retrieval over one index. Errors have one shape; `error.code` is stable, `error.message` is for
people. Send `Authorization: Bearer KEY` where the server has keys."""

#: Whose addresses stand under `/indexes/NAME` too.
_OF_AN_INDEX = (
    search_api,
    cursors_api,
    documents_api,
    originals_api,
    imports_api,
    embeddings_api,
    rerank_api,
    tei_api,
    worker_api,
)


def create_app(served: Holder | Indexes) -> FastAPI:
    """The service of one index, and of those that its settings name beside it.

    Args:
        served: Has the settings; opens the indexes when the application starts, and closes them when it stops.
    """
    indexes = Indexes(served) if isinstance(served, Holder) else served
    holder, restoring = indexes.first, Restoring(indexes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await indexes.start()
        restoring.start()
        try:
            yield
        finally:
            indexes.shared.end()
            await restoring.stop()
            await indexes.stop()

    app = FastAPI(
        title="suwen",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.holder = holder
    routers = [
        health_api.routes(indexes),
        indexes_api.routes(indexes, restoring),
        *(module.routes() for module in _OF_AN_INDEX),
        web_pages.routes(holder),
    ]
    for router in routers:
        # Not include_router: a nested router is matched a second time for every request, a fifth of what one costs.
        app.router.routes.extend(router.routes)
    app.openapi = _openapi(app, holder)  # type: ignore[method-assign]
    app.router.routes.extend(api_page.routes(app.openapi).routes)
    for kind in ERRORS:
        app.add_exception_handler(kind, _tell)
    app.add_middleware(Intake, indexes=indexes, direct=direct_handlers(app.router.routes), tell=_tell)
    if holder.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(holder.settings.cors_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["authorization", "content-type", "x-api-key", "x-request-id", "traceparent", "tracestate"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(Packing)
    app.add_middleware(Envelope, shared=indexes.shared)
    return app


def entrance(app: FastAPI) -> ASGIApp:
    """The application without what FastAPI and Starlette do around it, a twentieth of the loop's part of a search.

    Faults are the envelope's to tell, and spans are told by our own: see :mod:`.trace_context`.
    """
    layers: ASGIApp = app.build_middleware_stack().app  # type: ignore[attr-defined]

    def enter(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        scope["app"] = app
        return layers(scope, receive, send)

    return enter


def _openapi(app: FastAPI, holder: Holder) -> Callable[[], dict[str, Any]]:
    """The API's description; it asks for a key only where the server does."""
    plain = app.openapi

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = plain()
            _tell_places(schema)
            if holder.keys.needed:
                schema["components"]["securitySchemes"] = {
                    "bearer": {"type": "http", "scheme": "bearer"},
                    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                }
                for methods in schema["paths"].values():
                    for operation in methods.values():
                        if "401" in operation["responses"]:
                            operation["security"] = [{"bearer": []}, {"header": []}]
            app.openapi_schema = schema
        return app.openapi_schema

    return describe


def _tell_places(schema: dict[str, Any]) -> None:
    """Say of each address of an index that there is one of the kind for every index."""
    name = {"default": DEFAULT, "description": "The name of an index, or an alias."}
    default = {"url": "/", "description": "The default index."}
    named = {"url": "/indexes/{index}", "description": "The index of this name.", "variables": {"index": name}}
    for path, methods in schema["paths"].items():
        if path.split("/")[1] in OF_AN_INDEX:
            for operation in methods.values():
                operation["servers"] = [default, named]


async def _tell(request: Request, error: Exception) -> Response:
    """An error as it is answered."""
    problem = _as_problem(request, error)
    if problem.status >= 500 and isinstance(error, SuwenError) and not isinstance(error, Problem):
        log.error("%s", error, extra={"request_id": request_id(request)})
    note(request, code=problem.code)
    return error_response(problem, request_id(request))


def _as_problem(request: Request, error: Exception) -> Problem:
    if isinstance(error, RequestValidationError):
        return invalid_request(error.errors()[0])
    if isinstance(error, HTTPException):
        return _unmatched(request, error)
    assert isinstance(error, SuwenError)
    return as_problem(error)


def _unmatched(request: Request, error: HTTPException) -> Problem:
    if error.status_code == 405:
        allow = ", ".join(_methods(request))
        return Problem(
            "method_not_allowed",
            f"{request.method} is not for this address: it takes {allow or 'another method'}",
            headers={"Allow": allow},
        )
    if error.status_code == 404:
        return Problem("not_found", "there is no such address: /api shows them, /openapi.json lists them for programs")
    code = "invalid_json" if error.status_code == 400 else "internal"
    return Problem(code, str(error.detail) if CODES[code].status < 500 else "the server failed on this request")


def _methods(request: Request) -> list[str]:
    """What may be done at an address: several routes may share it, and the router names those of the first alone."""
    asked = [(method, {**request.scope, "method": method}) for method in ("DELETE", "GET", "POST", "PUT")]
    routes = request.app.routes
    found = [method for method, scope in asked if any(route.matches(scope)[0] == Match.FULL for route in routes)]
    # Whatever may be got may be asked for by its head: see the envelope.
    return sorted([*found, "HEAD"]) if "GET" in found else found
