"""The application: every router put together, and every error in one shape. Endpoints live in their own modules."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from suwen import __version__
from suwen.errors import SuwenError
from suwen.service import (
    documents_api,
    embeddings_api,
    health_api,
    imports_api,
    rerank_api,
    search_api,
    web_pages,
    worker_api,
)
from suwen.service.holder import Holder
from suwen.service.problems import CODES, Problem, as_problem, error_response, invalid_request
from suwen.service.request_intake import Intake
from suwen.service.request_log import Envelope, note, request_id

log = logging.getLogger("suwen.service")
_ABOUT = """Medical text retrieval over one index. Errors have one shape; `error.code` is stable, `error.message` is for
people. Send `Authorization: Bearer KEY` where the server has keys."""


def create_app(holder: Holder) -> FastAPI:
    """The service of one index.

    Args:
        holder: Has the settings; opens the index when the application starts, and closes it when it stops.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await holder.start()
        try:
            yield
        finally:
            await holder.stop()

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
    for module in (
        health_api,
        search_api,
        documents_api,
        imports_api,
        embeddings_api,
        rerank_api,
        worker_api,
        web_pages,
    ):
        # Not include_router: a nested router is matched a second time for every request, a fifth of what one costs.
        app.router.routes.extend(module.routes(holder).routes)
    _tell_errors(app)
    app.add_middleware(Intake, holder=holder)
    if holder.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(holder.settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-api-key", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(Envelope, holder=holder)
    app.openapi = _openapi(app, holder)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI, holder: Holder) -> Callable[[], dict[str, Any]]:
    """The API's description; it asks for a key only where the server does."""
    plain = app.openapi

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = plain()
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


def _tell_errors(app: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        problem = _as_problem(request, error)
        if problem.status >= 500 and isinstance(error, SuwenError) and not isinstance(error, Problem):
            log.error("%s", error, extra={"request_id": request_id(request)})
        note(request, code=problem.code)
        return error_response(problem, request_id(request))

    for kind in (SuwenError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, answer)


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
        return Problem("not_found", "there is no such address: /openapi.json lists them")
    code = "invalid_json" if error.status_code == 400 else "internal"
    return Problem(code, str(error.detail) if CODES[code].status < 500 else "the server failed on this request")


def _methods(request: Request) -> list[str]:
    """What may be done at an address: several routes may share it, and the router names those of the first alone."""
    asked = [(method, {**request.scope, "method": method}) for method in ("DELETE", "GET", "HEAD", "POST")]
    routes = request.app.routes
    return [method for method, scope in asked if any(route.matches(scope)[0] == Match.FULL for route in routes)]
