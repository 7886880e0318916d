"""What is turned away before any work is done for it: strangers, floods, bodies too long, too deep or too slow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suwen.errors import SuwenError
from suwen.service.direct_route import DirectRoute, header
from suwen.service.holder import Holder
from suwen.service.indexes import Indexes
from suwen.service.json_bounds import Bounds, Count, clearly_within
from suwen.service.keys import Role, allowed, presented_key
from suwen.service.places import ASKER, Kind, Shed
from suwen.service.problems import Problem, error_response
from suwen.service.serve_settings import DEFAULT

#: What is raised to be told to who asked.
ERRORS = (SuwenError, RequestValidationError, HTTPException)
Tell = Callable[[Request, Exception], Awaitable[Response]]
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
    "/embed": Sort("read", "encode", "long"),
    "/rerank": Sort("read", "encode", "long"),
    "/restore": Sort("write", "copy", "streamed"),
    "/imports": Sort("write", "write", "streamed"),
}


#: How addresses begin that are of one index: of the default one, or behind ``/indexes/NAME`` of another.
OF_AN_INDEX = frozenset(
    {
        "search",
        "cursors",
        "documents",
        "originals",
        "imports",
        "info",
        "readyz",
        "snapshot",
        "worker",
        "v1",
        "v2",
        "embed",
        "rerank",
    }
)


class Intake:
    """The inner layer: who asks, for which index, and with what body. What it lets through is whole and in bounds.

    Args:
        app: Answers.
        indexes: Those of the server.
        direct: Routes that are found by their address alone.
        tell: Makes an answer of an error, where such a route raises one.
    """

    def __init__(
        self, app: ASGIApp, indexes: Indexes, direct: Mapping[tuple[str, str], DirectRoute], tell: Tell
    ) -> None:
        self._app, self._indexes, self._shared = app, indexes, indexes.shared
        self._direct, self._tell = direct, tell
        self._held: Counter[tuple[str, str]] = Counter()
        settings = indexes.settings
        short = min(settings.query_bytes, settings.body_bytes)
        self._bounds = {
            "long": Bounds(settings.body_bytes, settings.body_elements, settings.depth),
            "short": Bounds(short, settings.query_elements, settings.depth),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or answer it with its problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        holder = None
        try:
            self._check_host(scope["headers"])
            self._find_key(scope)
            holder = self._send_to(scope)
            holder.visitors += 1
            sort = _sort(scope["path"])
            self._admit(scope, sort)
            if scope["method"] not in _BODIES or sort.body == "streamed":
                await self._app(scope, receive, send)
                return
            body = _Body((sort.place, ""), (sort.place, ASKER.get() or "nobody"))
            try:
                if await self._read(scope, receive, body, self._bounds[sort.body]):
                    await self._answer(scope, body.joined(), receive, send)
            finally:
                self._let_go(body)
        except Problem as problem:
            scope["suwen.noted"]["code"] = problem.code
            await error_response(problem, scope["suwen.id"])(scope, receive, send)
        finally:
            if holder is not None:
                holder.visitors -= 1

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Have a request answered, without the router where its address alone says by what."""
        route = self._direct.get((scope["method"], scope["path"]))
        if route is None or route.direct is None:
            await self._app(scope, _replayed(body, receive), send)
            return
        scope["route"], scope["path_params"] = route, {}
        request = Request(scope, receive, send)
        try:
            response = await route.direct(request, body)
        except ERRORS as error:
            response = await self._tell(request, error)
        await response(scope, receive, send)

    def _let_go(self, body: _Body) -> None:
        for one in body.whose:
            self._held[one] -= body.length
            if not self._held[one]:
                del self._held[one]

    def _find_key(self, scope: Scope) -> None:
        if self._shared.keys.needed:
            key = scope["suwen.key"] = self._shared.keys.find(presented_key(scope["headers"]))
            ASKER.set(key.name if key else "")

    def _send_to(self, scope: Scope) -> Holder:
        """Find the index that a request is for, and send it there: its address becomes that of the only index."""
        name, rest = addressed(scope["path"])
        keys, key = self._shared.keys, scope["suwen.key"]
        if name != DEFAULT and keys.needed and key is None:
            # Nobody without a key finds out which indexes there are.
            allowed(None, None)
        limited = key is not None and key.indexes and rest.partition("/")[2].partition("/")[0] in OF_AN_INDEX
        if limited and name not in key.indexes and not set(key.indexes) & self._indexes.names(name):
            only = ", ".join(key.indexes)
            raise Problem("forbidden", f"the key {key.name!r} is only for the indexes {only}: ask /indexes/NAME/…")
        served = scope["suwen.served"] = self._indexes.find(name)
        scope["suwen.every"] = rest == scope["path"]
        if rest != scope["path"]:
            scope["path"], scope["raw_path"] = rest, quote(rest).encode()
        if len(self._indexes) > 1:
            scope["suwen.noted"]["index"] = served.holder.name
        return served.holder

    def _admit(self, scope: Scope, sort: Sort) -> None:
        """Everything else that the head shows."""
        headers = scope["headers"]
        if scope["method"] not in _BODIES:
            return
        if self._shared.keys.needed:
            # Each route says which role it needs; nobody gets to send a body who may not, nor a long one in vain.
            allowed(scope["suwen.key"], sort.role)
        if (header(headers, b"content-encoding") or b"identity").lower() != b"identity":
            raise Problem("packed_body", "the body is packed: send it as it is, without Content-Encoding")
        if sort.body != "streamed":
            self._check_room(sort, header(headers, b"content-length"))

    def _check_room(self, sort: Sort, length: bytes | None) -> None:
        """Whether there is a place for it, and for its body."""
        self._shared.places[sort.place].check()
        most, asker = self._bounds[sort.body].bytes, ASKER.get()
        if self._held[sort.place, ""] > _BODIES_HELD * most:
            raise Shed
        if asker and self._held[sort.place, asker] > _BODIES_OF_A_KEY * most:
            raise Shed(f"the key {asker!r} sends as much at once as one key may")
        if length is not None and length.isdigit() and int(length) > most:
            raise _too_large(most)

    def _check_host(self, headers: Any) -> None:
        hosts = self._shared.settings.hosts
        if not hosts:
            return
        asked = (header(headers, b"host") or b"").decode("latin-1").lower()
        name = asked[1:].partition("]")[0] if asked.startswith("[") else asked.partition(":")[0]
        if name not in hosts:
            raise Problem(
                "forbidden_host",
                f"this server is not {name!r}: ask it by one of {', '.join(hosts)}, or add the name to hosts",
            )

    async def _read(self, scope: Scope, receive: Receive, body: _Body, bounds: Bounds) -> bool:
        """Read the body; whether all of it came. It is counted on the way, where it says it is JSON."""
        count: Count | None = None
        patience = Patience(self._shared.settings.slow_seconds)
        while True:
            message = await patience.next(receive, body.length)
            if message["type"] == "http.disconnect":
                return False
            part, more = message.get("body", b""), message.get("more_body", False)
            body.take(part)
            for one in body.whose:
                self._held[one] += len(part)
            if body.length > bounds.bytes:
                raise _too_large(bounds.bytes)
            if count is None and not more and clearly_within(part, bounds):
                return True
            if b"json" in (header(scope["headers"], b"content-type") or b"").lower():
                count = count or Count(bounds)
                count.take(part)
            if not more:
                return True


class _Body:
    """A body as it comes, and who holds it."""

    def __init__(self, *whose: tuple[str, str]) -> None:
        self.whose, self.length = whose, 0
        self._parts: list[bytes] = []

    def take(self, part: bytes) -> None:
        self._parts.append(part)
        self.length += len(part)

    def joined(self) -> bytes:
        """The whole body, once: its parts are let go."""
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return whole


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
        "too_large",
        f"the body is longer than {most} bytes: send less of it; of documents fewer at once, or POST them to /imports",
    )


def addressed(path: str) -> tuple[str, str]:
    """The name of the index that an address is of, and the rest of it.

    >>> addressed("/indexes/drugs/search"), addressed("/search"), addressed("/indexes/drugs")
    (('drugs', '/search'), ('default', '/search'), ('default', '/indexes/drugs'))
    """
    if path.startswith("/indexes/"):
        name, _, rest = path.removeprefix("/indexes/").partition("/")
        if rest.partition("/")[0] in OF_AN_INDEX:
            return name, f"/{rest}"
    return DEFAULT, path


@lru_cache(256)
def _sort(path: str) -> Sort:
    return next((sort for end, sort in _SORTS.items() if path.endswith(end)), _SHORT)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the whole body first, and then what the client does."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
