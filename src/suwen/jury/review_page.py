"""The labelling page: one pair at a time, blind, several reviewers, resumable. Its answers know no web framework.

``ReviewPage.respond`` is a function from a request to a response, for any server to mount; ``serve`` puts it on the
standard library's. No jury label, stratum or grade is ever sent to a reviewer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from suwen.jury.judge_batches import draw
from suwen.jury.review_store import OPINIONS, Reviews
from suwen.jury.sampling import Sampled
from suwen.jury.verdicts import JuryProblem

#: Only the page's own files load and run, whatever the texts hold.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_FILES = {
    "": ("review.html", "text/html; charset=utf-8"),
    "review.css": ("review.css", "text/css; charset=utf-8"),
    "review.js": ("review.js", "text/javascript; charset=utf-8"),
}
_REVIEWER = re.compile(r"[\w][\w .@-]{0,63}")
_LONGEST_BODY = 64 * 1024
_LONGEST_NOTE = 2000


class Response(NamedTuple):
    """What to send back."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class _Refused(Exception):
    """A request that is not answered, with the status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ReviewPage:
    """The page of one sample and its store."""

    def __init__(self, sample: Sequence[Sampled], reviews: Reviews, hosts: Sequence[str] | None = LOOPBACK) -> None:
        """Prepare the page.

        Args:
            sample: What is labelled.
            reviews: Where labels go.
            hosts: The names under which the page may be asked for, so that no other site's name can be pointed at it;
                None where a server in front sees to that.
        """
        if not sample:
            raise JuryProblem("the sample is empty: draw one with `suwen jury review sample`")
        self._pairs = {one.pair: one for one in sample}
        self._reviews, self._hosts = reviews, hosts

    def respond(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Response:
        """Answer one request.

        Args:
            method: ``GET`` or ``POST``.
            target: The path under which the page is mounted has been taken off; with the query.
            headers: By lower-case name.
            body: The body.
        """
        try:
            self._admit(method, headers, body)
            parts = urlsplit(target)
            path = parts.path.lstrip("/")
            if method == "GET" and path in _FILES:
                return _file(path)
            if method == "GET" and path == "api/pair":
                asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
                return _json(200, self._pair(_reviewer(asked), asked.get("at")))
            if method == "POST" and path == "api/label":
                return _json(200, self._label(body))
            raise _Refused(404, "there is nothing here")
        except _Refused as problem:
            return _json(problem.status, {"error": str(problem)})

    def _admit(self, method: str, headers: Mapping[str, str], body: bytes) -> None:
        host = urlsplit(f"//{headers.get('host', '')}").hostname
        if self._hosts is not None and host not in self._hosts:
            raise _Refused(403, "this page is not served under that name")
        if len(body) > _LONGEST_BODY:
            raise _Refused(413, "that is too long")
        # No form of another site can send this type without being asked first.
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _Refused(415, "send JSON")

    def _pair(self, reviewer: str, at: str | None) -> dict[str, Any]:
        # Each reviewer has an order of their own, so that no pair is always judged by a tired one.
        order = sorted(self._pairs, key=lambda pair: draw(reviewer, pair))
        mine = self._reviews.by(reviewer)
        done = sum(pair in mine for pair in order)
        if at is None:
            place = next((number for number, pair in enumerate(order) if pair not in mine), len(order))
        elif at.isascii() and at.isdigit() and int(at) <= len(order):
            place = int(at)
        else:
            raise _Refused(400, f"there is no pair {at}")
        state: dict[str, Any] = {"at": place, "total": len(order), "done": done}
        if place == len(order):
            return state
        one, said = self._pairs[order[place]], mine.get(order[place])
        shown = {"pair": one.pair, "query": one.query, "passage": one.passage}
        return state | shown | {"label": said.label if said else None, "note": said.note if said else ""}

    def _label(self, body: bytes) -> dict[str, Any]:
        try:
            data = json.loads(body)
        except ValueError:
            raise _Refused(400, "that is not JSON") from None
        if not isinstance(data, dict):
            raise _Refused(400, "send an object")
        reviewer, note = _reviewer(data), data.get("note", "")
        pair, label = data.get("pair"), data.get("label")
        if not isinstance(pair, str) or pair not in self._pairs:
            raise _Refused(400, "that pair is not in the sample")
        if label not in OPINIONS:
            raise _Refused(400, f"a label is one of {', '.join(OPINIONS)}")
        if not isinstance(note, str) or len(note) > _LONGEST_NOTE:
            raise _Refused(400, f"a note is a text of at most {_LONGEST_NOTE} characters")
        self._reviews.add(pair, reviewer, label, note.strip())
        return self._pair(reviewer, None) | {"stored": pair}


def _reviewer(data: Mapping[str, Any]) -> str:
    name = data.get("reviewer")
    if not isinstance(name, str) or not _REVIEWER.fullmatch(name):
        raise _Refused(400, "say who you are: letters, digits, spaces, dots, dashes, at most 64")
    return name.strip()


def _file(path: str) -> Response:
    name, kind = _FILES[path]
    data = (resources.files("suwen.jury") / "pages" / name).read_bytes()
    return Response(200, data, _HEADERS | {"Content-Type": kind})


def _json(status: int, value: Any) -> Response:
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return Response(status, data, _HEADERS | {"Content-Type": "application/json; charset=utf-8"})


def serve(page: ReviewPage, host: str = "127.0.0.1", port: int = 8765) -> ThreadingHTTPServer:
    """A server for the page, bound and not yet running: call ``serve_forever``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "suwen"
        sys_version = ""
        timeout = 60

        def log_message(self, format: str, *args: Any) -> None:
            """The library prints nothing."""

        def do_GET(self) -> None:
            self._give(page.respond("GET", self.path, self._named()))

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > _LONGEST_BODY:
                self.close_connection = True
                self._give(_json(413, {"error": "that is too long, or does not say how long it is"}))
                return
            self._give(page.respond("POST", self.path, self._named(), self.rfile.read(int(length))))

        def _named(self) -> dict[str, str]:
            return {name.lower(): value for name, value in self.headers.items()}

        def _give(self, response: Response) -> None:
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as problem:
        raise JuryProblem(f"{host}:{port} cannot be served ({problem}): take another --port") from None
