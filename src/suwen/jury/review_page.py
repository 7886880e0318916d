"""The labelling page: one pair at a time, blind, several reviewers, resumable. Its answers know no web framework.

``ReviewPage.respond`` is a function from a request to a response, for any server to mount; ``serve`` puts it on the
standard library's. No jury label, stratum or grade is ever sent to a reviewer. Where reviewers differ, one of them, or
somebody who has labelled nothing, sees what each said and settles it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from suwen.jury.judge_batches import draw
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.review_store import ADJUDICATION, OPINIONS, Review, Reviews
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

    def __init__(
        self,
        sample: Sequence[Sampled],
        reviews: Reviews,
        hosts: Sequence[str] | None = LOOPBACK,
        guidelines: str | None = None,
    ) -> None:
        """Prepare the page.

        Args:
            sample: What is labelled.
            reviews: Where labels go.
            hosts: The names under which the page may be asked for, so that no other site's name can be pointed at it;
                None where a server in front sees to that.
            guidelines: What reviewers are told to go by; the package's own words unless given.
        """
        if not sample:
            raise JuryProblem("the sample is empty: draw one with `suwen jury review sample`")
        self._pairs = {one.pair: one for one in sample}
        self._reviews, self._hosts = reviews, hosts
        own = resources.files("suwen.jury") / "pages" / "guidelines.txt"
        self._guidelines = guidelines or own.read_text(encoding="utf-8")

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
            asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            if method == "GET" and path == "api/guidelines":
                return _json(200, {"guidelines": self._guidelines})
            if method == "GET" and path == "api/progress":
                return _json(200, self._progress())
            if method == "GET" and path in ("api/pair", "api/dispute"):
                find = self._pair if path == "api/pair" else self._dispute
                return _json(200, find(_reviewer(asked), asked.get("at")))
            if method == "POST" and path in ("api/label", "api/settle"):
                return _json(200, self._label(body, settle=path == "api/settle"))
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
        mine = self._reviews.by(reviewer)
        # Who has settled a pair knows what others said of it: their label of it would no longer be blind.
        seen = {pair for pair, one in self._reviews.adjudicated().items() if one.reviewer == reviewer} - mine.keys()
        order = sorted(self._pairs.keys() - seen, key=lambda pair: draw(reviewer, pair))
        return self._state(order, mine, at) | self._to_settle(reviewer)

    def _state(self, order: Sequence[str], said: Mapping[str, Review], at: str | None) -> dict[str, Any]:
        """A place in an order of pairs: the first without a label, or the one that is asked for."""
        if at is None:
            place = next((number for number, pair in enumerate(order) if pair not in said), len(order))
        elif at.isascii() and at.isdigit() and int(at) <= len(order):
            place = int(at)
        else:
            raise _Refused(400, f"there is no pair {at}")
        state: dict[str, Any] = {"at": place, "total": len(order), "done": sum(pair in said for pair in order)}
        if place == len(order):
            return state
        one, mine = self._pairs[order[place]], said.get(order[place])
        shown = {"pair": one.pair, "query": one.query, "passage": one.passage}
        return state | shown | {"label": mine.label if mine else None, "note": mine.note if mine else ""}

    def _disputes(self, reviewer: str) -> list[str]:
        """The pairs that reviewers differ on and that this one may settle.

        Who still labels sees others' labels only of pairs they have labelled themselves: the rest must stay blind.
        """
        mine = self._reviews.by(reviewer)
        here = [pair for pair in self._reviews.disputed() if pair in self._pairs and (pair in mine or not mine)]
        return sorted(here, key=lambda pair: draw("dispute", pair))

    def _to_settle(self, reviewer: str) -> dict[str, int]:
        final = self._reviews.adjudicated()
        count = sum(pair not in final for pair in self._disputes(reviewer))
        return {"disputed": count} if count else {}

    def _dispute(self, reviewer: str, at: str | None) -> dict[str, Any]:
        state = self._state(self._disputes(reviewer), self._reviews.adjudicated(), at)
        said = self._reviews.latest().get(state.get("pair", ""), {})
        opinions = [{"reviewer": one.reviewer, "label": one.label, "note": one.note} for one in said.values()]
        return state | {"opinions": opinions} | self._to_settle(reviewer)

    def _progress(self) -> dict[str, Any]:
        """How far everybody is; says nothing of what they said."""
        done: Counter[str] = Counter()
        for pair, said in self._reviews.latest().items():
            # The names alone: what each said stays here.
            done.update(list(said) if pair in self._pairs else [])
        disputed = [pair for pair in self._reviews.disputed() if pair in self._pairs]
        final = self._reviews.adjudicated()
        return {
            "total": len(self._pairs),
            "reviewers": [{"name": name, "done": count} for name, count in sorted(done.items())],
            "labelled": sum(pair in self._pairs for pair in self._reviews.latest()),
            "disputed": len(disputed),
            "settled": sum(pair in final for pair in disputed),
        }

    def _label(self, body: bytes, *, settle: bool = False) -> dict[str, Any]:
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
        if settle and pair not in self._disputes(reviewer):
            raise _Refused(400, "reviewers do not differ on that pair, or you have not labelled it yet")
        if label not in OPINIONS:
            raise _Refused(400, f"a label is one of {', '.join(OPINIONS)}")
        if not isinstance(note, str) or len(note) > _LONGEST_NOTE:
            raise _Refused(400, f"a note is a text of at most {_LONGEST_NOTE} characters")
        self._reviews.add(pair, reviewer, label, note.strip(), source=ADJUDICATION if settle else "page")
        return (self._dispute if settle else self._pair)(reviewer, None) | {"stored": pair}


def guidelines_of(folder: JuryFolder, file: Path | None = None) -> str | None:
    """What the reviewers of a folder go by: a file that is named, or its own; None where it has none."""
    file = file or (folder.guidelines if folder.guidelines.is_file() else None)
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as problem:
        raise JuryProblem(f"{file} cannot be read as guidelines ({problem}): write a text in UTF-8") from None


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
