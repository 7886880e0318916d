"""A pair whose document encoder is elsewhere, an index in its space, and a server of it on a real port."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvicorn

# The pair is the retriever's tests' own: what comes inside the package may have any encoder.
sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

import small_pair

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.space import ElsewhereDocument, Manifest, load_manifest, save_manifest
from suwen.retrieve.retriever import Index
from suwen.service.app import create_app
from suwen.service.holder import Holder
from suwen.service.serve_settings import ServeSettings
from suwen.service.service_client import Client


def make_pair(folder: Path, tiers: tuple[str, ...] = ("static",)) -> Path:
    """The light half of a larger pair: what its tier ``static`` encodes waits for a document encoder."""
    small_pair.make_pair(folder, tiers=tiers)
    fields = load_manifest(folder).model_dump() | {"document": ElsewhereDocument(kind="elsewhere", name="big")}
    save_manifest(folder, Manifest.model_validate(fields))
    return folder


def make_index(folder: Path, documents: int = 0) -> Path:
    """An index in that pair's space, with so many fresh documents."""
    with Index.create(folder / "notes", pair=make_pair(folder / "pair")) as index:
        index.add([Document(f"d{number}", f"第{number}条：骨折后应固定患肢。") for number in range(documents)])
    return folder / "notes"


class BigEncoder:
    """A document encoder of the space: the tier's vectors, each turned a little."""

    name = "big"

    def __init__(self, pair: Pair) -> None:
        self.space, self._tier = pair.space, pair.encoder()
        self.texts: list[str] = []

    def encode_documents(self, texts: Any) -> np.ndarray:
        self.texts += texts
        vectors = self._tier.encode_documents(list(texts))
        turned = vectors + 0.2 * np.roll(vectors, 1, axis=1)
        return np.asarray(turned / np.linalg.norm(turned, axis=1, keepdims=True), dtype=np.float32)


class Running(NamedTuple):
    """A server on a port."""

    url: str
    holder: Holder

    def client(self, key: str | None = None) -> Client:
        return Client(self.url, key, timeout=120)


@contextmanager
def running(index: Path, port: int = 0, **settings: Any) -> Iterator[Running]:
    """Serve an index from a thread of this process, until the block ends."""
    # On a busy machine no request is late and no stop gives up, but where a test is of that.
    patient = {"seconds": 300.0, "stop_seconds": 300.0}
    holder = Holder(ServeSettings(index=index, **patient | settings))
    server = uvicorn.Server(uvicorn.Config(create_app(holder), port=port, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not (server.started and holder.ready) and holder.failure is None and thread.is_alive():
            time.sleep(0.01)
        if holder.failure is not None:
            raise holder.failure
        yield Running(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", holder)
    finally:
        server.should_exit = True
        thread.join()
