"""What a worker is given and what is taken from it: whole, checked, and only for the version it was made of."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parent))

from fresh_side import make_index

from suwen.encoders.pair import Pair
from suwen.service.holder import Holder
from suwen.service.keys import new_key

Serve = Callable[..., Any]


class Site:
    """A server with documents that wait, and what a worker would say to it."""

    def __init__(self, client: TestClient, holder: Holder) -> None:
        self.client, self.holder = client, holder
        self.space = holder.index.pair.space

    def lease(self, **asked: Any) -> Any:
        return self.client.post("/worker/lease", json={"space": self.space.id, **asked})

    def results(self, *results: dict[str, Any], lease: str | None = None, space: str | None = None) -> Any:
        body = {"space": space or self.space.id, "lease": lease, "results": list(results)}
        return self.client.post("/worker/results", json=body)

    def result(self, document: dict[str, Any], vectors: np.ndarray | None = None, **other: Any) -> dict[str, Any]:
        if vectors is None:
            drawn = np.random.default_rng(1).standard_normal((len(document["passages"]), self.space.dimension))
            vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        kind = other.get("dtype", "float16")
        data = base64.b64encode(vectors.astype(np.dtype(kind).newbyteorder("<")).tobytes()).decode()
        return {"id": document["id"], "version": document["version"], "vectors": data, **other}

    def document(self, id_: str) -> Any:
        return self.client.get(f"/documents/{id_}").json()

    def freshness(self) -> Any:
        return self.client.get("/info").json()["freshness"]


@pytest.fixture
def site(served: Serve, tmp_path: Path) -> Site:
    """Three documents wait."""
    return Site(*served(make_index(tmp_path / "here", 3)))


def test_what_waits_is_leased_oldest_first(site: Site) -> None:
    told = site.lease(most=2, worker="gpu-1").json()
    assert [one["id"] for one in told["documents"]] == ["d0", "d1"]
    assert told["documents"][0]["passages"] == ["第0条：骨折后应固定患肢。"]
    assert told["space"] == site.space.id and told["seconds"] == 120.0
    assert [one["id"] for one in site.lease().json()["documents"]] == ["d2"]
    assert site.lease().json() == {
        "lease": None,
        "seconds": 120.0,
        "space": site.space.id,
        "documents": [],
        "probe": None,
    }
    assert site.freshness()["leased"] == 3 and site.freshness()["worker"] == "remote"


def test_vectors_that_come_back_are_stored(site: Site) -> None:
    told = site.lease(most=2).json()
    first, second = told["documents"]
    answer = site.results(site.result(first), site.result(second, dtype="float32"), lease=told["lease"])
    assert answer.json() == {"stored": 2, "outcomes": {"d0": "stored", "d1": "stored"}}
    assert [site.document(id_)["state"] for id_ in ("d0", "d1", "d2")] == ["encoded", "encoded", "fresh"]
    assert site.document("d0")["version"] == first["version"]
    assert site.freshness()["waiting_documents"] == 1 and site.freshness()["leased"] == 0
    assert site.client.post("/worker/release", json={"lease": told["lease"]}).json()["error"]["code"] == "unknown_lease"


def test_posted_is_found_fresh_then_encoded(site: Site) -> None:
    posted = {"documents": [{"id": "new", "text": "阿司匹林可以预防心肌梗死。"}]}
    (stored,) = site.client.post("/documents", json=posted).json()["documents"]
    assert stored["state"] == "fresh"
    asked = {"query": "阿司匹林预防心肌梗死", "k": 1}
    (hit,) = site.client.post("/search", json=asked).json()["hits"]
    assert (hit["document_id"], hit["state"], hit["encoder"]) == ("new", "fresh", "static")
    (leased,) = (one for one in site.lease().json()["documents"] if one["id"] == "new")
    assert site.results(site.result(leased)).status_code == 200
    (hit,) = site.client.post("/search", json=asked | {"mode": "lexical"}).json()["hits"]
    assert (hit["document_id"], hit["state"], hit["encoder"]) == ("new", "encoded", "document")
    again = site.client.post("/documents", json=posted).json()
    assert (again["unchanged"], again["documents"][0]["state"]) == (1, "encoded")
    assert again["documents"][0]["version"] == stored["version"] == leased["version"]


def test_a_document_changed_meanwhile_is_not_written_over(site: Site) -> None:
    told = site.lease().json()
    site.client.post("/documents", json={"documents": [{"id": "d0", "text": "改过的内容。"}]})
    site.client.delete("/documents/d1")
    changed, deleted, same = told["documents"]
    answer = site.results(site.result(changed), site.result(deleted), lease=told["lease"])
    assert answer.status_code == 409 and answer.json()["error"]["code"] == "stale_version"
    assert site.document("d0")["state"] == "fresh" and site.document("d0")["text"] == "改过的内容。"
    answer = site.results(site.result(changed), site.result(same), lease=told["lease"])
    assert answer.json() == {"stored": 1, "outcomes": {"d0": "stale", "d2": "stored"}}
    assert [one["id"] for one in site.lease().json()["documents"]] == ["d0"]


def test_results_are_taken_after_a_restart(site: Site, served: Serve) -> None:
    told = site.lease().json()
    site.client.__exit__(None, None, None)
    again = Site(*served(site.holder.settings.index))
    assert again.freshness()["waiting_documents"] == 3
    answer = again.results(*(again.result(one) for one in told["documents"]), lease=told["lease"])
    assert answer.json()["stored"] == 3
    assert again.freshness()["waiting_documents"] == 0


def test_a_lease_given_back(site: Site) -> None:
    told = site.lease().json()
    assert site.client.post("/worker/release", json={"lease": told["lease"]}).json() == {"released": 3}
    assert len(site.lease().json()["documents"]) == 3


def test_leases_end_by_themselves(served: Serve, tmp_path: Path) -> None:
    site = Site(*served(make_index(tmp_path / "here", 1), lease_seconds=0.05))
    assert site.lease().json()["lease"]
    while not site.lease().json()["lease"]:
        pass


def test_leases_are_bounded(served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from suwen.service import worker_api

    site = Site(*served(make_index(tmp_path / "here", 5), lease_documents=4))
    assert len(site.lease(most=100).json()["documents"]) == 4
    monkeypatch.setattr(worker_api, "_CHARACTERS", 1)
    assert len(site.lease(most=100).json()["documents"]) == 1


def test_ids_a_worker_cannot_do_are_left_to_others(site: Site) -> None:
    assert [one["id"] for one in site.lease(skip=["d0", "d1"]).json()["documents"]] == ["d2"]


def broken(site: Site, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    size = site.space.dimension
    return {
        "is not base64": site.result(document) | {"vectors": "§§"},
        "a row is": site.result(document, np.ones((1, size - 1))),
        "not finite": site.result(document, np.full((1, size), np.nan)),
        "of length 2.000": site.result(document, np.full((1, size), 2 / size**0.5), dtype="float32"),
        "has 0 bytes": site.result(document) | {"vectors": ""},
        "Input should be 'float16' or 'float32'": site.result(document) | {"dtype": "int8"},
    }


@pytest.mark.parametrize("why", list(range(6)))
def test_vectors_that_are_none_are_refused_whole(site: Site, why: int) -> None:
    first, second, _ = site.lease().json()["documents"]
    said, bad = list(broken(site, second).items())[why]
    answer = site.results(site.result(first), bad)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"] and answer.json()["error"]["param"].startswith("results.1.")
    assert site.document("d0")["state"] == "fresh"


def test_wrong_answers_do_not_loop(site: Site) -> None:
    vectors, leased = np.eye(2, site.space.dimension), []
    for _ in range(10):
        told = site.lease(worker="gpu-1", most=1).json()
        leased += [one["id"] for one in told["documents"]]
        for one in told["documents"]:
            answer = site.results(site.result(one, vectors), lease=told["lease"])
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "wrong_vectors")
    # Each is tried a few times, and then left to others.
    assert leased == ["d0"] * 3 + ["d1"] * 3 + ["d2"] * 3
    assert len(site.lease(worker="gpu-2").json()["documents"]) == 3
    assert site.freshness()["waiting_documents"] == 3


def test_vectors_of_too_many_passages_are_wrong_and_the_others_are_stored(site: Site) -> None:
    first, second, _ = site.lease().json()["documents"]
    answer = site.results(site.result(first, np.eye(2, site.space.dimension)), site.result(second))
    assert answer.json() == {"stored": 1, "outcomes": {"d0": "wrong", "d1": "stored"}}


def test_an_encoder_that_fails_the_probe_is_found_out_and_barred(served: Serve, tmp_path: Path) -> None:
    from suwen.encoders.probe import probe_texts, write_probe

    index, pair = make_index(tmp_path / "here", 2), Pair.load(tmp_path / "here" / "pair")
    vectors = pair.encoder().encode_documents(probe_texts())
    write_probe(pair.path, vectors)
    site = Site(*served(index))

    def proof(number: int, vector: np.ndarray) -> dict[str, Any]:
        return {"number": number, "vector": base64.b64encode(vector.astype("<f2").tobytes()).decode()}

    def send(told: Any, worker: str, **more: Any) -> Any:
        body = {"space": site.space.id, "lease": told["lease"], "results": [site.result(told["documents"][0])], **more}
        return site.client.post("/worker/results", json=body)

    told = site.lease(worker="good", most=1).json()
    number = told["probe"]["number"]
    assert told["probe"]["text"] == probe_texts()[number]
    missing, other = send(told, "good"), send(told, "good", probe=proof((number + 1) % 32, vectors[(number + 1) % 32]))
    assert {one.json()["error"]["code"] for one in (missing, other)} == {"wrong_vectors"}
    assert site.lease(worker="good").json()["error"]["code"] == "barred_worker"
    site.client.post("/worker/release", json={"lease": told["lease"]})
    told = site.lease(worker="better", most=1).json()
    number = told["probe"]["number"]
    wrong = send(told, "better", probe=proof(number, np.roll(vectors[number], 3)))
    assert (wrong.json()["error"]["code"], wrong.json()["error"]["param"]) == ("wrong_vectors", "probe")
    assert site.document("d0")["state"] == site.document("d1")["state"] == "fresh"
    assert send(told, "better", probe=proof(number, vectors[number])).json()["stored"] == 1


def test_another_space_is_refused(site: Site) -> None:
    for answer in (
        site.lease(space="sp-" + "0" * 20),
        site.results(site.result({"id": "d0", "version": "1", "passages": ["x"]}), space="sp-" + "0" * 20),
    ):
        assert answer.status_code == 422
        assert answer.json()["error"]["param"] == "space" and site.space.id in answer.json()["error"]["message"]


def test_the_same_id_twice(site: Site) -> None:
    first = site.lease().json()["documents"][0]
    answer = site.results(site.result(first), site.result(first))
    assert answer.json()["error"]["code"] == "duplicate_id"
    assert site.document("d0")["state"] == "fresh"


def test_a_read_key_may_not_work(served: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    reading, writing, working = (new_key(keys, role, role) for role in ("read", "write", "worker"))
    client, holder = served(make_index(tmp_path / "here", 1), keys=keys)
    body = {"space": holder.index.pair.space.id}

    def code(method: str, path: str, key: str | None, **sent: Any) -> int:
        return client.request(
            method, path, headers={"Authorization": f"Bearer {key}"} if key else {}, **sent
        ).status_code

    assert [code("POST", "/worker/lease", key, json=body) for key in (None, reading, writing, working)] == [
        *(401, 403),
        *(200, 200),
    ]
    assert code("GET", "/worker/probe", reading) == 403
    # A worker sees what it encodes, and nothing else.
    assert code("POST", "/search", working, json={"query": "骨折"}) == 403
    assert code("GET", "/documents/d0", working) == 403
    assert code("POST", "/documents", working, json={"documents": [{"id": "x", "text": "甲"}]}) == 403
    assert code("POST", "/imports", working, content=b"{}") == 403


def test_a_server_that_only_reads_leases_nothing(served: Serve, tmp_path: Path) -> None:
    site = Site(*served(make_index(tmp_path / "here", 1), read_only=True))
    assert site.lease().json()["error"]["code"] == "read_only"


def test_the_probe_is_the_pairs(served: Serve, tmp_path: Path) -> None:
    from suwen.encoders.probe import probe_texts, write_probe

    index = make_index(tmp_path / "here")
    site = Site(*served(index))
    assert site.client.get("/worker/probe").json() == {
        "space": site.space.id,
        "dimension": site.space.dimension,
        "texts": [],
        "vectors": "",
    }
    pair = Pair.load(tmp_path / "here" / "pair")
    vectors = pair.encoder().encode_documents(probe_texts())
    write_probe(pair.path, vectors)
    probe = site.client.get("/worker/probe").json()
    assert probe["texts"] == probe_texts()
    stored = np.frombuffer(base64.b64decode(probe["vectors"]), "<f4").reshape(32, -1)
    np.testing.assert_array_equal(stored, vectors)
