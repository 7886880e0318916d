"""Bodies, heads and connections that no good client sends: a documented error or a clean close, and life goes on."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suwen.service.problems import CODES

sys.path.insert(0, str(Path(__file__).parent))
from live_server import LiveServer, live_server, mark

BODY_BYTES = 300_000
POSTS = ("/search", "/documents", "/documents/delete", "/info/recall", "/v1/embeddings", "/v1/rerank")
WORKER_POSTS = ("/worker/lease", "/worker/release", "/worker/results")
fuzzed = settings(
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def shared() -> Iterator[LiveServer]:
    with live_server(body_bytes=BODY_BYTES, slow_seconds=1.5, concurrency=8) as server:
        yield server
        assert server.failures == []


@pytest.fixture
def server(shared: LiveServer) -> Iterator[LiveServer]:
    """The one server of these tests, which after each of them must be as well as before."""
    yield shared
    check_well(shared)


def check_well(server: LiveServer) -> None:
    """None of its places is taken for good, and it answers the next request, correctly."""
    tries = 0
    while 'suwen_queue_length{kind="read"} 0.0' not in server.ask("GET", "/metrics").text:
        assert (tries := tries + 1) < 5000, "work that nobody waits for does not end"
        time.sleep(0.05)
    found = server.ask("POST", "/search", json={"query": mark(5), "k": 3, "mode": "lexical"})
    assert found.status_code == 200 and found.json()["hits"][0]["document_id"] == "note-5"
    assert server.failures == []


def check_error(reply: httpx.Response, *statuses: int) -> dict[str, Any]:
    """The answer is an error of the one shape, and of a code that is documented with this status."""
    error = reply.json()["error"]
    assert set(error) == {"code", "message", "type", "param", "request_id"}
    assert CODES[error["code"]].status == reply.status_code != 500
    assert reply.headers["x-request-id"] == error["request_id"] and error["message"]
    assert not statuses or reply.status_code in statuses, reply.text
    return error


def check_answer(reply: httpx.Response) -> None:
    """Whatever was sent: a good answer or a documented error, in JSON."""
    assert reply.headers["content-type"] == "application/json"
    if reply.status_code == 200:
        assert isinstance(reply.json(), dict)
    else:
        check_error(reply)


# -- bodies ---------------------------------------------------------------------------------------------------------

text = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    [
        "\ud800",
        "a\x00b",
        "👩‍⚕️",
        "\u202e",
        "",
        " ",
        "\ufeff",
        "note-7",
        "static",
        "suwen",
        "notes",
        "hybrid",
        "%00",
        "../..",
    ]
)
scalar = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**400, -1])
    | st.floats()
    | text
)
value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)
document = st.fixed_dictionaries(
    {"id": text, "text": text}, optional={"title": text | scalar, "metadata": st.dictionaries(text, value, max_size=3)}
)
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "/search": {"query": text | value, "k": value, "mode": value, "tier": value, "offset": value, "explain": value}
    | {"where": st.dictionaries(text | st.just("year"), value, max_size=3) | value, "highlights": value},
    "/documents": {"documents": st.lists(document | value, max_size=3) | value, "index": value},
    "/documents/delete": {"ids": st.lists(text | value, max_size=3) | value},
    "/info/recall": {"sample": value},
    "/v1/embeddings": {"input": text | st.lists(text | value, max_size=3) | value, "dimensions": value, "model": value}
    | {"input_type": value, "encoding_format": value},
    "/v1/rerank": {"query": text | value, "documents": st.lists(document | text | value, max_size=3) | value}
    | {"top_n": value, "return_documents": value, "model": value},
    "/worker/lease": {"space": text | value, "most": value, "skip": st.lists(text, max_size=3) | value},
    "/worker/release": {"lease": text | value},
    "/worker/results": {"space": text, "lease": value, "results": st.lists(value, max_size=3) | value},
}


@pytest.mark.parametrize("path", POSTS + WORKER_POSTS)
def test_bodies_of_about_the_right_shape(server: LiveServer, path: str) -> None:
    with httpx.Client(base_url=server.address, timeout=60, verify=False) as client:

        @fuzzed
        @given(body=st.fixed_dictionaries({}, optional=FIELDS[path]))
        def send(body: dict[str, Any]) -> None:
            # json.dumps escapes half characters and writes endless numbers: JSON as careless clients have it.
            content = json.dumps(body).encode()
            check_answer(client.post(path, content=content, headers={"Content-Type": "application/json"}))

        send()


@pytest.mark.parametrize("path", POSTS + WORKER_POSTS)
def test_bytes_that_are_no_json(server: LiveServer, path: str) -> None:
    good = json.dumps({"query": "布洛芬", "documents": [{"id": "x", "text": "甲"}]}, ensure_ascii=False).encode()
    broken = st.integers(0, len(good) - 1).map(lambda place: good[:place])
    with httpx.Client(base_url=server.address, timeout=60, verify=False) as client:

        @fuzzed
        @given(content=st.binary(max_size=200) | broken, kind=st.sampled_from(["application/json", "text/json", "a/b"]))
        def send(content: bytes, kind: str) -> None:
            check_error(client.post(path, content=content, headers={"Content-Type": kind}), 422)

        send()


@fuzzed
@given(id_=text)
def test_any_id_is_stored_and_found_or_refused(shared: LiveServer, id_: str) -> None:
    body = json.dumps({"documents": [{"id": id_, "text": "编号特别的记录。"}]}).encode()
    reply = shared.ask("POST", "/documents", content=body, headers={"Content-Type": "application/json"})
    if reply.status_code != 200:
        check_error(reply, 422)
        return
    address = f"/documents/{quote(id_, safe='')}"
    assert shared.ask("GET", address).json()["id"] == id_
    assert shared.ask("DELETE", address).json() == {"deleted": 1}


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("depth", [65, 1000, 40_000])
def test_deep_json(server: LiveServer, brackets: tuple[bytes, bytes], depth: int) -> None:
    opened, closed = brackets
    for body in (opened * depth + b"1" + closed * depth, opened * depth):
        for path in ("/search", "/v1/rerank"):
            reply = server.ask("POST", path, content=body, headers={"Content-Type": "application/json"})
            assert check_error(reply, 422)["code"] == "invalid_json"


NUMBERS = ["1e400", "-1e400", "1" * 5000, "0." + "1" * 5000, "1e-400", "9223372036854775808", "NaN", "-Infinity", "-0"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:20])
def test_huge_numbers(server: LiveServer, number: str) -> None:
    bodies = {
        "/search": f'{{"query": "布洛芬", "k": {number}}}',
        "/info/recall": f'{{"sample": {number}}}',
        "/v1/embeddings": f'{{"input": "甲", "dimensions": {number}}}',
        "/worker/lease": f'{{"space": "sp", "most": {number}}}',
    }
    kind = {"Content-Type": "application/json"}
    most = f'{{"query": "甲", "documents": ["甲"], "top_n": {number}}}'
    check_answer(server.ask("POST", "/v1/rerank", content=most.encode(), headers=kind))
    for path, body in bodies.items():
        check_error(server.ask("POST", path, content=body.encode(), headers=kind), 422)
    filtered = server.ask("POST", "/search", content=f'{{"query": "甲", "where": {{"year": {number}}}}}', headers=kind)
    check_answer(filtered)
    told = server.ask("POST", "/documents", headers=kind, content=json_document("big", number))
    check_answer(told)
    if told.status_code == 200:
        assert server.ask("GET", "/documents/big").status_code == 200
        assert server.ask("POST", "/search", json={"query": "数字很大", "explain": True}).status_code == 200
        assert server.ask("DELETE", "/documents/big").json() == {"deleted": 1}


def json_document(id_: str, number: str) -> bytes:
    return f'{{"documents": [{{"id": "{id_}", "text": "数字很大", "metadata": {{"n": {number}}}}}]}}'.encode()


KINDS = ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml"]


@pytest.mark.parametrize("kind", [*KINDS, "application/json; charset=utf-16", "\xff", "json" * 1000])
@pytest.mark.parametrize("path", ["/search", "/documents", "/v1/embeddings", "/worker/lease"])
def test_wrong_content_types(server: LiveServer, path: str, kind: str) -> None:
    headers = {"Content-Type": kind.encode("latin-1")}
    check_error(server.ask("POST", path, content=b"query=a&documents=b", headers=headers), 422)
    check_error(server.ask("POST", path, content='{"a": 1}'.encode("utf-16"), headers=headers), 422)


def test_a_body_where_none_belongs(server: LiveServer) -> None:
    for method, path in (("GET", "/healthz"), ("GET", "/documents"), ("DELETE", "/documents/none"), ("GET", "/info")):
        assert server.ask(method, path, content=b"x" * 5000).status_code in (200, 404)


@fuzzed
@given(
    path=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), method=st.sampled_from(["GET", "PUT", "POST"])
)
def test_any_address(shared: LiveServer, path: str, method: str) -> None:
    reply = shared.ask(method, f"/{quote(path, safe='/%')}")
    assert reply.status_code == 200 or check_error(reply, 404, 405, 422)


# -- connections ----------------------------------------------------------------------------------------------------


def head(*headers: str, path: str = "/search") -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode("latin-1")


JSON = "Content-Type: application/json"
GOOD = json.dumps({"query": mark(5), "k": 1, "mode": "lexical"}).encode()


def whole(*more: str) -> bytes:
    return head(JSON, f"Content-Length: {len(GOOD)}", *more) + GOOD


def heard(connection: socket.socket) -> bytes:
    """What the server says until it hangs up, which it must."""
    parts = []
    with suppress(ConnectionResetError, BrokenPipeError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def told(said: bytes) -> list[int]:
    """The statuses of the answers in it."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]


def say(connection: socket.socket, parts: Iterable[bytes], pause: float = 0.0) -> None:
    """Send parts, until the server hangs up."""
    with suppress(BrokenPipeError, ConnectionResetError):
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)


def test_a_byte_at_a_time_is_slow_and_right(server: LiveServer) -> None:
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        say(connection, (bytes([byte]) for byte in whole("Connection: close")))
        said = heard(connection)
    assert told(said) == [200] and b'"document_id":"note-5"' in said


def test_a_byte_at_a_time_for_ever_is_cut_off(server: LiveServer) -> None:
    clients = [server.connect() for _ in range(12)]
    try:
        for client in clients:
            client.sendall(head(JSON, "Content-Length: 1000"))
        for _ in range(30):
            for client in clients:
                say(client, [b" "])
            # Those who wait hold none of the places.
            assert server.ask("POST", "/search", json={"query": "布洛芬"}).status_code == 200
            time.sleep(0.1)
        for client in clients:
            said = heard(client)
            assert told(said) in ([408], []), said
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_half_sent_requests_leave_nothing(server: LiveServer, share: float) -> None:
    body = json.dumps({"documents": [{"id": "half", "text": "只说了一半的话。"}]}).encode()
    request = head(JSON, f"Content-Length: {len(body)}", path="/documents") + body
    for _ in range(10):
        with server.connect() as connection:
            connection.sendall(request[: int(len(request) * share)])
    for _ in range(5):
        with server.connect() as connection:
            connection.sendall(request[: int(len(request) * share)])
            connection.shutdown(socket.SHUT_WR)
            assert told(heard(connection)) in ([], [400])
    assert server.ask("GET", "/documents/half").status_code == 404


def chunked(size: int, number: int) -> Iterator[bytes]:
    for _ in range(number):
        yield b"%x\r\n%s\r\n" % (size, b" " * size)
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("path", ["/search", "/documents", "/v1/embeddings", "/nowhere"])
def test_a_chunked_body_over_the_limit(server: LiveServer, path: str) -> None:
    with server.connect() as connection:
        connection.sendall(head(JSON, "Transfer-Encoding: chunked", "Connection: close", path=path))
        say(connection, chunked(10_000, BODY_BYTES // 10_000 + 5))
        said = heard(connection)
    # A server that hangs up on a flood may take its answer with it.
    assert told(said) in ([413], []), said


def test_a_chunked_body_within_the_limit(server: LiveServer) -> None:
    with server.connect() as connection:
        connection.sendall(head(JSON, "Transfer-Encoding: chunked", "Connection: close"))
        say(connection, [*(b"1\r\n%c\r\n" % byte for byte in GOOD), b"0\r\n\r\n"])
        said = heard(connection)
    assert told(said) == [200] and b'"document_id":"note-5"' in said


GARBAGE = [
    b"\x00" * 100,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n",
    head(JSON, "Content-Length: -1"),
    head(JSON, "Content-Length: 1e3"),
    head(JSON, "Content-Length: 5", "Content-Length: 6") + b"hello",
    head(JSON, f"Content-Length: {10**30}"),
    head(JSON, "Transfer-Encoding: chunked") + b"zz\r\nhello\r\n",
    head(JSON, "Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n",
    head(JSON, "Transfer-Encoding: chunked", "Content-Length: 3") + b"0\r\n\r\n",
    head("X" * 70_000),
    head(*[f"X-{number}: {number}" for number in range(5000)]),
    head("Header with spaces: x"),
    "POST /é HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(),
    b"GET /%ff%fe HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET http://elsewhere/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_after_a_good_request(server: LiveServer, garbage: bytes) -> None:
    with server.connect() as connection:
        say(connection, [whole(), garbage])
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        said = heard(connection)
    statuses = told(said)
    assert statuses == [] or (statuses[0] in (200, 400) and max(statuses) < 500), said
    assert b"Traceback" not in said


@settings(fuzzed, max_examples=80)
@given(parts=st.lists(st.sampled_from([whole(), *GARBAGE[:7]]) | st.binary(max_size=60), min_size=1, max_size=5))
def test_pipelined_garbage(shared: LiveServer, parts: list[bytes]) -> None:
    with shared.connect() as connection:
        say(connection, parts)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        statuses = told(heard(connection))
    assert all(status < 500 for status in statuses)


def test_pipelined_requests_are_all_answered_in_order(server: LiveServer) -> None:
    bad = head(JSON, "Content-Length: 1") + b"{"
    with server.connect() as connection:
        connection.sendall(whole() + bad + whole() + bad + whole("Connection: close"))
        said = heard(connection)
    assert told(said) == [200, 422, 200, 422, 200]


def test_an_expectation_is_met(server: LiveServer) -> None:
    with server.connect() as connection:
        connection.sendall(head(JSON, f"Content-Length: {len(GOOD)}", "Expect: 100-continue", "Connection: close"))
        assert connection.recv(25).startswith(b"HTTP/1.1 100")
        connection.sendall(GOOD)
        assert told(heard(connection)) == [200]


def test_clients_that_leave_before_they_are_answered(server: LiveServer) -> None:
    for _ in range(60):
        with server.connect() as connection:
            connection.sendall(whole())
