"""The server's own background: fresh documents are encoded anew where an encoder is at hand, and nothing is lost."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fresh_side import BigEncoder, make_index, make_pair

from suwen.corpora.records import Document
from suwen.encoders import who_encodes
from suwen.encoders.pair import Pair, default_pair_path
from suwen.encoders.probe import ProbeFailed
from suwen.retrieve import freshness
from suwen.retrieve.retriever import Index
from suwen.service import reencoding

Serve = Callable[..., Any]


def until(true: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for something the background does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def freshness_of(client: Any) -> Any:
    return client.get("/info").json()["freshness"]


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch) -> list[BigEncoder]:
    """Puts an encoder of the space where a full pair's would be loaded; each one that was."""
    loaded: list[BigEncoder] = []

    def load(pair: Pair, document_encoder: object, *, base: str | None = None) -> BigEncoder:
        loaded.append(BigEncoder(pair))
        return loaded[-1]

    monkeypatch.setattr(who_encodes, "load_document_encoder", load)
    return loaded


def test_what_is_posted_is_encoded_anew(served: Serve, tmp_path: Path, big: list[BigEncoder]) -> None:
    client, _ = served(make_index(tmp_path / "here", 2), document_encoder="own")
    posted = {"documents": [{"id": "new", "text": "阿司匹林可以预防心肌梗死。" * 60}]}
    stored = client.post("/documents", json=posted).json()["documents"][0]
    asked = {"query": "阿司匹林", "k": 1}
    assert client.post("/search", json=asked).json()["hits"][0]["document_id"] == "new"
    until(lambda: freshness_of(client)["waiting_documents"] == 0)
    after = client.get("/documents/new").json()
    assert (after["state"], after["version"]) == ("encoded", stored["version"])
    assert len(after["passages"]) == stored["passages"] > 1
    assert client.post("/search", json=asked).json()["hits"][0]["document_id"] == "new"
    assert freshness_of(client) == {
        "fresh_passages": 0,
        "waiting_documents": 0,
        "oldest_seconds": 0.0,
        "worker": "in process",
        "leased": 0,
    }
    assert len(big) == 1, "loaded once"


def test_without_an_encoder_documents_wait(served: Serve, tmp_path: Path) -> None:
    client, _ = served(make_index(tmp_path / "here", 2))
    told = freshness_of(client)
    assert (told["waiting_documents"], told["worker"]) == (2, "none") and told["oldest_seconds"] > 0
    metrics = client.get("/metrics").text
    assert "suwen_freshness_lag_seconds" in metrics


def test_a_document_that_cannot_be_encoded_holds_no_other_up(
    served: Serve, tmp_path: Path, big: list[BigEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = BigEncoder.encode_documents

    def fails_on_one(self: BigEncoder, texts: Any) -> np.ndarray:
        if any("第1条" in text for text in texts):
            raise RuntimeError("out of memory")
        return plain(self, texts)

    monkeypatch.setattr(BigEncoder, "encode_documents", fails_on_one)
    client, _ = served(make_index(tmp_path / "here", 4), document_encoder="own")
    until(lambda: freshness_of(client)["waiting_documents"] == 1)
    assert client.get("/documents/d1").json()["state"] == "fresh"


def test_a_failed_write_is_tried_again(
    served: Serve, tmp_path: Path, big: list[BigEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    from suwen.index.embedded import EmbeddedEngine

    plain, failures = EmbeddedEngine.reencode, iter([True, True])

    def fails_twice(self: EmbeddedEngine, *given: Any) -> Any:
        if next(failures, False):
            raise OSError("disk trouble")
        return plain(self, *given)

    monkeypatch.setattr(reencoding, "_AFTER_FAILURE", 0.01)
    monkeypatch.setattr(EmbeddedEngine, "reencode", fails_twice)
    client, _ = served(make_index(tmp_path / "here", 2), document_encoder="own")
    until(lambda: freshness_of(client)["waiting_documents"] == 0)


def test_an_encoder_that_is_not_the_spaces_is_told(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ProbeFailed("the least cosine is 0.2")

    monkeypatch.setattr(who_encodes, "load_document_encoder", refuse)
    client, _ = served(make_index(tmp_path / "here", 1), document_encoder="own")
    until(lambda: freshness_of(client)["worker"] == "none")
    assert "the least cosine is 0.2" in caplog.text
    assert freshness_of(client)["waiting_documents"] == 1


def test_a_stop_in_the_middle_loses_nothing(
    served: Serve, tmp_path: Path, big: list[BigEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, stopped = BigEncoder.encode_documents, threading.Event()

    def waits(self: BigEncoder, texts: Any) -> np.ndarray:
        if any("第20条" in text for text in texts):
            stopped.wait(300)
        return plain(self, texts)

    monkeypatch.setattr(BigEncoder, "encode_documents", waits)
    index = make_index(tmp_path / "here", 40)
    client, holder = served(index, document_encoder="own")
    until(lambda: bool(big) and len(big[0].texts) >= 20)
    # The stop comes while one is being encoded, of a batch of which others are.
    ending = threading.Thread(target=client.__exit__, args=(None, None, None))
    ending.start()
    until(lambda: holder.ending)
    stopped.set()
    ending.join()
    assert not holder.ready
    again, _ = served(index)
    assert again.get("/info").json()["index"]["documents"] == 40
    states = {again.get(f"/documents/d{number}").json()["state"] for number in range(40)}
    assert states == {"fresh", "encoded"}


def test_the_sample_for_comparable_scores_is_made_ahead(
    served: Serve, tmp_path: Path, big: list[BigEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "_LEAST", 8)
    index = make_index(tmp_path / "here", 20)
    client, holder = served(index, document_encoder="own")
    until(lambda: freshness_of(client)["waiting_documents"] == 0)
    until(lambda: (index / "freshness-static.npz").exists())
    query = holder.index.pair.encoder().encode_queries(["骨折"])[0]
    assert holder.index.freshness.scales(["document", "static"], query)


def test_the_second_pass_of_a_large_collection_goes_on_in_the_background(served: Serve, tmp_path: Path) -> None:
    pair = Pair.load(default_pair_path())
    texts = {f"d{number}": f"第{number}号病人，血压{100 + number}。" * 20 for number in range(20)}
    with Index.create(tmp_path / "here", pair=pair) as index:
        index.add([Document(id_, text) for id_, text in texts.items()], encoder=pair.encoder("static"))
        index.engine.remember(tier="")
    client, _ = served(tmp_path / "here")
    until(lambda: client.get("/info").json()["index"]["encoders"].keys() == {"l6"})
    until(lambda: client.get("/info").json()["index"]["deleted"] == 0)
    first = client.post("/search", json={"query": "第7号病人", "mode": "dense"}).json()["hits"][0]
    assert first["document_id"] == "d7"


def test_a_posted_document_is_encoded_by_the_tier_the_index_was_built_with(served, tmp_path: Path) -> None:
    with Index.create(tmp_path / "built", pair=make_pair(tmp_path / "pair", ("static", "rough"))) as index:
        index.choose_encoder(tier="rough", remember=True)
    client, _ = served(tmp_path / "built")
    assert client.post("/documents", json={"documents": [{"id": "new", "text": "氯雷他定。"}]}).status_code == 200
    assert [passage["encoder"] for passage in client.get("/documents/new").json()["passages"]] == ["rough"]
