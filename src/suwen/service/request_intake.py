"""What is turned away before any work is done for it: strangers, floods, bodies too long, too deep or too slow."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suwen.service.holder import Holder, Shed
from suwen.service.keys import allowed, presented_key
from suwen.service.problems import Problem, error_response

_BODIES = frozenset({"POST", "PUT", "PATCH"})
#: Bodies held at once, in units of the longest one: bounds memory whatever the number of clients.
_BODIES_HELD = 8
#: A body may take a second longer for each of these it has sent.
_LEAST_RATE = 64 * 1024
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Intake:
    """The inner layer: who asks, from where, and with what body. What it lets through is whole and in bounds."""

    def __init__(self, app: ASGIApp, holder: Holder) -> None:
        self._app, self._holder = app, holder
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer it with its problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held = 0
        try:
            self._admit(scope)
            if scope["method"] not in _BODIES:
                await self._app(scope, receive, send)
                return
            body = bytearray()
            try:
                whole = await self._body(scope, receive, body)
                if not whole:
                    return
                held = len(body)
                if b"json" in (_header(scope["headers"], b"content-type") or b"").lower() and body:
                    check_json(body, self._holder.settings.depth)
            finally:
                self._held -= len(body) - held
            await self._app(scope, _replayed(bytes(body), receive), send)
        except Problem as problem:
            scope["suwen.noted"]["code"] = problem.code
            await error_response(problem, scope["suwen.id"])(scope, receive, send)
        finally:
            self._held -= held

    def _admit(self, scope: Scope) -> None:
        """Everything that the head shows."""
        holder = self._holder
        headers = scope["headers"]
        self._check_host(headers)
        if len(holder.keys):
            scope["suwen.key"] = holder.keys.find(presented_key(headers))
        if scope["method"] not in _BODIES:
            return
        if len(holder.keys):
            # Each route says which role it needs; nobody without a key gets to send a body.
            allowed(scope["suwen.key"], "read")
        if holder.slots.full or self._held > _BODIES_HELD * holder.settings.body_bytes:
            raise Shed
        length = _header(headers, b"content-length")
        if length is not None and length.isdigit() and int(length) > holder.settings.body_bytes:
            raise self._too_large()

    def _check_host(self, headers: Any) -> None:
        hosts = self._holder.settings.hosts
        if not hosts:
            return
        asked = (_header(headers, b"host") or b"").decode("latin-1").lower()
        name = asked[1:].partition("]")[0] if asked.startswith("[") else asked.partition(":")[0]
        if name not in hosts:
            raise Problem(
                "forbidden_host",
                f"this server is not {name!r}: ask it by one of {', '.join(hosts)}, or add the name to hosts",
            )

    async def _body(self, scope: Scope, receive: Receive, body: bytearray) -> bool:
        """Read the body into ``body``; whether all of it came."""
        settings = self._holder.settings
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(start + settings.slow_seconds + len(body) / _LEAST_RATE):
                    message = await receive()
            except TimeoutError:
                raise Problem(
                    "slow_client",
                    f"the body did not arrive within {settings.slow_seconds:g} seconds: send it faster, or less of it",
                    headers={"Connection": "close"},
                ) from None
            if message["type"] == "http.disconnect":
                return False
            part = message.get("body", b"")
            body += part
            self._held += len(part)
            if len(body) > settings.body_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return True

    def _too_large(self) -> Problem:
        most = self._holder.settings.body_bytes
        return Problem("too_large", f"the body is longer than {most} bytes: send fewer documents at once, or split one")


def check_json(body: bytes | bytearray, depth: int) -> None:
    """Raise ``invalid_json`` unless the body is JSON by the letter of the standard, and nested at most so deep."""
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise Problem("invalid_json", f"the body is not JSON ({problem}): check quotes, commas and encoding") from None
    if not nested_within(body, depth):
        raise Problem("invalid_json", f"the body is nested deeper than {depth} levels: flatten it")


def nested_within(body: bytes | bytearray, depth: int) -> bool:
    """Whether the brackets of a JSON text are nested at most so deep.

    Works on whole stretches at a time: a loop over the brackets of a long body would hold up everybody else.
    """
    if body.count(b"[") + body.count(b"{") <= depth:
        return True
    rest = bytes(_STRING.sub(b"", body)).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(depth):
        rest = rest.replace(b"[]", b"")
        if not rest:
            return True
    return False


def _header(headers: Any, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the whole body first, and then what the client does."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
