"""The client of the commands, against a real server: what it sends, what it says of refusals, when it waits."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fresh_side import make_index, running

from suwen.corpora.records import Document
from suwen.errors import SuwenError
from suwen.service import adding_client
from suwen.service.adding_client import add_documents
from suwen.service.keys import new_key
from suwen.service.service_client import Client, ServerAway, ServerError, delete_documents, patiently


def test_documents_go_through_the_server(tmp_path: Path) -> None:
    odd = "a/b 空 格%20😀?#"
    documents = [Document(f"n{n}", f"第{n}条。", "题", {"year": 2000 + n}) for n in range(7)]
    with running(make_index(tmp_path), batch_documents=3) as server:
        client, seen = server.client(), []
        told = add_documents(
            client, iter([*documents, Document(odd, "怪编号。")]), progress=lambda *done: seen.append(done)
        )
        assert told == {"read": 8, "added": 8, "changed": 0, "unchanged": 0, "passages": 8}
        assert [read for read, _ in seen] == [3, 6, 8]
        assert add_documents(client, iter(documents))["unchanged"] == 7
        hit = client.post("/search", {"query": "第3条", "k": 1, "where": {"year": 2003}})["hits"][0]
        assert (hit["document_id"], hit["title"]) == ("n3", "题")
        assert delete_documents(client, [odd, "n0", "n1", "n2", "nobody"]) == 4
        assert client.get("/documents")["ids"] == ["n3", "n4", "n5", "n6"]


def test_the_last_of_two_with_one_id_stays(tmp_path: Path) -> None:
    with running(make_index(tmp_path)) as server:
        twice = [Document("a", "第一版。"), Document("b", "别的。"), Document("a", "第二版。")]
        add_documents(server.client(), twice, "last")
        assert server.client().get("/documents/a")["text"] == "第二版。"


def test_batches_stay_under_the_servers_limit(tmp_path: Path) -> None:
    long = [Document(f"n{n}", "很长的一段。" * 300) for n in range(6)]
    with running(make_index(tmp_path), body_bytes=14_000) as server:
        assert add_documents(server.client(), iter(long))["added"] == 6
        with pytest.raises(ServerError, match="too_large"):
            add_documents(server.client(), iter([Document("huge", "很长的一段。" * 3000)]))


def test_large_input_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding_client, "_IMPORT_BYTES", 400_000)
    many = [Document(f"n{n:03}", f"第{n}段很长。" * 400, metadata={"n": n}) for n in range(110)]
    long = Document("long", "骨折后应固定患肢，注意休息。" * 9000)
    told: list[int] = []
    with running(make_index(tmp_path)) as server:
        client = server.client()
        counts = add_documents(client, iter([*many, long]), progress=lambda read, passages: told.append(read))
        assert (counts["read"], counts["added"]) == (111, 111)
        assert told == sorted(told) and told[-1] == 111
        jobs = client.get("/imports")["imports"]
        assert len(jobs) > 2 and {job["state"] for job in jobs} == {"done"}
        assert client.get("/documents/long")["text"] == long.text
        assert add_documents(client, iter([long]))["unchanged"] == 1
        with pytest.raises(SuwenError, match=r"was not finished \(text_too_long: line 1"):
            add_documents(client, iter([Document("endless", "甲" * 2_000_001)]))


def test_a_refusal_says_why(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    reading, writing = new_key(keys, "ward", "read"), new_key(keys, "desk", "write")
    with running(make_index(tmp_path), keys=keys) as server:
        with pytest.raises(ServerError, match="needs a key") as refused:
            add_documents(server.client(), iter([Document("a", "文。")]))
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        with pytest.raises(ServerError, match="'ward' may only read"):
            add_documents(server.client(reading), iter([Document("a", "文。")]))
        with pytest.raises(ServerError, match="has no text"):
            add_documents(server.client(writing), iter([Document("a", " ")]))
        assert add_documents(server.client(writing), iter([Document("a", "文。")]))["added"] == 1


def test_addresses_that_are_none() -> None:
    for address in ("search:8000", "ftp://search", "http://", ""):
        with pytest.raises(SuwenError, match="http://HOST:PORT"):
            Client(address)
    with pytest.raises(SuwenError, match="letters no key has"):
        Client("http://127.0.0.1:1", "密钥")


def test_nobody_there() -> None:
    with pytest.raises(ServerAway, match="cannot be reached"):
        Client("http://127.0.0.1:9", timeout=2).get("/info")


# -- servers that misbehave -----------------------------------------------------------------------------------------


@contextmanager
def answering(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server with these answers, the last for ever; and the headers it was sent."""
    rest, seen = list(answers), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            status, headers, body = rest.pop(0) if len(rest) > 1 else rest[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()


BUSY = json.dumps({"error": {"code": "overloaded", "message": "wait"}}).encode()


def test_a_busy_server_is_asked_again() -> None:
    answers = [(429, {"Retry-After": "0"}, BUSY), (503, {}, b"<html>"), (200, {}, b'{"ok": 1}')]
    told: list[float] = []
    with answering(*answers) as (url, seen):
        got = patiently(lambda: Client(url).get("/"), tries=5, on_refusal=lambda away, pause: told.append(pause))
    assert got == {"ok": 1} and len(seen) == 3
    assert told[1] > told[0] > 0


def test_patience_ends() -> None:
    with answering((503, {"Retry-After": "0"}, BUSY)) as (url, seen):
        with pytest.raises(ServerAway, match="has no time now"):
            patiently(lambda: Client(url).get("/"), tries=2)
        assert len(seen) == 2
        stop = threading.Event()
        stop.set()
        with pytest.raises(ServerAway):
            patiently(lambda: Client(url).get("/"), tries=None, stop=stop)


def test_a_redirect_does_not_take_the_key_elsewhere() -> None:
    with answering((200, {}, b"{}")) as (other, stolen):
        with answering((302, {"Location": other}, b"")) as (url, _), pytest.raises(ServerError):
            Client(url, "suwen_secret").get("/info")
        assert stolen == []


def test_something_else_on_the_port() -> None:
    with answering((200, {}, b"<html>hello</html>")) as (url, _), pytest.raises(SuwenError, match="as suwen does"):
        Client(url).get("/info")
