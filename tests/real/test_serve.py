"""``suwen serve`` as a process of its own, over real sockets: bad input, bad clients, bad starts, and a good end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import suwen
from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample
from suwen.service.keys import new_key

COMMAND = [sys.executable, "-c", "from suwen.cli.main import run; run()"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SUWEN_")} | {
    "PYTHONPATH": str(Path(suwen.__file__).parents[1])
}


class Server:
    """A running ``suwen serve``."""

    def __init__(self, process: subprocess.Popen[str], address: str, said: list[str]) -> None:
        self.process, self.address, self.said = process, address, said
        self.reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.place = (host.strip("[]"), int(port))

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.place, timeout=120)
        connection.settimeout(120)
        return connection

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=300)


@contextmanager
def serving(index: Path, *options: str, ready: bool = True, **variables: object) -> Iterator[Server]:
    """Start a server on a free port and stop it at the end."""
    environment = ENVIRONMENT | {f"SUWEN_SERVE_{name.upper()}": str(value) for name, value in variables.items()}
    process = subprocess.Popen(
        [*COMMAND, "serve", str(index), "--port", "0", *options], stderr=subprocess.PIPE, text=True, env=environment
    )
    said: list[str] = []
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"http://\S+", first)
        assert found, first + process.stderr.read()
        server = Server(process, found[0], said)
        server.reader.start()
        while ready and httpx.get(f"{server.address}/readyz", timeout=120).status_code != 200:
            assert process.poll() is None, said
            time.sleep(0.02)
        yield server
        if process.poll() is None:
            assert server.stop() == 0, said
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def fails(*arguments: str | Path) -> str:
    """Run a command that must fail with one clear message; what it said."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT, timeout=300
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


def make_index(folder: Path) -> Path:
    notes = [Document("fever", "布洛芬可以退烧止痛。", "布洛芬", {"year": 2021}), Document("sugar", "胰岛素降低血糖。")]
    with Index.create(folder) as index:
        index.add(notes)
    return folder


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return make_index(tmp_path / "notes")


@contextmanager
def limited(folder: Path, **limits: object) -> Iterator[Server]:
    """A server with keys and limits."""
    keys = {role: new_key(folder / "keys.toml", role, role) for role in ("read", "write")}
    with serving(make_index(folder / "notes"), "--keys", str(folder / "keys.toml"), **limits) as server:
        server.keys = keys  # type: ignore[attr-defined]
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
    headers = {"Authorization": f"Bearer {server.keys.get(key, key)}"} if key else {}  # type: ignore[attr-defined]
    return httpx.request(method, server.address + path, json=body, headers=headers, timeout=60)


DOCUMENT = {"id": "x", "text": "甲"}


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
    key = server.keys["read"]  # type: ignore[attr-defined]
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


def test_the_log_is_json_and_holds_no_text(index: Path) -> None:
    with serving(index) as server:
        httpx.post(f"{server.address}/search", json={"query": "布洛芬退烧吗"}, timeout=120)
        httpx.post(f"{server.address}/search", json={"query": "!"}, timeout=120)
        server.stop()
        server.reader.join(120)
        lines = [json.loads(line) for line in server.said]
    asked = [line for line in lines if line.get("route") == "/search"]
    assert [(line["status"], line.get("code")) for line in asked] == [(200, None), (422, "empty_query")]
    assert "布洛芬" not in "".join(server.said)


# -- the pair of the package ------------------------------------------------------------------------------------


def test_with_the_pair_of_the_package_a_posted_document_is_fresh_and_found(tmp_path: Path) -> None:
    """Its document encoder has no base here: the sample comes by ready vectors, what is posted by a tier."""
    with Index.create(tmp_path / "sample") as made:
        index_sample(made)
    with serving(tmp_path / "sample") as server:
        about = httpx.get(f"{server.address}/info", timeout=120).json()
        assert (about["pair"]["default_tier"], about["pair"]["document"]) == ("l6", "adapter")
        assert (about["index"]["encoders"], about["freshness"]["worker"]) == ({"document": 360}, "none")
        note = {"id": "note-7", "text": "纽扣电池卡在食管里两小时就会灼伤，不要催吐，立即就医。"}
        stored = httpx.post(f"{server.address}/documents", json={"documents": [note]}, timeout=60).json()
        assert stored["documents"][0]["state"] == "fresh"
        for tier in about["pair"]["tiers"]:
            asked = {"query": "孩子误吞了纽扣电池", "mode": "dense", "tier": tier}
            hit = httpx.post(f"{server.address}/search", json=asked, timeout=60).json()["hits"][0]
            assert (hit["document_id"], hit["encoder"], hit["state"]) == ("note-7", "l6", "fresh")
        told = httpx.get(f"{server.address}/info", timeout=120).json()
        assert (told["freshness"]["fresh_passages"], told["index"]["encoders"]["l6"]) == (1, 1)


# -- starting ---------------------------------------------------------------------------------------------------


def test_a_port_in_use(index: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is in use: stop the server that has it" in fails(
            "serve", index, "--port", port
        )


def test_an_index_that_another_process_writes(index: Path) -> None:
    with serving(index) as server:
        assert f"is being written by process {server.process.pid}" in fails("serve", index, "--port", "0")
        with serving(index, "--read-only") as second:
            told = httpx.post(f"{second.address}/documents", json={"documents": [DOCUMENT]}, timeout=120)
            assert (told.status_code, told.json()["error"]["code"]) == (403, "read_only")
            httpx.post(
                f"{server.address}/documents",
                json={"documents": [{"id": "n", "text": "氯雷他定治鼻炎。"}]},
                timeout=120,
            )
            hits = httpx.post(f"{second.address}/search", json={"query": "氯雷他定"}, timeout=120).json()["hits"]
            assert hits[0]["document_id"] == "n"


def test_an_index_that_is_damaged(index: Path) -> None:
    (index / "truth.db").write_bytes(b"no database" * 1000)
    said = fails("serve", index, "--port", "0")
    assert "truth.db cannot be read" in said and "restore a backup" in said


def test_what_is_no_index(tmp_path: Path) -> None:
    assert "is not an index" in fails("serve", tmp_path, "--port", "0")
    assert "no index is named" in fails("serve")


def test_a_public_address_needs_keys(index: Path, tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::"):
        said = fails("serve", index, "--host", host, "--port", "0")
        assert "no keys are configured: make one with 'suwen key new" in said
    assert "there is no" in fails("serve", index, "--host", "0.0.0.0", "--keys", tmp_path / "none.toml")
    new_key(tmp_path / "keys.toml", "a", "read")
    said = fails("serve", index, "--host", "no such host", "--port", "0", "--keys", tmp_path / "keys.toml")
    assert "is not an address of this machine" in said


def test_without_keys_it_answers_to_this_machines_names_alone(index: Path) -> None:
    with serving(index) as server:
        port = server.place[1]
        assert httpx.get(f"http://localhost:{port}/info", timeout=120).status_code == 200
        told = httpx.get(f"{server.address}/info", headers={"Host": f"evil.example:{port}"}, timeout=120)
        assert (told.status_code, told.json()["error"]["code"]) == (403, "forbidden_host")


def test_the_address_for_programs(index: Path) -> None:
    command = [*COMMAND, "serve", str(index), "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads("".join(process.stdout.readline() for _ in range(4)))
            assert told["index"] == str(index)
            assert httpx.get(f"{told['address']}/healthz", timeout=120).json() == {"status": "ok"}
        finally:
            process.terminate()


# -- stopping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_what_was_accepted(index: Path, how: int) -> None:
    documents = [{"id": f"d{number}", "text": f"第{number}号记录。" * 400} for number in range(6)]
    replies: list[Any] = []

    def post(server: Server, batch: Sequence[dict[str, str]]) -> None:
        with suppress(httpx.ConnectError):
            replies.append(httpx.post(f"{server.address}/documents", json={"documents": list(batch)}, timeout=60))

    with serving(index) as server:
        threads = [threading.Thread(target=post, args=(server, [document])) for document in documents]
        for thread in threads:
            thread.start()
        while 'suwen_queue_length{kind="write"} 0.0' in httpx.get(f"{server.address}/metrics", timeout=120).text:
            if not any(thread.is_alive() for thread in threads):
                break
        assert server.stop(how) == 0
        for thread in threads:
            thread.join()
    stored = {one["id"] for reply in replies if reply.status_code == 200 for one in reply.json()["documents"]}
    assert stored, [reply.text for reply in replies]
    with Index.open(index, write=True) as opened:
        assert stored <= set(opened.ids())
        assert opened.engine.verify() == []


def test_an_idle_client_does_not_hold_up_a_stop(index: Path) -> None:
    with serving(index) as server, server.connect() as idle, httpx.Client(base_url=server.address, timeout=120) as kept:
        kept.get("/healthz")
        idle.sendall(b"GET")
        assert server.stop() == 0
