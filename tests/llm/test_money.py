"""What calls cost: bills above the estimate, calls cut off by a kill, requests refused alike, keys and proxies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from server import Body, Fault, Says, Server, burst

from suwen.llm.client import LLM
from suwen.llm.endpoint import EndpointProblem
from suwen.llm.ledger import Budget
from suwen.llm.prompts import Message
from suwen.llm.reply_cache import Cache
from suwen.llm.requests import Reply, Request

SOURCE = Path(__file__).parents[2] / "src"
KEY = "sk-test-4711abcdefghijklmnop"


def asks(count: int) -> list[Request]:
    return [Request("m", (Message("user", f"question {n}"),)) for n in range(count)]


def bill(*tokens: int):
    """A server that bills so many tokens out, one after the other, the last for ever."""
    left, lock = list(tokens), threading.Lock()

    def play(_: Body) -> Says:
        with lock:
            return Says("fine", billed=(10, left.pop(0) if len(left) > 1 else left[0]))

    return play


@pytest.mark.parametrize(
    ("bills", "most"),
    [((5000,), 12_000), ((40,), 12_000), ((100, 100, 100, 220), 12_000), ((9000, 100), 12_000)],
    ids=["every bill far over the estimate", "as estimated", "a bill over it late", "the first one"],
)
def test_a_wave_does_not_overshoot_a_budget(tmp_path: Path, configured, bills: tuple[int, ...], most: int) -> None:
    with Server(bill(*bills), delay=0.02) as server:
        config = configured(server.url, {"max_tokens": 50, "price_out": 1.0}, concurrency=16)
        with LLM.open(config, tmp_path / "r.db", budget=Budget(tokens=most)) as llm:
            summary = llm.run(asks(200), lambda *_: None)
    # What the server billed, by its own count.
    billed = sum(10 + one for one in [*bills, *[bills[-1]] * 500][: server.total])
    assert billed == summary.spent.tokens and summary.spent.tokens <= most
    if min(bills) > 50:
        assert summary.stopped is not None and "budget" in summary.stopped and "times their estimate" in summary.stopped


def test_a_budget_is_used_up_all_the_same(tmp_path: Path, configured) -> None:
    with Server(bill(990)) as server:
        config = configured(server.url, {"max_tokens": 990}, concurrency=8)
        with LLM.open(config, tmp_path / "r.db", budget=Budget(tokens=10_500)) as llm:
            assert llm.run(asks(50), lambda *_: None).stopped is not None
        assert server.total == 10


KILLED = """
import sys, asyncio
from pathlib import Path
from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig
from suwen.llm.prompts import Message
from suwen.llm.requests import Request
here = {"base_url": sys.argv[1], "concurrency": 3}
model = {"endpoint": "here", "model": "scripted", "price_out": 1000.0, "max_tokens": 100}
config = LLMConfig.model_validate({"endpoints": {"here": here}, "models": {"m": model}})
with LLM.open(config, Path(sys.argv[2])) as llm:
    llm.run([Request("m", (Message("user", f"q{n}"),)) for n in range(9)], lambda *_: None)
"""


def test_the_ledger_knows_what_a_kill_may_have_cost(tmp_path: Path, configured) -> None:
    arrived, hold = threading.Semaphore(0), threading.Event()

    def play(body: Body) -> str:
        number = int(body["messages"][0]["content"][1:])
        if number >= 3:
            arrived.release()
            hold.wait(300)
        return "fine"

    with Server(play) as server:
        program = [sys.executable, "-c", KILLED, server.url, str(tmp_path / "r.db")]
        child = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": str(SOURCE)})
        for _ in range(3):
            assert arrived.acquire(timeout=300)
        child.send_signal(signal.SIGKILL)
        child.wait()
        hold.set()
    with Cache(tmp_path / "r.db") as cache:
        (row,) = cache.ledger()
    assert (row.calls, row.replies, row.unknown) == (3, 3, 3)
    assert row.unknown_cost == pytest.approx(3 * 100 * 1000 / 1e6)


def test_a_call_that_ended_is_one_line_of_the_ledger(tmp_path: Path, configured) -> None:
    with Server(trouble=burst(Fault("status", 500), 1)) as server:
        with LLM.open(configured(server.url), tmp_path / "r.db") as llm:
            llm.run(asks(4), lambda *_: None)
            (row,) = llm.ledger()
        assert (row.calls, row.replies, row.unknown, row.unknown_cost) == (5, 4, 0, 0.0) and server.total == 5


def test_a_call_that_was_turned_away_is_not_unknown(tmp_path: Path, configured, monkeypatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    with Server(key="another") as server:
        with LLM.open(configured(server.url, key_env="TEST_KEY"), tmp_path / "r.db") as llm:
            with pytest.raises(EndpointProblem, match="rejected the key"):
                llm.run(asks(1), lambda *_: None)
            (row,) = llm.ledger()
        assert (row.calls, row.replies, row.unknown) == (1, 0, 0)


def test_three_requests_refused_alike_end_the_run(tmp_path: Path, configured) -> None:
    fault = Fault("status", 400, body="Unsupported value: 'temperature' of request 12345 does not support 0")
    with Server(trouble=lambda number, _: Fault("status", 400, body=f"{fault.body[:-1]}{number}")) as server:
        with (
            LLM.open(configured(server.url, concurrency=1), tmp_path / "r.db") as llm,
            pytest.raises(EndpointProblem, match=r"3 requests in a row .*temperature") as problem,
        ):
            llm.run(asks(50), lambda *_: None)
        assert server.total == 3 and "\n" not in str(problem.value)


def test_a_request_refused_now_and_then_does_not(tmp_path: Path, configured) -> None:
    got: list[Reply] = []
    trouble = lambda number, _: Fault("status", 400, body="too long") if number % 2 else None  # noqa: E731
    with Server(trouble=trouble) as server:
        with LLM.open(configured(server.url, concurrency=1), tmp_path / "r.db") as llm:
            llm.run(asks(12), lambda _, reply: got.append(reply))
        assert server.total == 12 and sum(reply.good for reply in got) == 6


@pytest.mark.parametrize("code", ["content_filter", "data_inspection_failed"])
def test_a_filter_of_the_server_is_a_refusal_of_that_request(tmp_path: Path, configured, code: str) -> None:
    got: list[Reply] = []
    with Server(trouble=lambda *_: Fault("status", 400, body="caught", code=code)) as server:
        with LLM.open(configured(server.url, concurrency=1), tmp_path / "r.db") as llm:
            llm.run(asks(5), lambda _, reply: got.append(reply))
        assert server.total == 5 and {reply.finish for reply in got} == {"refusal"}


@pytest.mark.parametrize(
    "said", [f"Incorrect API key provided: {KEY}.", "Incorrect API key provided: sk-test-************mnop."]
)
@pytest.mark.parametrize("status", [401, 400, 404, 402])
def test_a_key_that_a_server_sends_back_is_not_shown(
    tmp_path: Path, configured, monkeypatch, said: str, status: int
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    with Server(key=KEY, trouble=lambda *_: Fault("status", status, body=said)) as server:
        config = configured(server.url, key_env="TEST_KEY", concurrency=1)
        with (
            LLM.open(config, tmp_path / "r.db") as llm,
            pytest.raises(EndpointProblem) as problem,
        ):
            llm.run(asks(5), lambda *_: None)
    assert "sk-test-" not in str(problem.value) and "[key]" in str(problem.value)


def test_a_key_in_a_reply_is_not_stored(tmp_path: Path, configured, monkeypatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    with Server(lambda _: f"you sent {KEY}", key=KEY) as server:
        config = configured(server.url, key_env="TEST_KEY")
        with LLM.open(config, tmp_path / "r.db") as llm:
            assert asyncio.run(llm.ask(asks(1)[0])).text == "you sent [key]"
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.iterdir())


@contextmanager
def proxy(answer: int | None = None) -> Iterator[tuple[str, list[str]]]:
    """A real forward proxy for http addresses; it sends everything to 127.0.0.1, or gives only an answer."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Silence."""

        def do_GET(self) -> None:
            self._pass()

        def do_POST(self) -> None:
            self._pass()

        def _pass(self) -> None:
            asked.append(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, data = answer or 200, b'{"error": {"message": "who are you?"}}'
            if answer is None:
                to = urlsplit(self.path)
                there = HTTPConnection("127.0.0.1", to.port, timeout=300)
                there.request(self.command, to.path, body, {"Content-Type": "application/json"})
                came = there.getresponse()
                status, data = came.status, came.read()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://someone:secret77@127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def elsewhere(server: Server) -> str:
    """The server under a name that only a proxy can find."""
    return server.url.replace("127.0.0.1", "llm.example.invalid")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_a_proxy_is_used_and_this_machine_is_asked_without_it(tmp_path: Path, configured, monkeypatch) -> None:
    with Server() as server, proxy() as (address, asked):
        monkeypatch.setenv("HTTP_PROXY", address)
        with LLM.open(configured(elsewhere(server)), tmp_path / "r.db") as llm:
            assert asyncio.run(llm.ask(asks(1)[0])).text == "question 0"
        assert len(asked) == 1 and server.total == 1
        with LLM.open(configured(server.url), tmp_path / "s.db") as llm:
            assert asyncio.run(llm.ask(asks(1)[0])).good
        assert len(asked) == 1


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ALL_PROXY", "socks5://me:secret77@127.0.0.1:9", "socks"),
        ("HTTP_PROXY", "ftp://me:secret77@127.0.0.1:9", "cannot be used"),
        ("HTTP_PROXY", "http://me:secret77@[::1", "cannot be used"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, configured, monkeypatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(name, value)
    with (
        LLM.open(configured("http://llm.example.invalid/v1"), tmp_path / "r.db") as llm,
        pytest.raises(EndpointProblem, match=told) as problem,
    ):
        llm.run(asks(2), lambda *_: None)
    assert "\n" not in str(problem.value) and "secret77" not in str(problem.value) and "NO_PROXY" in str(problem.value)


def test_a_proxy_that_wants_a_password_ends_the_run(tmp_path: Path, configured, monkeypatch) -> None:
    with Server() as server, proxy(407) as (address, asked):
        monkeypatch.setenv("HTTP_PROXY", address)
        with (
            LLM.open(configured(elsewhere(server), concurrency=1), tmp_path / "r.db") as llm,
            pytest.raises(EndpointProblem, match="proxy http://127") as problem,
        ):
            llm.run(asks(5), lambda *_: None)
    assert len(asked) == 1 and "secret77" not in str(problem.value)
    assert json.dumps(str(problem.value)).count("\\n") == 0
