"""``suwen serve`` as a process of its own, over real sockets: bad input and bad clients."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from serve_process import DOCUMENT, Server, make_index, serving

from suwen.service.keys import new_key


@contextmanager
def limited(folder: Path, **limits: object) -> Iterator[Server]:
    """A server with keys and limits."""
    keys = {role: new_key(folder / "keys.toml", role, role) for role in ("read", "write")}
    with serving(make_index(folder / "notes"), "--keys", str(folder / "keys.toml"), **limits) as server:
        server.keys = keys
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with keys and small limits, for the tests that leave it whole."""
    # A client of 14 MB may stand still for a while on a busy machine, and is not slow.
    limits = {"slow_seconds": 120, "body_bytes": 12_000_000, "connections": 200}
    with limited(tmp_path_factory.mktemp("served"), **limits) as server:
        yield server


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with little patience, for clients that are too slow."""
    with limited(tmp_path_factory.mktemp("hasty"), slow_seconds=1) as server:
        yield server


def ask(server: Server, method: str, path: str, body: object = None, key: str | None = "write") -> httpx.Response:
    headers = {"Authorization": f"Bearer {server.keys.get(key, key)}"} if key else {}
    return httpx.request(method, server.address + path, json=body, headers=headers, timeout=60)


@pytest.mark.parametrize(
    ("method", "path", "body", "key", "status", "code"),
    [
        ("POST", "/search", {"query": "药"}, None, 401, "unauthorized"),
        ("POST", "/search", {"query": "药"}, "suwen_wrong", 401, "unauthorized"),
        ("POST", "/documents", {"documents": [DOCUMENT]}, "read", 403, "forbidden"),
        ("POST", "/search", {"query": "药", "index": "other"}, "read", 404, "unknown_index"),
        ("POST", "/search", {"query": "药", "tier": "l9"}, "read", 422, "unknown_tier"),
        ("POST", "/search", {"query": "药", "where": {"ward": 1}}, "read", 422, "unknown_field"),
        ("POST", "/documents", {"documents": [{"id": "x", "text": " "}]}, "write", 422, "empty_document"),
        ("POST", "/documents", {"documents": [DOCUMENT, DOCUMENT]}, "write", 422, "duplicate_id"),
        ("POST", "/documents", {"documents": [{"id": "x", "text": "a " * 5_000_000}]}, "write", 422, "text_too_long"),
        ("POST", "/documents", {"documents": [{"id": "x", "text": "a " * 200_000}]}, "write", 422, "too_many"),
        ("POST", "/documents", {"documents": [{"id": "x", "text": "a " * 7_000_000}]}, "write", 413, "too_large"),
        ("GET", "/documents/none", None, "read", 404, "unknown_document"),
    ],
)
def test_bad_input(
    server: Server, method: str, path: str, body: object, key: str | None, status: int, code: str
) -> None:
    reply = ask(server, method, path, body, key)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code)
    assert error["request_id"] == reply.headers["x-request-id"]
    assert ask(server, "GET", "/documents").json()["ids"] == ["fever", "sugar"]


@pytest.mark.parametrize("id_", ["病历/2024/😀", "100%", "%2F", "a?b#c d", "x//y"])
def test_an_id_with_slashes_and_emoji(server: Server, id_: str) -> None:
    assert ask(server, "POST", "/documents", {"documents": [{"id": id_, "text": "编号特别。"}]}).status_code == 200
    path = f"/documents/{quote(id_, safe='')}"
    assert ask(server, "GET", path, key="read").json()["id"] == id_
    assert ask(server, "DELETE", path).json() == {"deleted": 1}
    assert ask(server, "GET", path).json()["error"]["code"] == "unknown_document"


def test_a_posted_document_is_found_in_the_next_request(server: Server) -> None:
    body = {"documents": [{"id": "new", "text": "氯雷他定可以治过敏性鼻炎。"}]}
    assert ask(server, "POST", "/documents", body).json()["added"] == 1
    hits = ask(server, "POST", "/search", {"query": "氯雷他定"}, "read").json()["hits"]
    assert hits[0]["document_id"] == "new"
    assert ask(server, "DELETE", "/documents/new").json() == {"deleted": 1}


def request_of(server: Server, *headers: str) -> bytes:
    key = server.keys["read"]
    lines = ["POST /search HTTP/1.1", "Host: here", f"Authorization: Bearer {key}", "Content-Type: application/json"]
    return "\r\n".join([*lines, *headers, "", ""]).encode()


def read_all(connection: socket.socket) -> bytes:
    """What the server says until it hangs up."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def cut_off(connection: socket.socket, parts: Iterable[bytes], pause: float = 0.0) -> bool:
    """Send parts until the server hangs up; whether it did."""
    try:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_a_client_that_never_sends_a_whole_head_is_let_go(hasty: Server) -> None:
    for start in (b"", b"POST /search HT", request_of(hasty)[:-2]):
        with hasty.connect() as connection:
            connection.sendall(start)
            assert read_all(connection) == b""


def test_a_client_that_trickles_its_head_is_let_go(hasty: Server) -> None:
    with hasty.connect() as connection:
        assert cut_off(connection, (bytes([byte]) for byte in b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000), pause=0.01)


def test_a_head_without_end_is_cut(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert cut_off(connection, (b"X-%d: " % number + b"a" * 1000 + b"\r\n" for number in range(100_000)))


def test_a_slow_body_gets_408(hasty: Server) -> None:
    with hasty.connect() as connection:
        connection.sendall(request_of(hasty, "Content-Length: 100") + b'{"query": ')
        said = read_all(connection)
    assert b" 408 " in said.splitlines()[0]
    assert b'"slow_client"' in said


def test_a_half_sent_body_changes_nothing(server: Server) -> None:
    for _ in range(20):
        with server.connect() as connection:
            connection.sendall(request_of(server, "Content-Length: 100") + b'{"query": "half')
    assert ask(server, "POST", "/search", {"query": "布洛芬"}, "read").status_code == 200


def test_a_body_nobody_reads_does_not_spoil_the_next_request(server: Server) -> None:
    with server.connect() as connection:
        body = b"x" * 13_000_000
        connection.sendall(request_of(server, f"Content-Length: {len(body)}") + body)
        good = b'{"query": "insulin", "k": 1}'
        connection.sendall(request_of(server, f"Content-Length: {len(good)}", "Connection: close") + good)
        said = read_all(connection)
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"413", b"200"]


def test_answers_that_are_not_read_are_given_up(hasty: Server) -> None:
    asked = 300
    # On a busy machine the server may be late in giving up, never too early.
    for patience in (2.5, 5, 10, 20):
        with hasty.connect() as connection:
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n\r\n" * asked)
            time.sleep(patience)
            if read_all(connection).count(b"HTTP/1.1 200") < asked:
                return
    pytest.fail("every answer was kept for a client that did not read")


def test_what_is_not_http_is_refused(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert b" 400 " in read_all(connection).splitlines()[0]


def closed(connection: socket.socket) -> bool:
    """Whether the server has let go of a connection that does not wait for it."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_more_connections_than_allowed_are_closed_and_the_rest_go_on(server: Server) -> None:
    opened = [server.connect() for _ in range(220)]
    try:
        deadline = time.monotonic() + 120
        for connection in opened:
            connection.setblocking(False)
        gone: set[int] = set()
        while len(gone) < 20:
            assert time.monotonic() < deadline, f"{len(gone)} were closed"
            time.sleep(0.02)
            gone |= {number for number, connection in enumerate(opened) if number not in gone and closed(connection)}
    finally:
        for connection in opened:
            connection.close()
    while True:
        with suppress(httpx.TransportError):
            assert ask(server, "POST", "/search", {"query": "布洛芬"}, "read").status_code == 200
            return
