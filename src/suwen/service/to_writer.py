"""What a reading process does not answer itself is passed on to the writing one, as it came, and so is the answer."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import NamedTuple

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suwen.service.followed_indexes import FollowedIndexes
from suwen.service.problems import Problem, error_response
from suwen.service.request_intake import addressed

#: What a reading process answers itself. All else changes an index, tells of the one process that may, or is kept there
#: alone, as cursors are.
_ASKED = ("/search", "/v1/embeddings", "/v1/rerank", "/v2/rerank", "/rerank", "/embed")
_PAGES = ("/", "/index", "/healthz", "/openapi.json")
_OWN_HEADERS = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"expect", b"upgrade"})
_PART = 64 * 1024


class Address(NamedTuple):
    """Where the writing process listens for the reading ones."""

    host: str
    port: int


class ToWriter:
    """Answers reads by an application of this process, and passes the rest on.

    Args:
        app: Answers here.
        indexes: Those that it has.
        writer: Where the rest is answered.
    """

    def __init__(self, app: ASGIApp, indexes: FollowedIndexes, writer: Address) -> None:
        self._app, self._indexes, self._writer = app, indexes, writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or is_page(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        name, rest = addressed(scope["path"])
        asked = rest in _ASKED if scope["method"] == "POST" else rest == "/examples" and scope["method"] == "GET"
        served = self._indexes.here(name) if asked else None
        if served is None:
            await self._pass_on(scope, receive, send)
            return
        # It stays open until this is answered.
        served.holder.visitors += 1
        try:
            await self._app(scope, receive, send)
        finally:
            served.holder.visitors -= 1

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self._writer)
        except OSError:
            await _without_writer(scope, receive, send)
            return
        sending = asyncio.create_task(_send_request(scope, receive, writer))
        begun = False

        async def passed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await _pass_answer(reader, passed)
        except (OSError, h11.RemoteProtocolError):
            # A client that left wants no answer; a writer that fell in the middle of one leaves half of it, as its own
            # connections do.
            left = sending.done() and not sending.cancelled() and sending.exception() is None
            if begun or left:
                return
            await _without_writer(scope, receive, send)
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, OSError, h11.LocalProtocolError):
                await sending
            writer.close()


async def _without_writer(scope: Scope, receive: Receive, send: Send) -> None:
    problem = Problem("stopping", "the process that writes is not there: try again", headers={"Retry-After": "1"})
    await error_response(problem, secrets.token_hex(8))(scope, receive, send)


def is_page(method: str, path: str) -> bool:
    """Whether a request is for what every process has alike."""
    return method in ("GET", "HEAD") and (path in _PAGES or path.startswith("/web/"))


async def _send_request(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> None:
    """The request as it came, its body as it comes; a client that leaves takes it back."""
    ours = h11.Connection(h11.CLIENT)
    headers = [(name, value) for name, value in scope["headers"] if name not in _OWN_HEADERS]
    named = {name for name, _ in headers}
    # What came without a length came in pieces.
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]) and b"content-length" not in named:
        headers.append((b"transfer-encoding", b"chunked"))
    headers.append((b"connection", b"close"))
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    writer.write(ours.send(h11.Request(method=scope["method"], target=target, headers=headers)) or b"")
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            writer.transport.abort()
            return
        if body := message.get("body", b""):
            writer.write(ours.send(h11.Data(data=body)) or b"")
        await writer.drain()
        more = message.get("more_body", False)
    writer.write(ours.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    # A client that leaves before it is answered is told of too.
    while (await receive())["type"] != "http.disconnect":
        pass
    writer.transport.abort()


async def _pass_answer(reader: asyncio.StreamReader, send: Send) -> None:
    theirs = h11.Connection(h11.CLIENT)
    # The parser wants to know what was asked; the answer of every method but HEAD is read alike.
    theirs.send(h11.Request(method="GET", target="/", headers=[("host", "writer")]))
    theirs.send(h11.EndOfMessage())
    while True:
        event = theirs.next_event()
        if event is h11.NEED_DATA:
            theirs.receive_data(await reader.read(_PART))
        elif isinstance(event, h11.Response):
            kept = [(name, value) for name, value in event.headers if name not in _OWN_HEADERS]
            await send({"type": "http.response.start", "status": event.status_code, "headers": kept})
        elif isinstance(event, h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        elif isinstance(event, h11.EndOfMessage):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
