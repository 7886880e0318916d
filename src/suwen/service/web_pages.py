"""The web pages: search, the index, and the jury's review page, with their files. What they show comes from the API.

The files lie in ``web/`` and are sent to anyone: they hold no text of the index. The pages ask for a key when the API
refuses them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from suwen.jury.jury_folder import JuryFolder
from suwen.jury.review import Reviews
from suwen.jury.review_page import LOOPBACK, ReviewPage, guidelines_of
from suwen.jury.sampling import read_sample
from suwen.service.holder import Holder
from suwen.service.keys import allowed
from suwen.service.problems import Problem

log = logging.getLogger("suwen.service")
_KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
#: Each page: what stands between the bar and the foot, and the script that brings it to life.
_PAGES = {"/": ("search.html", "search.js"), "/index": ("about.html", "about.js")}
#: Goes before the review page's own script, which knows nothing of keys.
_KEYED = b'<script type="module" src="/web/reviewing.js"></script>\n<script '


class File(NamedTuple):
    """A file as it is sent, and the mark by which a browser knows that it has it."""

    body: bytes
    kind: str
    mark: str

    @classmethod
    def of(cls, name: str, body: bytes) -> File:
        """The file of a name and its bytes."""
        kind = _KINDS[name.rpartition(".")[2]]
        return cls(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def routes(holder: Holder) -> APIRouter:
    """The pages and their files; ``/review/`` where the settings name a jury's folder."""
    router = APIRouter(include_in_schema=False)
    files = web_files()
    for path, (main, script) in _PAGES.items():
        _add_page(router, path, _page(files["frame.html"], files[main], script))

    @router.api_route("/web/{name}", methods=["GET", "HEAD"])
    async def web(name: str, request: Request) -> Response:
        if name not in files or name.endswith(".html"):
            raise Problem("not_found", "the pages have no such file: they begin at /")
        return sent(files[name], request)

    if holder.settings.reviews is not None:
        _add_reviews(router, holder, JuryFolder(holder.settings.reviews))
    return router


def web_files() -> Mapping[str, File]:
    """Every file of the pages by its name, read once: there are few, and they are small."""
    entries = (resources.files("suwen.service") / "web").iterdir()
    wanted = [entry for entry in entries if entry.is_file() and entry.name.rpartition(".")[2] in _KINDS]
    return {entry.name: File.of(entry.name, entry.read_bytes()) for entry in wanted}


def _page(frame: File, main: File, script: str) -> File:
    whole = frame.body.replace(b"{{main}}", main.body).replace(b"{{script}}", script.encode())
    return File.of("page.html", whole)


def _add_page(router: APIRouter, path: str, page: File) -> None:
    @router.api_route(path, methods=["GET", "HEAD"])
    async def send(request: Request) -> Response:
        return sent(page, request)


def sent(file: File, request: Request) -> Response:
    """A file, or word that the browser has it already."""
    # Asked for every time and sent only when it has changed: after an upgrade no page runs with yesterday's script.
    headers = {"ETag": file.mark, "Cache-Control": "no-cache"}
    known = request.headers.get("if-none-match", "")
    if file.mark in (part.strip().removeprefix("W/") for part in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.kind)


def _add_reviews(router: APIRouter, holder: Holder, folder: JuryFolder) -> None:
    """Mount the labelling page of a jury. Labels are writes: where there are keys, it takes one that may write."""
    sample, reviews = read_sample(folder.sample), Reviews(folder.reviews)
    holder.on_close.append(reviews.close)
    settings = holder.settings
    # Without keys a page of another site could be pointed at this machine under its own name, and label.
    guarded = bool(holder.keys.needed or settings.hosts or settings.public)
    page = ReviewPage(sample, reviews, None if guarded else LOOPBACK, guidelines_of(folder))
    log.info("the review page of %d pairs is at /review/", len(sample))

    @router.get("/review")
    async def slash() -> Response:
        return RedirectResponse("/review/", 308)

    @router.api_route("/review/{path:path}", methods=["GET", "POST"])
    async def review(path: str, request: Request) -> Response:
        if path.startswith("api/") and holder.keys.needed:
            allowed(request.scope["suwen.key"], "write")
        query = request.url.query
        target = f"/{quote(path)}" + (f"?{query}" if query else "")
        named, body = dict(request.headers), await request.body()
        # SQLite waits for the disk.
        answer = await asyncio.to_thread(page.respond, request.method, target, named, body)
        sent = answer.body.replace(b"<script ", _KEYED, 1) if path == "" else answer.body
        return Response(sent, answer.status, dict(answer.headers))
