"""Several processes behind one address: what is acknowledged each finds, and none outlives the one that writes."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from live_server import LiveServer, live_server, make_index, mark, running

from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key

_PATIENCE = 300.0


def until(what, why: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def readers(server: LiveServer) -> list[psutil.Process]:
    """The processes that read beside the writer and take connections already."""
    port = server.place[1]
    listening = []
    for one in psutil.Process(server.process.pid).children():
        # A process that ends while it is asked takes no connections (psutil lets either error through).
        with suppress(psutil.Error, FileNotFoundError):
            if any(c.laddr.port == port for c in one.net_connections("tcp") if c.status == "LISTEN"):
                listening.append(one)
    return listening


def answers_alone(server: LiveServer, path: str = "/search", query: str = mark(3), first: str = "note-3") -> bool:
    """Whether searches are answered while the writer stands still: only a reading process can have.

    One that listens may still be starting, and a new one has the socket of the one that fell from its first moment:
    the writer must go on at times, to tell it what to serve.
    """
    server.process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(8):
            with suppress(httpx.TimeoutException):
                found = server.ask("POST", path, json={"query": query, "mode": "lexical"}, timeout=2)
                return found.json()["hits"][0]["document_id"] == first
        return False
    finally:
        server.process.send_signal(signal.SIGCONT)


def ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == "zombie")
    except psutil.NoSuchProcess:
        return True


def test_a_document_is_found_by_every_process_the_moment_it_is_acknowledged():
    with live_server(workers=3) as server:
        until(lambda: len(readers(server)) == 2, "the reading processes do not begin to listen")
        for number in range(30):
            word = f"xk{number:03}q"
            document = {"id": f"new-{number}", "text": f"新记录 {word}。"}
            # Each request is a connection of its own, which the kernel gives to any of the three.
            assert server.ask("POST", "/documents", json={"documents": [document]}).status_code == 200
            for _ in range(4):
                hits = server.ask("POST", "/search", json={"query": word, "k": 1, "mode": "lexical"}).json()["hits"]
                assert [hit["document_id"] for hit in hits] == [f"new-{number}"]
            assert server.ask("DELETE", f"/documents/new-{number}").json() == {"deleted": 1}
            for _ in range(4):
                found = server.ask("POST", "/search", json={"query": word, "mode": "lexical"}).json()["hits"]
                assert all(hit["document_id"] != f"new-{number}" for hit in found)
        assert server.failures == []


def test_what_is_passed_on_comes_through_as_it_is():
    with live_server(workers=2) as server:
        until(lambda: len(readers(server)) == 1, "the reading process does not begin to listen")
        for _ in range(8):
            assert server.ask("GET", "/readyz").json() == {"status": "ready"}
            assert server.ask("GET", "/info").json()["read_only"] is False
            missing = server.ask("GET", "/documents/nothing", headers={"X-Request-Id": "mine-1"})
            assert (missing.status_code, missing.headers["x-request-id"]) == (404, "mine-1")
            # Of no stated length, in pieces.
            lines = (b'{"id": "p%d", "text": "piece"}\n' % number for number in range(3))
            made = server.ask("POST", "/imports", content=lines, headers={"Content-Type": "application/x-ndjson"})
            assert made.status_code in (200, 202), made.text
        assert server.failures == []


def test_a_reading_process_answers_alone_is_replaced_when_it_falls_and_ends_with_the_writer():
    with live_server(workers=2) as server:
        until(lambda: len(readers(server)) == 1, "the reading process does not begin to listen")
        until(lambda: answers_alone(server), "the reading process does not answer")
        (first,) = readers(server)
        first.kill()
        until(lambda: any(one.pid != first.pid for one in readers(server)), "it is not started again")
        until(lambda: answers_alone(server), "the one that was started again does not answer")
        (second,) = readers(server)
        server.kill()
        until(lambda: ended(second), "it outlives the writer")


def test_a_stop_ends_all_of_them():
    with live_server(workers=3) as server:
        until(lambda: len(readers(server)) == 2, "the reading processes do not begin to listen")
        pids = [one.pid for one in readers(server)]
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


def made(place: Path, name: str, text: str) -> None:
    """Another index in the server's folder, of one document."""
    with Index.create(place / "more" / name, pair=place / "pair") as index:
        index.add([Document(f"{name}-1", text, "药")])


def first_hit(server: LiveServer, path: str, **options: object) -> tuple[int, object]:
    answer = server.ask("POST", path, json={"query": "布洛芬", "k": 1}, **options)
    return answer.status_code, [hit["document_id"] for hit in answer.json().get("hits", [])]


def test_every_process_answers_for_every_index_and_follows_a_switch_at_once():
    with folder_in_memory() as place:
        make_index(place)
        for version in (1, 2):
            made(place, f"drugs-{version}", f"布洛芬说明书第{version}版。")
        with running(place / "notes", opened=["drugs-1", "drugs-2"], folder=place / "more", workers=2) as server:
            until(lambda: len(readers(server)) == 1, "the reading process does not begin to listen")
            assert server.ask("PUT", "/aliases/drugs", json={"index": "drugs-1"}).status_code == 200
            until(
                lambda: answers_alone(server, "/indexes/drugs/search", "布洛芬", "drugs-1-1"),
                "the reading process does not open the folder's indexes",
            )
            for number in range(21):
                wanted = f"drugs-{2 - number % 2}"
                assert server.ask("PUT", "/aliases/drugs", json={"index": wanted}).status_code == 200
                # Each a connection of its own, to any of the processes.
                for _ in range(4):
                    assert first_hit(server, "/indexes/drugs/search") == (200, [f"{wanted}-1"])
            assert server.ask("PUT", "/aliases/default", json={"index": "drugs-1"}).status_code == 200
            assert [first_hit(server, "/search") for _ in range(6)] == 6 * [(200, ["drugs-1-1"])]
            assert server.ask("DELETE", "/indexes/drugs-2").status_code == 409
            assert server.ask("PUT", "/aliases/drugs", json={"index": "notes"}).status_code == 200
            assert server.ask("DELETE", "/indexes/drugs-2").json() == {"deleted": "drugs-2"}
            assert [first_hit(server, "/indexes/drugs-2/search") for _ in range(6)] == 6 * [(404, [])]
            assert not (place / "more" / "drugs-2").exists()
            # One that comes back under the same name is another one.
            made(place, "drugs-2", "布洛芬重印本。")
            assert server.ask("PUT", "/indexes/drugs-2").status_code == 200
            until(lambda: server.ask("GET", "/indexes/drugs-2").json()["state"] == "ready", "it does not open")
            assert [first_hit(server, "/indexes/drugs-2/search") for _ in range(6)] == 6 * [(200, ["drugs-2-1"])]
            until(
                lambda: answers_alone(server, "/indexes/drugs-2/search", "重印本", "drugs-2-1"),
                "the reading process does not open the new index",
            )
            assert server.failures == [], server.failures[0]


def test_a_key_of_one_index_and_a_cursor_are_good_with_every_process():
    with folder_in_memory() as place:
        make_index(place)
        made(place, "drugs", "布洛芬每日不超过四次。")
        keys = place / "keys.toml"
        every = new_key(keys, "all", "write")
        everywhere = {"Authorization": f"Bearer {every}"}
        drugs = {"Authorization": f"Bearer {new_key(keys, 'ward', 'read', None, ['drugs'])}"}
        with running(
            place / "notes", opened=["drugs"], key=every, folder=place / "more", workers=2, keys=keys
        ) as server:
            until(lambda: len(readers(server)) == 1, "the reading process does not begin to listen")
            for _ in range(6):
                assert first_hit(server, "/indexes/drugs/search", headers=drugs) == (200, ["drugs-1"])
                assert first_hit(server, "/search", headers=drugs)[0] == 403
                assert first_hit(server, "/indexes/drugs/search")[0] == 401
            begun = server.ask("POST", "/cursors", json={"query": "布洛芬", "k": 2}, headers=everywhere).json()
            pages = [server.ask("GET", f"/cursors/{begun['cursor']}?k=2", headers=everywhere) for _ in range(8)]
            assert [page.json()["hits"] for page in pages] == 8 * [begun["hits"]]
            assert server.failures == [], server.failures[0]
