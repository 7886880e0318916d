"""Several indexes on one real server: found by name, switched under load, copied over HTTP, and there after a kill."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live_server import LiveServer, make_index, notes, running

from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key

#: Switches under load, and callers that search meanwhile.
SWITCHES, CALLERS = 30, 4


@pytest.fixture
def place() -> Iterator[Path]:
    with folder_in_memory() as folder:
        make_index(folder)
        yield folder


def made(place: Path, name: str, text: str) -> Path:
    """Another index in the server's folder, of one document."""
    with Index.create(place / "more" / name, pair=place / "pair") as index:
        index.add([Document(f"{name}-1", text, "药")])
    return place / "more" / name


def wait_for(server: LiveServer, name: str, state: str = "ready") -> dict[str, object]:
    """Return once an index has come to a state."""
    while True:
        told = server.ask("GET", f"/indexes/{name}")
        if told.status_code == 200 and told.json()["state"] == state:
            return dict(told.json())
        assert told.status_code == 200 and told.json()["state"] in ("restoring", "opening"), told.text
        time.sleep(0.01)


def hit_ids(server: LiveServer, path: str, query: str = "布洛芬") -> list[str]:
    answer = server.ask("POST", path, json={"query": query, "k": 3})
    assert answer.status_code == 200, answer.text
    return [hit["document_id"] for hit in answer.json()["hits"]]


def test_each_index_is_asked_by_its_name(place: Path) -> None:
    made(place, "drugs", "布洛芬每日不超过四次。")
    with running(place / "notes", opened=["drugs"], folder=place / "more") as server:
        assert hit_ids(server, "/indexes/drugs/search") == ["drugs-1"]
        assert hit_ids(server, "/indexes/notes/search") == hit_ids(server, "/search") != ["drugs-1"]
        post = {"documents": [{"id": "new", "text": "阿司匹林。"}]}
        assert server.ask("POST", "/indexes/drugs/documents", json=post).json()["added"] == 1
        assert server.ask("GET", "/indexes/drugs/documents/new").status_code == 200
        assert server.ask("GET", "/documents/new").status_code == 404
        assert server.ask("GET", "/indexes/drugs/info").json()["index"]["name"] == "drugs"
        assert server.ask("GET", "/indexes/drugs/readyz").status_code == 200
        nowhere = server.ask("POST", "/indexes/nowhere/search", json={"query": "a"})
        assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "unknown_index")
        for path in ("/indexes/drugs/healthz", "/indexes/drugs/metrics", "/indexes/drugs/", "/indexes/drugs/indexes"):
            assert server.ask("GET", path).status_code == 404, path
        numbers = server.ask("GET", "/metrics").text
        assert 'suwen_index_documents{index="drugs"} 2.0' in numbers
        assert 'suwen_index_documents{index="notes"} 40.0' in numbers


def test_no_request_fails_while_an_alias_is_switched(place: Path) -> None:
    for version in (1, 2):
        made(place, f"drugs-{version}", f"布洛芬说明书第{version}版。")
    with running(place / "notes", opened=["drugs-1", "drugs-2"], folder=place / "more") as server:
        assert server.ask("PUT", "/aliases/drugs", json={"index": "drugs-1"}).json()["before"] is None
        stop, answers = threading.Event(), []

        def search() -> None:
            with httpx.Client(base_url=server.address, timeout=120, verify=False) as client:
                while not stop.is_set():
                    answer = client.post("/indexes/drugs/search", json={"query": "布洛芬", "k": 1})
                    told = answer.json()
                    ids = [hit["document_id"] for hit in told.get("hits", [])]
                    answers.append((answer.status_code, told.get("index"), ids))

        callers = [threading.Thread(target=search) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for number in range(SWITCHES):
            wanted = f"drugs-{2 - number % 2}"
            seen = len(answers)
            switched = server.ask("PUT", "/aliases/drugs", json={"index": wanted})
            assert switched.json() == {"alias": "drugs", "index": wanted, "before": f"drugs-{1 + number % 2}"}
            # From the answer on, whoever asks gets the new one.
            assert hit_ids(server, "/indexes/drugs/search") == [f"{wanted}-1"]
            while len(answers) < seen + CALLERS and all(caller.is_alive() for caller in callers):
                time.sleep(0.001)
        # The old one goes while it is being read by its name.
        assert server.ask("PUT", "/aliases/drugs", json={"index": "drugs-2"}).status_code == 200
        assert server.ask("DELETE", "/indexes/drugs-1").json() == {"deleted": "drugs-1"}
        stop.set()
        for caller in callers:
            caller.join()
        assert {status for status, _, _ in answers} == {200}
        assert {name for _, name, _ in answers} == {"drugs-1", "drugs-2"}
        assert all(ids == [f"{name}-1"] for _, name, ids in answers), "an answer of one index under the other's name"
        assert not (place / "more" / "drugs-1").exists()
        assert server.failures == []


def test_the_default_is_an_alias_too_and_a_kill_forgets_no_switch(place: Path) -> None:
    made(place, "notes-2", "布洛芬新版。")
    with running(place / "notes", opened=["notes-2"], folder=place / "more") as server:
        assert hit_ids(server, "/search") != ["notes-2-1"]
        assert server.ask("PUT", "/aliases/default", json={"index": "notes-2"}).status_code == 200
        assert hit_ids(server, "/search") == ["notes-2-1"]
        refused = server.ask("DELETE", "/indexes/notes-2").json()["error"]
        assert (refused["code"], "default" in refused["message"]) == ("index_in_use", True)
        server.kill()
    with running(place / "notes", folder=place / "more") as server:
        assert server.ask("GET", "/aliases").json() == {"aliases": {"default": "notes-2"}}
        assert hit_ids(server, "/search") == ["notes-2-1"]
        assert len(hit_ids(server, "/indexes/notes/search")) == 3


def test_a_snapshot_becomes_an_index_elsewhere(place: Path) -> None:
    with running(place / "notes", folder=place / "more") as server:
        copy = server.ask("GET", "/snapshot")
        assert (copy.status_code, copy.headers["content-type"]) == (200, "application/x-tar")
        assert int(copy.headers["content-length"]) == len(copy.content)
        # What is posted after the copy is not in it.
        server.ask("POST", "/documents", json={"documents": [{"id": "later", "text": "晚来的一条。"}]})
        taken = server.ask("POST", "/indexes/notes-b/restore", content=copy.content)
        assert (taken.status_code, taken.json()["state"]) == (200, "restoring"), taken.text
        assert wait_for(server, "notes-b")["named"] is False
        assert server.ask("GET", "/indexes/notes-b/info").json()["index"]["documents"] == len(notes())
        assert hit_ids(server, "/indexes/notes-b/search") == hit_ids(server, "/search")
        assert server.ask("GET", "/indexes/notes-b/documents/later").status_code == 404
        again = server.ask("POST", "/indexes/notes-b/restore", content=copy.content).json()["error"]
        assert again["code"] == "index_exists"
        for cut in (copy.content[:-1024], copy.content[:5000], b"", b"no tar at all" * 500):
            refused = server.ask("POST", "/indexes/cut/restore", content=cut)
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_snapshot"), refused.text
        assert {one.name for one in (place / "more").iterdir()} == {"notes-b"}
        assert not list((place / "notes").glob(".snapshot-*"))


def test_a_restore_that_was_taken_outlives_a_kill(place: Path) -> None:
    slow = "import suwen.service.restoring as r, time; d = r._derive; r._derive = lambda *a: (time.sleep(600), d(*a))"
    with running(place / "notes", folder=place / "more", patch=slow) as server:
        copy = server.ask("GET", "/snapshot").content
        assert server.ask("POST", "/indexes/copy/restore", content=copy).status_code == 200
        assert server.ask("GET", "/indexes/copy").json()["state"] == "restoring"
        server.kill()
    with running(place / "notes", folder=place / "more") as server:
        wait_for(server, "copy")
        assert server.ask("GET", "/indexes/copy/info").json()["index"]["documents"] == len(notes())


def test_an_index_made_beside_the_server_is_taken_in(place: Path) -> None:
    with running(place / "notes", folder=place / "more") as server:
        missing = server.ask("PUT", "/indexes/drugs").json()["error"]
        assert missing["code"] == "unknown_index"
        made(place, "drugs", "布洛芬。")
        assert server.ask("PUT", "/indexes/drugs").json()["state"] in ("opening", "ready")
        wait_for(server, "drugs")
        assert hit_ids(server, "/indexes/drugs/search") == ["drugs-1"]
        taken = server.ask("PUT", "/aliases/notes", json={"index": "drugs"}).json()["error"]
        assert taken["code"] == "index_exists"
        for name in ("..", "a%2Fb", ".hidden", "x" * 65):
            assert server.ask("PUT", f"/indexes/{name}").status_code in (404, 405, 422), name


def test_an_index_that_cannot_be_opened_keeps_the_others_going(place: Path) -> None:
    broken = place / "more" / "broken"
    broken.mkdir(parents=True)
    (broken / "truth.db").write_bytes(b"no database at all" * 1000)
    with running(place / "notes", folder=place / "more") as server:
        while server.ask("GET", "/indexes/broken").json()["state"] == "opening":
            time.sleep(0.01)
        told = server.ask("GET", "/indexes/broken").json()
        assert (told["state"], told["error"]["code"]) == ("failed", "damaged_index")
        assert "truth.db" in told["error"]["message"] and str(place) not in told["error"]["message"]
        assert server.ask("GET", "/indexes/broken/readyz").status_code == 503
        assert server.ask("GET", "/readyz").status_code == 200
        assert len(hit_ids(server, "/search")) == 3
        refused = server.ask("PUT", "/aliases/default", json={"index": "broken"}).json()["error"]
        assert refused["code"] == "damaged_index"
        assert server.ask("DELETE", "/indexes/broken").status_code == 200
        assert not broken.exists()


def test_a_server_without_a_folder_keeps_to_its_settings(place: Path) -> None:
    drugs = made(place, "drugs", "布洛芬。")
    with running(place / "notes", indexes=f"pills={drugs}", aliases="tablets=pills") as server:
        assert hit_ids(server, "/indexes/pills/search") == hit_ids(server, "/indexes/tablets/search") == ["drugs-1"]
        told = server.ask("GET", "/indexes").json()["indexes"]
        assert [(one["name"], one["aliases"], one["named"]) for one in told] == [
            ("notes", ["default"], True),
            ("pills", ["tablets"], True),
        ]
        for method, path, body in (
            ("PUT", "/aliases/tablets", {"index": "notes"}),
            ("POST", "/indexes/new/restore", None),
            ("PUT", "/indexes/new", None),
        ):
            assert server.ask(method, path, json=body).json()["error"]["code"] == "fixed_indexes", path
        assert server.ask("DELETE", "/indexes/pills").json()["error"]["code"] == "index_in_use"


def test_a_key_may_be_for_some_indexes(place: Path) -> None:
    made(place, "drugs", "布洛芬。")
    keys = place / "keys.toml"
    every, some = new_key(keys, "all", "write"), new_key(keys, "some", "write", indexes=["drugs"])
    with running(place / "notes", opened=["drugs"], key=every, folder=place / "more", keys=keys) as server:

        def status(method: str, path: str, key: str | None, **more: object) -> int:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return server.ask(method, path, headers=headers, **more).status_code

        query = {"json": {"query": "布洛芬"}}
        assert status("POST", "/indexes/drugs/search", some, **query) == 200
        assert status("POST", "/search", some, **query) == status("POST", "/indexes/notes/search", some, **query) == 403
        assert status("POST", "/indexes/none/search", some, **query) == 403
        assert status("POST", "/indexes/none/search", None, **query) == 401
        assert status("POST", "/indexes/none/search", every, **query) == 404
        assert status("PUT", "/aliases/default", some, json={"index": "drugs"}) == 403
        shown = server.ask("GET", "/indexes", headers={"X-API-Key": some}).json()["indexes"]
        assert [one["name"] for one in shown] == ["drugs"]
        assert status("GET", "/indexes/drugs/readyz", None) == 401
        assert status("GET", "/readyz", None) == 200
