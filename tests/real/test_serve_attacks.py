"""What was tried on a running server to stop it, with the very bodies: it refuses, goes on, and stays as large."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live_server import LiveServer, live_server, make_index, notes, running

from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key, revoke_key

JSON = {"Content-Type": "application/json"}
#: What one request may take, by the bar, and what a heap may keep of it.
MOST = 64 * 2**20
#: Waits at a text until the process is ended.
HANGING = """
import time
from suwen.encoders.static import StaticEncoder
plain = StaticEncoder.encode
def encode(self, texts, **options):
    if any("卡住" in text for text in texts):
        time.sleep(10_000)
    return plain(self, texts, **options)
StaticEncoder.encode = encode
"""


def where(values: bytes) -> bytes:
    return b'{"query": "a", "where": {"year": ' + values + b"}}"


def keys(count: int) -> bytes:
    return b'{"query": "a",' + b",".join(b'"k%d":1' % number for number in range(count)) + b"}"


def values(fields: int, each: int) -> bytes:
    return json.dumps({"query": "a", "where": {f"f{n}": list(range(each)) for n in range(fields)}}).encode()


ATTACKS: dict[str, tuple[str, bytes, int, str]] = {
    "4 MB of nested empty lists": ("/search", where(b"[" + b"[]," * 1_400_000 + b"1]"), 413, "too_large"),
    "17 MB of nested empty lists": ("/search", where(b"[" + b"[]," * 5_900_000 + b"1]"), 413, "too_large"),
    "a million unknown keys": ("/search", keys(1_000_000), 413, "too_large"),
    "640,000 filter values": ("/search", values(64, 10_000), 413, "too_large"),
    "lists that fit": ("/search", where(b"[" + b"[]," * 9_000 + b"1]"), 422, "invalid_request"),
    "unknown keys that fit": ("/search", keys(19_000), 422, "invalid_request"),
    "filter values that fit": ("/search", values(2, 4_900), 422, "unknown_field"),
    "deep": ("/search", where(b"[" * 300_000 + b"]" * 300_000), 422, "invalid_json"),
    "a long number": ("/search", b'{"query": "a", "k": ' + b"1" * 900_000 + b"}", 422, "invalid_json"),
    "huge ignored fields": (
        "/v1/embeddings",
        b'{"input": "a", "user": [' + b"[]," * 5_000_000 + b"1]}",
        413,
        "too_large",
    ),
    "2 million characters": (
        "/documents",
        json.dumps({"documents": [{"id": "x", "text": "高血压患者应低盐。" * 222_222}]}, ensure_ascii=False).encode(),
        *(422, "too_many"),
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server() as server:
        yield server
        assert server.failures == []


def searched(server: LiveServer) -> int:
    return server.ask("POST", "/search", json={"query": "布洛芬退烧"}).status_code


def error_of(reply: httpx.Response) -> str:
    return str(reply.json()["error"]["code"])


@pytest.mark.parametrize("name", ATTACKS)
def test_a_body_that_costs_more_than_it_shows_is_refused(server: LiveServer, name: str) -> None:
    path, body, status, code = ATTACKS[name]
    before = server.memory()
    for _ in range(3):
        reply = server.ask("POST", path, content=body, headers=JSON)
        assert (reply.status_code, error_of(reply)) == (status, code)
    assert server.memory() - before < MOST
    assert searched(server) == 200


def test_a_packed_body_is_refused_unread(server: LiveServer) -> None:
    for kind in ("gzip", "deflate", "br", "zstd"):
        reply = server.ask("POST", "/search", content=b"x" * 1000, headers=JSON | {"Content-Encoding": kind})
        assert (reply.status_code, error_of(reply)) == (415, "packed_body")


def cut_off(server: LiveServer, data: bytes) -> bytes:
    """Send something and read what comes back until the server hangs up."""
    with server.connect() as connection:
        got = b""
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                got += part
        except (BrokenPipeError, ConnectionResetError):
            pass
        return got


def test_floods_of_headers_and_of_requests_ahead_are_cut(server: LiveServer) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    assert cut_off(server, head + b"a:\r\n" * 15_000 + b"\r\n") == b""
    assert cut_off(server, head + b"x: " + b"a" * 200_000 + b"\r\n\r\n") == b""
    assert cut_off(server, (head + b"\r\n") * 20_000).count(b"HTTP/1.1 200") < 20_000
    assert searched(server) == 200


# -- who may have how much ------------------------------------------------------------------------------------------


def from_address(server: LiveServer, address: str) -> socket.socket:
    return socket.create_connection(server.place, timeout=60, source_address=(address, 0))


def ask_from(server: LiveServer, address: str) -> bytes:
    with from_address(server, address) as connection:
        body = b'{"query": "insulin"}'
        head = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        got = b""
        while part := connection.recv(65536):
            got += part
        return got


def test_half_open_connections_of_one_client_lock_nobody_out() -> None:
    with live_server(connections=120, address_connections=120, slow_seconds=600) as server, ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(from_address(server, "127.0.0.1"))
            connection.sendall(
                (b"", b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{")[number % 2]
            )
        for number in range(10):
            assert b" 200 " in ask_from(server, f"127.0.0.{2 + number}").splitlines()[0]


def test_one_address_has_its_share_of_connections() -> None:
    with live_server(connections=100, address_connections=20, slow_seconds=600) as server, ExitStack() as stack:
        opened = [stack.enter_context(from_address(server, "127.0.0.1")) for _ in range(60)]
        assert b" 200 " in ask_from(server, "127.0.0.2").splitlines()[0]
        gone = 0
        for connection in opened[20:]:
            try:
                gone += connection.recv(1) == b""
            except ConnectionResetError:
                gone += 1
        assert gone >= 40 - 1  # the wait for readiness may have left a place


# -- keys while it runs ---------------------------------------------------------------------------------------------


def until(server: LiveServer, key: str, status: int) -> None:
    deadline = time.monotonic() + 300
    while server.ask("GET", "/info", headers={"X-API-Key": key}).status_code != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_keys_are_made_and_withdrawn_while_the_server_runs() -> None:
    with folder_in_memory() as folder:
        file = folder / "keys.toml"
        first = new_key(file, "first", "read")
        with running(make_index(folder), keys=file, log_addresses=True) as server:
            until(server, first, 200)
            second = new_key(file, "second", "write")
            until(server, second, 200)
            file.write_text("not keys", encoding="utf-8")
            time.sleep(1.2)
            assert server.ask("GET", "/info", headers={"X-API-Key": first}).status_code == 200
            file.unlink()
            third = new_key(file, "third", "read", "2999-01-01")
            until(server, third, 200)
            until(server, first, 401)
            revoke_key(file, "third")
            until(server, third, 401)
            assert server.ask("GET", "/info").status_code == 401, "with the last key gone, nobody is let in"
            assert server.ask("GET", "/healthz").status_code == 200
            server.wait_to_say("the keys stay as they were")
            server.wait_to_say('"client":"127.0.0.1"')


# -- stopping -------------------------------------------------------------------------------------------------------


def post(server: LiveServer, replies: list[Any], *documents: dict[str, str]) -> None:
    try:
        replies.append(server.ask("POST", "/documents", json={"documents": list(documents)}))
    except httpx.TransportError:
        replies.append(None)


def test_a_stop_waits_for_no_encoder_and_loses_nothing_acknowledged() -> None:
    with folder_in_memory() as folder:
        index = make_index(folder)
        with running(index, patch=HANGING, stop_seconds=2) as server:
            replies: list[Any] = []
            post(server, replies, {"id": "kept", "text": "这一份已经答复。"})
            assert replies[0].status_code == 200
            stuck = [{"id": f"s{number}", "text": f"第{number}份卡住。"} for number in range(4)]
            threads = [threading.Thread(target=post, args=(server, replies, one)) for one in stuck]
            for thread in threads:
                thread.start()
            while 'suwen_queue_length{kind="write"} 4.0' not in server.ask("GET", "/metrics").text:
                time.sleep(0.02)
            assert searched(server) == 200
            # The encoder sleeps for hours; whether this ends at all is what is tested.
            server.process.terminate()
            assert server.process.wait(120) == 0
            for thread in threads:
                thread.join()
        assert all(reply is None or error_of(reply) == "stopping" for reply in replies[1:])
        with Index.open(index, write=True) as opened:
            assert "kept" in set(opened.ids()) and not {f"s{number}" for number in range(4)} & set(opened.ids())
            assert opened.engine.verify() == []


def test_a_stop_tells_those_it_leaves_that_nothing_was_stored() -> None:
    """Posts that would take minutes, in steps that are short: they are ended, and told so."""
    slow = HANGING.replace("time.sleep(10_000)", "time.sleep(0.2)")
    with folder_in_memory() as folder:
        index = make_index(folder)
        with running(index, patch=slow, stop_seconds=4) as server:
            replies: list[Any] = []
            batch = [{"id": f"s{number}", "text": f"第{number}份卡住。"} for number in range(250)]
            threads = [threading.Thread(target=post, args=(server, replies, *batch)) for _ in range(3)]
            for thread in threads:
                thread.start()
            while 'suwen_queue_length{kind="write"} 3.0' not in server.ask("GET", "/metrics").text:
                time.sleep(0.02)
            server.process.terminate()
            assert server.process.wait(120) == 0
            for thread in threads:
                thread.join()
        assert [error_of(reply) for reply in replies] == ["stopping"] * 3
        assert all("nothing of this was stored" in reply.json()["error"]["message"] for reply in replies)
        with Index.open(index) as opened:
            assert not [id_ for id_ in opened.ids() if id_.startswith("s")]


# -- a damaged index ------------------------------------------------------------------------------------------------


def test_damage_that_comes_while_it_runs_is_told_with_the_file_and_the_fix() -> None:
    many = [Document(f"n{number}", f"第{number}条记录，内容不同。" * 20) for number in range(400)]
    with live_server([*notes(), *many]) as server:
        truth = server.index / "truth.db"
        with truth.open("r+b") as stream:
            stream.seek(8192)
            stream.write(b"\xff" * (truth.stat().st_size - 8192))
        while server.ask("GET", "/readyz").status_code == 200:
            server.ask("GET", "/documents/n399")
            server.ask("GET", "/documents?limit=10000")
        reply = server.ask("GET", "/readyz")
        said = reply.json()["error"]["message"]
        assert (reply.status_code, error_of(reply)) == (503, "damaged_index")
        assert "notes/truth.db cannot be read" in said and "restore a backup" in said
        assert str(server.index.parent) not in said
        server.wait_to_say(r"the index is damaged.*truth\.db")


# -- imports --------------------------------------------------------------------------------------------------------


def test_an_import_outlives_kills_and_undoes_nothing_that_was_acknowledged() -> None:
    lines = [{"id": f"i{n:05}", "text": f"第{n}条：骨折后应固定患肢。"} for n in range(3000)]
    body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    # In each life it stores three batches, and a kill finds it at the fourth.
    slow = "import time\nfrom itertools import count\nfrom suwen.index.embedded import EmbeddedEngine\n"
    slow += "plain, steps = EmbeddedEngine.add, count()\n"
    slow += "EmbeddedEngine.add = lambda self, *given: (next(steps) < 3 or time.sleep(600), plain(self, *given))[1]"
    with folder_in_memory() as folder:
        index, id_, deleted, read = make_index(folder), None, [], 0
        for life in range(1, 4):
            with running(index, patch=slow) as server:
                if id_ is None:
                    kind = {"Content-Type": "application/x-ndjson"}
                    id_ = server.ask("POST", "/imports", content=body, headers=kind).json()["id"]
                while (job := server.ask("GET", f"/imports/{id_}").json())["read"] < read + 3 * 256:
                    time.sleep(0.01)
                read = job["read"]
                gone = lines[100 * life]["id"]
                assert server.ask("DELETE", f"/documents/{gone}").json() == {"deleted": 1}
                deleted.append(gone)
                server.kill()
        with running(index) as server:
            while (job := server.ask("GET", f"/imports/{id_}").json())["state"] != "done":
                time.sleep(0.01)
            left = set(server.ask("GET", "/documents?limit=10000").json()["ids"])
        assert (job["read"], job["added"], job["unchanged"], job["changed"]) == (3000, 3000, 0, 0)
        assert {line["id"] for line in lines} - left == set(deleted), "what was deleted stays deleted"
        with Index.open(index, write=True) as opened:
            assert opened.engine.verify() == []
