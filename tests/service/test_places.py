"""Reads and writes do not wait for one another's places, and one key leaves some to the others."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Gauge

from suwen.encoders.static import StaticEncoder
from suwen.service.keys import new_key
from suwen.service.places import ASKER, Places, Shed


@pytest.fixture
def places() -> Places:
    return Places(4, lambda: 3, Gauge("taken", "", registry=None))


def test_places_are_taken_and_given_back(places: Places) -> None:
    for _ in range(4):
        places.take()
    with pytest.raises(Shed, match="as much work as it takes"):
        places.take()
    places.give("")
    places.take()
    assert places.taken == 4


def test_one_key_leaves_some_to_the_others(places: Places) -> None:
    before = ASKER.set("greedy")
    try:
        for _ in range(3):
            places.take()
        with pytest.raises(Shed, match="the key 'greedy' has the 3 places"):
            places.take()
        ASKER.set("other")
        places.take()
        places.give("greedy")
        ASKER.set("greedy")
        places.take()
    finally:
        ASKER.reset(before)


def test_the_only_key_has_every_place(served, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    new_key(keys, "alone", "read")
    _, holder = served(keys=keys, concurrency=8)
    assert holder.places["read"].share() == 8
    new_key(keys, "second", "read")
    holder.keys._read_again(keys)
    assert holder.places["read"].share() == 6
    assert served(read_only=True, keys=keys, concurrency=8, key_concurrency=2)[1].places["read"].share() == 2


class Held:
    """Documents whose encoding waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, plain = threading.Event(), StaticEncoder.encode

        def encode(encoder: StaticEncoder, texts: Any, **options: Any) -> Any:
            if any("等一等" in text for text in texts):
                assert self.go.wait(300)
            return plain(encoder, texts, **options)

        monkeypatch.setattr(StaticEncoder, "encode", encode)


def test_31_waiting_posts_and_a_long_document_keep_no_search_waiting(served, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    client, holder = served(write_concurrency=31, concurrency=2)

    def post(number: int) -> int:
        body = {"documents": [{"id": f"w{number}", "text": f"第{number}份，等一等。"}]}
        return client.post("/documents", json=body).status_code

    with ThreadPoolExecutor(31) as pool:
        waiting = [pool.submit(post, number) for number in range(31)]
        try:
            while holder.places["write"].taken < 31:
                time.sleep(0.01)
            one_more = client.post("/documents", json={"documents": [{"id": "x", "text": "还有一份。"}]})
            assert (one_more.status_code, one_more.json()["error"]["code"]) == (429, "overloaded")
            assert [client.post("/search", json={"query": "布洛芬"}).status_code for _ in range(40)] == [200] * 40
            assert client.get("/readyz").json() == {"status": "ready"}
        finally:
            held.go.set()
        assert [one.result() for one in waiting] == [200] * 31
    long = client.post("/documents", json={"documents": [{"id": "long", "text": "很长。" * 666_667}]})
    assert (long.status_code, long.json()["error"]["code"]) == (422, "text_too_long")
    long = client.post("/documents", json={"documents": [{"id": "long", "text": "很长。" * 666_000}]})
    assert (long.status_code, long.json()["error"]["code"]) == (422, "too_many")
    assert "/imports" in long.json()["error"]["message"]


def test_passages_of_a_request_are_bounded_whatever_its_characters(served, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = served(batch_passages=4)
    encoded: list[int] = []
    plain = StaticEncoder.encode
    monkeypatch.setattr(
        StaticEncoder, "encode", lambda self, texts, **more: (encoded.append(len(texts)), plain(self, texts, **more))[1]
    )
    body = {"documents": [{"id": f"d{n}", "text": "病人应该休息。" * 60} for n in range(3)]}
    reply = client.post("/documents", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "too_many")
    assert encoded == [], "nothing was encoded"
    assert not [id_ for id_ in client.get("/documents").json()["ids"] if id_.startswith("d")]


def test_a_stuck_writer_is_told_and_searches_go_on(served, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    held = Held(monkeypatch)
    client, _ = served(stuck_seconds=0.1)
    # On a busy machine the first write takes longer than that, to load the encoder.
    assert client.post("/documents", json={"documents": [{"id": "v", "text": "先来一份。"}]}).status_code == 200
    while client.get("/readyz").status_code != 200:
        time.sleep(0.01)
    caplog.clear()
    with ThreadPoolExecutor(1) as pool:
        body = {"documents": [{"id": "w", "text": "等一等。"}]}
        waiting = pool.submit(client.post, "/documents", json=body)
        try:
            while (ready := client.get("/readyz")).status_code == 200:
                time.sleep(0.01)
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "writer_stuck")
            assert client.post("/search", json={"query": "布洛芬"}).status_code == 200
            while not any("self.go.wait" in record.getMessage() for record in caplog.records):
                time.sleep(0.01)
        finally:
            held.go.set()
        assert waiting.result().status_code == 200
    # What the server does by itself after a write may take as long on a busy machine, and is told as well.
    while client.get("/readyz").status_code != 200:
        time.sleep(0.01)
    told = [record.getMessage() for record in caplog.records if "a write has taken" in record.getMessage()]
    assert len([one for one in told if "in encode" in one and "self.go.wait" in one]) == 1, "the log says where it is"


def test_a_key_cannot_take_every_place_for_searches(served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.toml"
    greedy, other = new_key(file, "greedy", "read"), new_key(file, "other", "read")
    client, holder = served(keys=file, concurrency=4, readers=4)
    go, index = threading.Event(), holder.index
    plain = type(index).search

    def search(self: Any, query: str, *given: Any, **more: Any) -> Any:
        assert "等" not in query or go.wait(300)
        return plain(self, query, *given, **more)

    monkeypatch.setattr(type(index), "search", search)

    def ask(key: str, query: str) -> int:
        body, headers = {"query": query}, {"Authorization": f"Bearer {key}"}
        return client.post("/search", json=body, headers=headers).status_code

    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(ask, greedy, "等") for _ in range(3)]
        try:
            while holder.places["read"].taken < 3:
                time.sleep(0.01)
            assert ask(greedy, "布洛芬") == 429
            assert ask(other, "布洛芬") == 200
        finally:
            go.set()
        assert [one.result() for one in waiting] == [200] * 3
