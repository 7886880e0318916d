"""A client of the service's own API, by the standard library alone: what the commands use. Decides nothing."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from suwen.errors import SuwenError
from suwen.service.serve_settings import LOOPBACK

_LONGEST_WAIT = 30.0


class ServerError(SuwenError):
    """The server refused a request.

    Attributes:
        status: The HTTP status.
        code: The API's code for it.
        param: The field of the request that it is about, if any.
    """

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(f"the server refused this ({code}): {message}")
        self.status, self.code, self.param = status, code, param


class ServerAway(SuwenError):
    """The server cannot be reached, or has no time: the same request may succeed later.

    Attributes:
        wait: Seconds the server asked to wait; None when it said nothing.
    """

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take the key to another address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """Speaks to one server.

    Args:
        server: Its address, ``http://HOST:PORT``.
        key: A key that ``suwen key new`` made there, where it has keys.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, server: str, key: str | None = None, timeout: float = 60.0) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SuwenError(f"{server!r} is not the address of a server: write http://HOST:PORT")
        if key is not None and not key.isascii():
            raise SuwenError("the key holds letters no key has: give it as 'suwen key new' printed it")
        self.server, self._key, self._timeout = server.rstrip("/"), key, timeout
        # A proxy has no business between this machine and itself.
        direct = [urllib.request.ProxyHandler({})] if parts.hostname in LOOPBACK else []
        self._opener = urllib.request.build_opener(_Stay, *direct)

    def get(self, path: str) -> dict[str, Any]:
        """Ask for something."""
        return self._call("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send something.

        Raises:
            ServerAway: Nobody answered, or the server has no time now.
            ServerError: It was refused.
        """
        return self._call("POST", path, json.dumps(body, ensure_ascii=False).encode(errors="surrogatepass"))

    def send(self, path: str, body: bytes, kind: str) -> dict[str, Any]:
        """Send something that is not JSON, of this content type."""
        return self._call("POST", path, body, kind)

    def _call(self, method: str, path: str, body: bytes | None, kind: str = "application/json") -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": kind}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.server + path, body, headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                return self._understood(response.read())
        except urllib.error.HTTPError as refused:
            with refused:
                raise self._refusal(refused) from None
        except (OSError, HTTPException) as problem:
            why = getattr(problem, "reason", problem)
            raise ServerAway(f"{self.server} cannot be reached ({why}): check the address, and that it runs") from None

    def _understood(self, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SuwenError(f"{self.server} does not answer as suwen does: check the address")
        return answer

    def _refusal(self, refused: urllib.error.HTTPError) -> SuwenError:
        try:
            about = json.loads(refused.read())["error"]
            code, message, param = str(about["code"]), str(about["message"]), about.get("param")
        except (ValueError, KeyError, TypeError, OSError):
            code, message, param = "unknown", f"{self.server} answered {refused.code} {refused.reason}", None
        if refused.code in (408, 429, 502, 503, 504):
            return ServerAway(f"{self.server} has no time now ({code}): {message}", _seconds(refused))
        return ServerError(refused.code, code, message, param)


def _seconds(refused: urllib.error.HTTPError) -> float | None:
    seconds = refused.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else None


def patiently(
    call: Callable[[], dict[str, Any]],
    *,
    tries: int | None,
    stop: threading.Event | None = None,
    when: Callable[[ServerAway], bool] = lambda away: True,
    on_refusal: Callable[[ServerAway, float], None] | None = None,
) -> dict[str, Any]:
    """Call until the server has time, waiting longer each time.

    Args:
        call: The request; sent again it must do no harm.
        tries: After so many the last refusal is raised; None for never.
        stop: Ends the waiting, with the last refusal.
        when: Whether it is worth waiting after a refusal; else that is raised.
        on_refusal: Called with each refusal and the seconds that are waited.
    """
    ending, wait = stop or threading.Event(), 0.5
    count = 0
    while True:
        try:
            return call()
        except ServerAway as away:
            count += 1
            pause = min(max(wait, away.wait or 0.0), _LONGEST_WAIT)
            if count == tries or not when(away):
                raise
            if on_refusal:
                on_refusal(away, pause)
            if ending.wait(pause):
                raise
            wait = 2 * wait


def delete_documents(client: Client, ids: Sequence[str]) -> int:
    """Delete documents by id; how many were there."""
    most = int(client.get("/info")["limits"]["batch_documents"])
    deleted = 0
    for start in range(0, len(ids), most):
        body = {"ids": list(ids[start : start + most])}
        deleted += int(patiently(partial(client.post, "/documents/delete", body), tries=8)["deleted"])
    return deleted
