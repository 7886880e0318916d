"""A worker against a real server: everything is encoded once, whatever happens in between."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fresh_side import BigEncoder, Running, make_index, running

from held_port import held_port
from suwen.encoders.pair import Pair
from suwen.encoders.probe import ProbeFailed, probe_texts, write_probe
from suwen.encoders.space import Space, SpaceMismatch
from suwen.service import document_worker as module
from suwen.service.document_worker import Worker


def encoder_for(server: Running) -> BigEncoder:
    return BigEncoder(server.holder.index.pair)


def waiting(server: Running) -> int:
    return int(server.client().get("/info")["freshness"]["waiting_documents"])


def test_everything_that_waits_is_encoded_once(tmp_path: Path) -> None:
    with running(make_index(tmp_path, 25)) as server:
        encoder, said = encoder_for(server), []
        worker = Worker(server.client(), encoder, most=4, say=said.append)
        worker.check()
        done = worker.run(once=True)
        assert (done.documents, done.passages, done.stale) == (25, 25, 0)
        assert sorted(encoder.texts) == sorted(f"第{number}条：骨折后应固定患肢。" for number in range(25))
        assert waiting(server) == 0 and said[-1] == "25 documents encoded, 0 had changed meanwhile"
        stored = server.holder.index.engine.stored_vectors("d7", "document")
        ((text, vector),) = stored.items()
        np.testing.assert_allclose(vector, encoder.encode_documents([text])[0], atol=1e-3)


def test_a_document_that_changes_while_it_is_encoded_stays_as_it_is(tmp_path: Path) -> None:
    with running(make_index(tmp_path, 2)) as server:
        client = server.client()

        class Slow(BigEncoder):
            def encode_documents(self, texts: Any) -> np.ndarray:
                if not self.texts:
                    client.post("/documents", {"documents": [{"id": "d1", "text": "改过的内容。"}]})
                return super().encode_documents(texts)

        worker = Worker(client, Slow(server.holder.index.pair))
        done = worker.run(once=True)
        assert (done.documents, done.stale) == (2, 1), "the changed one was leased again"
        assert client.get("/documents/d1")["text"] == "改过的内容。"
        assert client.get("/documents/d1")["state"] == "encoded"


def test_the_rest_of_a_lease_is_given_back_on_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PASSAGES", 1)
    with running(make_index(tmp_path, 5)) as server:
        stop = threading.Event()

        class Stopping(BigEncoder):
            def encode_documents(self, texts: Any) -> np.ndarray:
                stop.set()
                return super().encode_documents(texts)

        done = Worker(server.client(), Stopping(server.holder.index.pair), stop=stop).run()
        assert done.documents == 1
        told = server.client().get("/info")["freshness"]
        assert (told["waiting_documents"], told["leased"]) == (4, 0)


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as port:
        yield port


def test_a_worker_outlives_a_restart_of_the_server(tmp_path: Path, port: int) -> None:
    index = make_index(tmp_path, 6)
    said: list[str] = []
    away = threading.Event()
    with running(index, port) as server:
        pair, client = server.holder.index.pair, server.client()

        class Interrupted(BigEncoder):
            def encode_documents(self, texts: Any) -> np.ndarray:
                away.set()
                ended.wait(300)
                return super().encode_documents(texts)

        ended = threading.Event()
        worker = Worker(client, Interrupted(pair), most=3, say=said.append)
        thread = threading.Thread(target=worker.run, kwargs={"once": True})
        thread.start()
        assert away.wait(300)
    ended.set()
    while not said:
        time.sleep(0.01)
    with running(index, port) as server:
        thread.join()
        assert worker.done.documents == 6 and waiting(server) == 0
    assert any("trying again" in line for line in said)


def test_two_workers_share_the_work(tmp_path: Path) -> None:
    with running(make_index(tmp_path, 30)) as server:
        workers = [Worker(server.client(), encoder_for(server), most=3) for _ in range(2)]
        threads = [threading.Thread(target=worker.run, kwargs={"once": True}) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(worker.done.documents for worker in workers) == 30
        texts = [text for worker in workers for text in worker._encoder.texts]  # type: ignore[attr-defined]
        assert len(texts) == len(set(texts)) == 30


def test_a_document_too_large_for_a_body_is_left_out(tmp_path: Path) -> None:
    index = make_index(tmp_path, 1)
    with running(index) as server:
        client = server.client()
        client.post("/documents", {"documents": [{"id": "huge", "text": "骨折后应固定患肢，注意休息。" * 400}]})
        client.post("/documents", {"documents": [{"id": "last", "text": "失眠。"}]})
    with running(index, body_bytes=2000) as server:
        said: list[str] = []
        done = Worker(server.client(), encoder_for(server), most=1, say=said.append).run(once=True)
        assert done.documents == 2
        assert server.client().get("/documents/huge")["state"] == "fresh"
        assert any("huge" in line and "body_bytes" in line for line in said)


# -- the encoder must be the space's --------------------------------------------------------------------------------


def test_an_encoder_of_another_space_is_refused(tmp_path: Path) -> None:
    with running(make_index(tmp_path, 1)) as server:
        encoder = encoder_for(server)
        fields = encoder.space.model_dump(exclude={"id"}) | {"max_length": 7}
        encoder.space = Space.mint(**fields)
        with pytest.raises(SpaceMismatch, match=server.holder.index.pair.space.id):
            Worker(server.client(), encoder).check()


def test_an_encoder_that_fails_the_probe_is_refused(tmp_path: Path) -> None:
    index = make_index(tmp_path, 1)
    pair = Pair.load(tmp_path / "pair")
    write_probe(pair.path, BigEncoder(pair).encode_documents(probe_texts()))
    with running(index) as server:
        Worker(server.client(), encoder_for(server)).check()

        class Other(BigEncoder):
            def encode_documents(self, texts: Any) -> np.ndarray:
                return np.roll(super().encode_documents(texts), 5, axis=1)

        with pytest.raises(ProbeFailed, match=r"under 0\.995"):
            Worker(server.client(), Other(pair)).check()
