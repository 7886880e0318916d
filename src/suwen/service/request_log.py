"""What every request leaves behind (a log line, its numbers) and every answer carries (its id, security headers)."""

from __future__ import annotations

import logging
import random
import re
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, TextIO

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suwen.service.problems import Problem, error_response
from suwen.service.shared import Shared
from suwen.service.trace_context import Tracing, trace_of

log = logging.getLogger("suwen.service")

#: Only the page's own files load and run, whatever the documents hold.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def note(request: Request, **values: object) -> None:
    """Add to the request's log line: counts such as ``hits=10``, never text."""
    request.scope["suwen.noted"].update(values)


def request_id(request: Request) -> str:
    """The request's id, as its answer and its log line carry it."""
    return str(request.scope["suwen.id"])


class Envelope:
    """The outermost layer: gives a request its id, and sees to it that it is answered, counted and logged."""

    def __init__(self, app: ASGIApp, shared: Shared) -> None:
        self._app, self._shared = app, shared
        self._tracing = Tracing(shared.settings.traces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        id_ = scope["suwen.id"] = _id_of(scope)
        scope["suwen.noted"] = {}
        scope["suwen.key"], scope["suwen.keys"] = None, self._shared.keys
        trace = trace_of(scope["headers"])
        if trace is not None:
            scope["suwen.noted"] |= trace._asdict()
        # The head of what may be got: uvicorn leaves the body out, by what its own record of the request says.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_headers(message.get("headers", []), id_)
            await send(message)

        with self._tracing.span(scope) as span:
            try:
                await self._app(inner, receive, sending)
            except Exception:
                log.exception("request %s failed", id_, extra={"request_id": id_})
                scope["suwen.noted"]["code"] = "internal"
                if not status:
                    problem = Problem("internal", f"the server failed on this request: its log has it under {id_}")
                    await error_response(problem, id_)(inner, receive, sending)
            finally:
                inner["method"] = scope["method"]
                self._tell(inner, status, time.perf_counter() - started)
                self._tracing.end(span, _route(inner), status or 499, inner)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        # 499 is what proxies write for a caller that left before it was answered.
        status = status or 499
        route = _route(scope)
        noted: dict[str, Any] = scope["suwen.noted"]
        metrics = self._shared.metrics
        metrics.answered(scope["method"], route, status, seconds)
        if code := noted.get("code"):
            metrics.failed(code)
        if not log.isEnabledFor(logging.INFO):
            return
        key, client = scope["suwen.key"], scope.get("client")
        where = {"client": client[0]} if self._shared.settings.log_addresses and client else {}
        line = {
            "request_id": scope["suwen.id"],
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 2),
            "key": key.name if key else None,
            **where,
            **noted,
        }
        handlers = log.handlers or (log.parent.handlers if log.parent is not None else [])
        only = handlers[0] if len(handlers) == 1 else None
        if isinstance(only, ToStderr):
            only.tell("request", line)
        else:
            log.info("request", extra={"line": line})


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _id_of(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return f"{random.getrandbits(64):016x}"


def _with_headers(sent: Iterable[tuple[bytes, bytes]], id_: str) -> list[tuple[bytes, bytes]]:
    headers = list(sent)
    given = {name.lower() for name, _ in headers}
    headers += [(name, value) for name, value in _SECURITY.items() if name not in given]
    headers.append((b"x-request-id", id_.encode()))
    return headers


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {"time": _time(record.created), "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **getattr(record, "line", {"logger": record.name})}
        if hasattr(record, "request_id"):
            line["request_id"] = record.request_id
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class ToStderr(logging.StreamHandler[TextIO]):
    """Writes log records as lines of JSON."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(JsonLines())

    def tell(self, event: str, line: dict[str, Any]) -> None:
        """Write what ``log.info`` would, without a record: making one costs more than writing it."""
        whole = {"time": _time(time.time()), "level": "info", "event": event, **line}
        with self.lock or nullcontext():
            try:
                self.stream.write(orjson.dumps(whole, default=str).decode() + "\n")
                self.stream.flush()
            except (OSError, ValueError):
                pass  # As for any other line: a log that cannot be written stops nobody.


def _time(moment: float) -> str:
    return f"{_second(int(moment))}.{int(moment % 1 * 1000):03d}Z"


@lru_cache(1)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def log_to_stderr() -> None:
    """Send the logs of the service, the index and uvicorn to standard error, a line of JSON each."""
    # No line tells where in the code it was written, or in which thread: finding out costs as much as writing it.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = ToStderr()
    for name, least in (("suwen", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
