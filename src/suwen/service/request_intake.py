"""What is turned away before any work is done for it: strangers, floods, bodies too long, too deep or too slow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suwen.service.holder import Holder
from suwen.service.json_bounds import Bounds, Count, clearly_within
from suwen.service.keys import Role, allowed, presented_key
from suwen.service.places import ASKER, Kind, Shed
from suwen.service.problems import Problem, error_response

_BODIES = frozenset({"POST", "PUT", "PATCH"})
#: Bodies held at once for the places of one kind, in units of the longest one, and by one key: bounds memory whatever
#: the number of clients, and lets nobody keep the others out by sending slowly.
_BODIES_HELD, _BODIES_OF_A_KEY = 8, 4
#: A body may take a second longer for each of these it has sent.
_LEAST_RATE = 64 * 1024


class Sort(NamedTuple):
    """What sort of request it is: who may send it (None: any key), which place it will take, how its body comes."""

    role: Role | None = None
    place: Kind = "read"
    body: Literal["short", "long", "streamed"] = "short"


_SHORT = Sort()
#: Requests by the end of their address; all others are short.
_SORTS = {
    "/documents": Sort("write", "write", "long"),
    "/documents/delete": Sort("write", "write", "long"),
    "/worker/results": Sort("worker", "write", "long"),
    "/v1/embeddings": Sort("read", "encode", "long"),
    "/v1/rerank": Sort("read", "encode", "long"),
    "/imports": Sort("write", "write", "streamed"),
}


class Intake:
    """The inner layer: who asks, from where, and with what body. What it lets through is whole and in bounds."""

    def __init__(self, app: ASGIApp, holder: Holder) -> None:
        self._app, self._holder = app, holder
        self._held: Counter[tuple[str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer it with its problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parts: list[bytes] = []
        sort = _sort(scope)
        try:
            self._admit(scope, sort)
            if scope["method"] not in _BODIES or sort.body == "streamed":
                await self._app(scope, receive, send)
                return
            with self._holding(sort) as hold:
                if await self._body(scope, receive, parts, self._bounds(sort), hold):
                    await self._app(scope, _replayed(_joined(parts), receive), send)
        except Problem as problem:
            scope["suwen.noted"]["code"] = problem.code
            await error_response(problem, scope["suwen.id"])(scope, receive, send)

    @contextmanager
    def _holding(self, sort: Sort) -> Iterator[Callable[[int], None]]:
        """Count the bytes of a body until it is answered."""
        held, whose = 0, ((sort.place, ""), (sort.place, ASKER.get() or "nobody"))

        def hold(size: int) -> None:
            nonlocal held
            held += size
            for one in whose:
                self._held[one] += size

        try:
            yield hold
        finally:
            hold(-held)
            for one in whose:
                if not self._held[one]:
                    del self._held[one]

    def _admit(self, scope: Scope, sort: Sort) -> None:
        """Everything that the head shows."""
        holder = self._holder
        headers = scope["headers"]
        self._check_host(headers)
        if holder.keys.needed:
            key = scope["suwen.key"] = holder.keys.find(presented_key(headers))
            ASKER.set(key.name if key else "")
        if scope["method"] not in _BODIES:
            return
        if holder.keys.needed:
            # Each route says which role it needs; nobody gets to send a body who may not, nor a long one in vain.
            allowed(scope["suwen.key"], sort.role)
        if (_header(headers, b"content-encoding") or b"identity").lower() != b"identity":
            raise Problem("packed_body", "the body is packed: send it as it is, without Content-Encoding")
        if sort.body != "streamed":
            self._check_room(sort, _header(headers, b"content-length"))

    def _check_room(self, sort: Sort, length: bytes | None) -> None:
        """Whether there is a place for it, and for its body."""
        self._holder.places[sort.place].check()
        most, asker = self._bounds(sort).bytes, ASKER.get()
        if self._held[sort.place, ""] > _BODIES_HELD * most:
            raise Shed
        if asker and self._held[sort.place, asker] > _BODIES_OF_A_KEY * most:
            raise Shed(f"the key {asker!r} sends as much at once as one key may")
        if length is not None and length.isdigit() and int(length) > most:
            raise _too_large(most)

    def _bounds(self, sort: Sort) -> Bounds:
        settings = self._holder.settings
        if sort.body == "long":
            return Bounds(settings.body_bytes, settings.body_elements, settings.depth)
        return Bounds(min(settings.query_bytes, settings.body_bytes), settings.query_elements, settings.depth)

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

    async def _body(
        self, scope: Scope, receive: Receive, parts: list[bytes], bounds: Bounds, hold: Callable[[int], None]
    ) -> bool:
        """Read the body into ``parts``; whether all of it came. It is counted on the way, where it says it is JSON."""
        count = Count(bounds) if b"json" in (_header(scope["headers"], b"content-type") or b"").lower() else None
        length, patience = 0, Patience(self._holder.settings.slow_seconds)
        while True:
            message = await patience.next(receive, length)
            if message["type"] == "http.disconnect":
                return False
            part, more = message.get("body", b""), message.get("more_body", False)
            parts.append(part)
            length += len(part)
            hold(len(part))
            if length > bounds.bytes:
                raise _too_large(bounds.bytes)
            if count is not None and (more or length > len(part) or not clearly_within(part, bounds)):
                count.take(part)
            if not more:
                return True


class Patience:
    """How long a client may take to send a body: so many seconds, and a second more for each stretch it has sent.

    Args:
        seconds: The time for a body of no length.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._start = seconds, asyncio.get_running_loop().time()

    async def next(self, receive: Receive, length: int) -> Message:
        """The next part of a body of which so much has come.

        Raises:
            Problem: It did not come in time.
        """
        try:
            async with asyncio.timeout_at(self._start + self._seconds + length / _LEAST_RATE):
                return await receive()
        except TimeoutError:
            raise Problem(
                "slow_client",
                f"the body did not arrive within {self._seconds:g} seconds: send it faster, or less of it",
                headers={"Connection": "close"},
            ) from None


def _too_large(most: int) -> Problem:
    return Problem(
        "too_large", f"the body is longer than {most} bytes: send fewer documents at once, or POST them to /imports"
    )


def _sort(scope: Scope) -> Sort:
    path = scope["path"]
    return next((sort for end, sort in _SORTS.items() if path.endswith(end)), _SHORT)


def _joined(parts: list[bytes]) -> bytes:
    """The whole body, once: its parts are let go."""
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    parts.clear()
    return body


def _header(headers: Any, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the whole body first, and then what the client does."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
