"""A route for JSON bodies: described by FastAPI, checked by pydantic, without what FastAPI does in between.

FastAPI finds out for each request what a function wants to be called with. Where that is always a body and the request,
it need not. It also tries one route after the other, inside three layers for errors and open files, which took a third
of the event loop's CPU time of a search: a route whose address is one string is found by it (see ``direct_handlers``).
And it parses every body on the event loop, whatever its length; here a long one is parsed and checked in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, cast

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from suwen.service.json_bounds import parsed

Endpoint = Callable[[BaseModel, Request], Awaitable[Response]]
Check = Callable[[Request], Awaitable[None]]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Direct = Callable[[Request, bytes], Coroutine[Any, Any, Response]]
#: Up to this many bytes a body is read where it is: the way to another thread and back takes longer.
_ON_THE_SPOT = 32 * 1024


class DirectRoute(APIRoute):
    """Calls ``endpoint(body, request)``, once the route's dependencies have let the request through.

    For endpoints whose first parameter is the body's model and whose second is the request, and for dependencies that
    take the request and give nothing back. Others keep FastAPI's own way. Use it as ``APIRouter(route_class=…)``.
    """

    #: How a request whose body is there is answered without FastAPI's part; None where it is needed.
    direct: Direct | None = None

    def get_route_handler(self) -> Handler:
        """How a request of this route is answered."""
        field = self.body_field
        model = None if field is None else field.field_info.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return super().get_route_handler()
        endpoint = cast(Endpoint, self.endpoint)
        checks = [cast(Check, dependency.dependency) for dependency in self.dependencies]

        async def direct(request: Request, body: bytes) -> Response:
            for check in checks:
                await check(request)
            kind = header(request.scope["headers"], b"content-type")
            if len(body) <= _ON_THE_SPOT:
                return await endpoint(read_body(model, kind, body), request)
            return await endpoint(await asyncio.to_thread(read_body, model, kind, body), request)

        async def handle(request: Request) -> Response:
            return await direct(request, await request.body())

        self.direct = direct
        return handle


def direct_handlers(routes: Iterable[BaseRoute]) -> dict[tuple[str, str], DirectRoute]:
    """Routes by method and address: those that take nothing from the address, and need nothing of FastAPI."""
    found = [route for route in routes if isinstance(route, DirectRoute) and route.direct]
    return {(method, one.path): one for one in found if not one.param_convertors for method in one.methods or ()}


def header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    """The first header of a name."""
    for name, value in headers:
        if name == wanted:
            return value
    return None


def read_body(model: type[BaseModel], kind: bytes | None, body: bytes) -> BaseModel:
    """The body as its model.

    Args:
        model: What it must be.
        kind: The header that says what it is.
        body: What was sent.

    Raises:
        Problem: It is not JSON.
        RequestValidationError: As FastAPI would tell it.
    """
    if not body:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    value = parsed(body) if kind is not None and b"json" in kind.lower() else None
    if not isinstance(value, dict):
        problem = {"type": "model_attributes_type", "loc": ("body",), "msg": "Input should be JSON", "input": None}
        raise RequestValidationError([problem])
    _check_known(model, value)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in problems]) from None


def _check_known(model: type[BaseModel], value: dict[str, Any]) -> None:
    # pydantic would make an error of every unknown field before it tells the first: there may be thousands.
    if model.model_config.get("extra") != "forbid":
        return
    known = model.__pydantic_fields__
    for name in value:
        if name not in known:
            problem = {"type": "extra_forbidden", "loc": ("body", name), "msg": "there is no such field", "input": None}
            raise RequestValidationError([problem])
