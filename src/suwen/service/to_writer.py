"""What a reading process does not answer itself is passed on to the writing one, as it came, and so is the answer."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import NamedTuple

import h11
from starlette.types import ASGIApp, Receive, Scope, Send

from suwen.service.problems import Problem, error_response

#: What a reading process answers itself. All else changes the index, or tells of the one process that may.
_ASKED = ("/search", "/v1/embeddings", "/v1/rerank")
_PAGES = ("/", "/index", "/examples", "/healthz", "/openapi.json")
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
        writer: Where the rest is answered.
    """

    def __init__(self, app: ASGIApp, writer: Address) -> None:
        self._app, self._writer = app, writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or answered_here(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            reader, writer = await asyncio.open_connection(*self._writer)
        except OSError:
            problem = Problem(
                "stopping", "the process that writes is not there: try again", headers={"Retry-After": "1"}
            )
            await error_response(problem, secrets.token_hex(8))(scope, receive, send)
            return
        sending = asyncio.create_task(_send_request(scope, receive, writer))
        try:
            await _pass_answer(reader, send)
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, OSError, h11.LocalProtocolError):
                await sending
            writer.close()


def answered_here(method: str, path: str) -> bool:
    """Whether a request takes nothing but the index as it is."""
    if method == "POST":
        return path in _ASKED
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
