"""A real HTTP server that speaks the chat-completions protocol, plays scripted models and makes trouble on demand.

``play`` is a function of the request's body that gives the reply: a text, or a ``Says``. ``trouble`` is a function of
the number of the call (from 0) and the body that gives a ``Fault``, or None for an undisturbed call. The server keeps
its own count of calls by distinct request, so a test need not believe the client.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Says:
    """A reply with more than a text; ``parts`` stands for its content, ``billed`` for the tokens in and out."""

    text: str
    finish: str = "stop"
    refusal: str | None = None
    usage: bool = True
    parts: Any = None
    billed: tuple[int, int] | None = None


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one call.

    Attributes:
        kind: ``status`` (answer with a status), ``cut`` (close without an answer), ``cut-mid`` (close in the middle of
            one), ``slow`` (answer late), ``not-json`` (a body that is no JSON), ``truncated`` (the reply loses its
            second half, but says it is whole), ``empty`` (no choices).
        status: The status.
        retry_after: The header, word for word.
        seconds: How late.
        body: The error's message.
        code: The error's code.
    """

    kind: str
    status: int = 500
    retry_after: str | None = None
    seconds: float = 0.0
    body: str = "made up by the test"
    code: str = ""


Play = Callable[[Body], "str | Says"]
Trouble = Callable[[int, Body], "Fault | None"]


def echo(body: Body) -> str:
    """Gives the last message back."""
    return str(body["messages"][-1]["content"])


def burst(fault: Fault, calls: int, start: int = 0) -> Trouble:
    """So many calls in a row go wrong, from the ``start``-th."""
    return lambda number, _: fault if start <= number < start + calls else None


class Server:
    """The server, in threads of its own; use it in a ``with``."""

    def __init__(
        self,
        play: Play = echo,
        trouble: Trouble | None = None,
        *,
        delay: float = 0.0,
        key: str | None = None,
        models: tuple[str, ...] | None = ("scripted",),
        formats: tuple[str, ...] = ("json_schema", "json_object"),
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.play, self.trouble, self.delay = play, trouble, delay
        self.key, self.models, self.formats = key, models, formats
        #: Calls that arrived, by distinct request.
        self.calls: Counter[str] = Counter()
        #: Calls that were answered with a reply, by distinct request.
        self.answered: Counter[str] = Counter()
        #: Every body that arrived, with the moment it did and the status it got (0: none).
        self.log: list[tuple[float, Body, int]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._http.hang_up()
        self._thread.join()

    @property
    def url(self) -> str:
        """The base address."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def total(self) -> int:
        """All calls that arrived."""
        return sum(self.calls.values())

    @property
    def repeated(self) -> int:
        """Calls beyond the first for each distinct request."""
        return self.total - len(self.calls)

    def arrive(self, body: Body) -> int:
        with self._lock:
            number = self.total
            self.calls[distinct(body)] += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return number

    def leave(self, body: Body, arrived: float, status: int) -> None:
        with self._lock:
            self._at_once -= 1
            self.log.append((arrived, body, status))
            if status == 200:
                self.answered[distinct(body)] += 1


def distinct(body: Body) -> str:
    """What makes two requests the same."""
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], owner: Server) -> None:
        self.owner = owner
        self._open: set[Any] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End what clients keep open: its threads would go on answering for a server that is gone."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise each small answer waits for the last one's acknowledgement.
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""

    def do_GET(self) -> None:
        owner = self.server.owner
        if self._turned_away():
            return
        if owner.models is None or not self.path.endswith("/v1/models"):
            self._fail(404, "no such path")
        else:
            self._give(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in owner.models]})

    def do_POST(self) -> None:
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._turned_away():
            return
        arrived, number, self.status = owner.clock(), owner.arrive(body), 0
        try:
            self._answer(body, owner.trouble(number, body) if owner.trouble else None)
        finally:
            owner.leave(body, arrived, self.status)

    def _turned_away(self) -> bool:
        key = self.server.owner.key
        if key is None or self.headers["Authorization"] == f"Bearer {key}":
            return False
        self._fail(401, "bad key")
        return True

    def _answer(self, body: Body, fault: Fault | None) -> None:
        owner = self.server.owner
        time.sleep(owner.delay)
        kind = (body.get("response_format") or {}).get("type")
        if kind is not None and kind not in owner.formats:
            self._fail(400, f"response_format type {kind} is not supported")
        elif owner.models is not None and body["model"] not in owner.models:
            self._fail(404, f"model {body['model']} not found")
        elif fault is None:
            self._give(200, completion(body, owner.play(body)))
        else:
            self._go_wrong(body, fault)

    def _go_wrong(self, body: Body, fault: Fault) -> None:
        if fault.kind == "status":
            self._fail(fault.status, fault.body, fault.retry_after, fault.code)
        elif fault.kind == "cut":
            self._hang_up()
        elif fault.kind == "cut-mid":
            self._hang_up(json.dumps(completion(body, self.server.owner.play(body))).encode())
        elif fault.kind == "not-json":
            self._send(200, b"<html>gateway</html>", None)
        elif fault.kind == "empty":
            self._give(200, {"choices": []})
        elif fault.kind == "truncated":
            text = str(self.server.owner.play(body))
            self._give(200, completion(body, text[: len(text) // 2]))
        else:
            time.sleep(fault.seconds)
            self._give(200, completion(body, self.server.owner.play(body)))

    def _hang_up(self, answer: bytes = b"") -> None:
        self.close_connection = True
        if answer:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: len(answer) // 2])
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def _fail(self, status: int, message: str, retry_after: str | None = None, code: str = "") -> None:
        error = {"error": {"message": message, "code": code or status, "type": code}}
        self._send(status, json.dumps(error).encode(), retry_after)

    def _give(self, status: int, body: Body) -> None:
        self._send(status, json.dumps(body, ensure_ascii=True).encode(), None)

    def _send(self, status: int, data: bytes, retry_after: str | None) -> None:
        self.status = status
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(data)


def completion(body: Body, said: str | Says) -> Body:
    """A chat completion; a token is four characters here."""
    says = said if isinstance(said, Says) else Says(said)
    content = None if says.refusal else says.text if says.parts is None else says.parts
    message = {"role": "assistant", "content": content, "refusal": says.refusal}
    prompt = sum(len(one["content"]) for one in body["messages"]) // 4
    tokens_in, tokens_out = says.billed or (prompt, len(says.text) // 4)
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
    whole: Body = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": says.finish}],
    }
    return whole | {"usage": usage} if says.usage else whole
