"""A worker: leases documents from a server, encodes them with the document encoder, sends the vectors back. No HTTP.

It may be stopped or killed at any moment: what it leased is given to another when the lease ends, and the server takes
a result only for the very version of a document it was made of.
"""

from __future__ import annotations

import base64
import platform
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from suwen.encoders.cores import grouped
from suwen.encoders.probe import check_probe
from suwen.encoders.query import Vectors
from suwen.encoders.space import SpaceMismatch
from suwen.errors import SuwenError
from suwen.service.service_client import Client, ServerAway, ServerError, patiently

if TYPE_CHECKING:
    from suwen.encoders.document import DocumentEncoder

#: Passages encoded between two looks at whether to stop; a GPU wants many at once.
_PASSAGES = 512
#: Seconds between two questions for work.
_PAUSE = 2.0


@dataclass
class Done:
    """What a worker has done so far."""

    documents: int = 0
    passages: int = 0
    stale: int = 0


class Worker:
    """One worker of one server.

    Args:
        client: The server.
        encoder: The document encoder of the index's space.
        most: The most documents of one lease.
        stop: Set to end: what is being encoded is finished, the rest of the lease is given back.
        say: Called with a line for people about what happens.
    """

    def __init__(
        self,
        client: Client,
        encoder: DocumentEncoder,
        *,
        most: int = 32,
        stop: threading.Event | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._client, self._encoder, self._most = client, encoder, most
        self._stop = stop or threading.Event()
        self._say = say or (lambda text: None)
        self._skip: list[str] = []
        self.done = Done()

    def check(self) -> None:
        """Hold the encoder against the server's space and its probe.

        Raises:
            SpaceMismatch: The index is in another space.
            ProbeFailed: The encoder names the space, and does not give its vectors.
        """
        probe = self._patiently(partial(self._client.get, "/worker/probe"))
        if self._encoder.space.halfway is not None:
            self._encoder = self._encoder.of_space(probe["space"])
        if probe["space"] != self._encoder.space.id:
            raise SpaceMismatch(probe["space"], self._encoder.space.id, got_name=self._encoder.name)
        if not probe["texts"]:
            return
        stored = np.frombuffer(base64.b64decode(probe["vectors"]), dtype="<f4").reshape(len(probe["texts"]), -1)
        check_probe(self._encoder, probe["texts"], stored, "the server's pair")

    def run(self, *, once: bool = False) -> Done:
        """Work until stopped; ``once``, until nothing waits."""
        asked = {"space": self._encoder.space.id, "worker": platform.node()[:200], "most": self._most}
        while not self._stop.is_set():
            try:
                body = asked | {"skip": self._skip[-256:]}
                leased = self._patiently(partial(self._client.post, "/worker/lease", body))
            except ServerAway:
                break
            if leased["lease"] is None:
                if once:
                    break
                self._stop.wait(_PAUSE)
                continue
            self._work(leased)
        return self.done

    def _work(self, leased: dict[str, Any]) -> None:
        """Encode what was leased, sending back group by group; give the rest back when stopped."""
        try:
            for group in grouped(leased["documents"], lambda document: len(document["passages"]), _PASSAGES):
                if self._stop.is_set():
                    break
                self._send(leased["lease"], group, *self._encode(group, leased.get("probe")))
        finally:
            # One that was worked off, or that a restart forgot, is unknown; a server that is gone forgets it too.
            with suppress(SuwenError):
                self._client.post("/worker/release", {"lease": leased["lease"]})

    def _encode(
        self, group: Sequence[dict[str, Any]], probe: dict[str, Any] | None
    ) -> tuple[list[Vectors], dict[str, Any] | None]:
        """The vectors of each document, and of the text that the server tries the encoder with."""
        texts = [text for document in group for text in document["passages"]]
        vectors = self._encoder.encode_documents(texts + ([probe["text"]] if probe else []))
        ends = np.cumsum([len(document["passages"]) for document in group])
        proof = {"number": probe["number"], "vector": _packed(vectors[len(texts) :])} if probe else None
        return np.split(vectors[: len(texts)], ends[:-1]), proof

    def _send(
        self, lease: str, group: Sequence[dict[str, Any]], vectors: Sequence[Vectors], proof: dict[str, Any] | None
    ) -> None:
        results = [
            {"id": document["id"], "version": document["version"], "dtype": "float16", "vectors": _packed(part)}
            for document, part in zip(group, vectors, strict=True)
        ]
        body = {"space": self._encoder.space.id, "lease": lease, "results": results, "probe": proof}
        try:
            outcomes = self._patiently(partial(self._client.post, "/worker/results", body))["outcomes"]
        except ServerAway:
            return
        except ServerError as refused:
            if refused.code == "stale_version":
                outcomes = {}
            elif refused.code == "too_large":
                self._leave_out(group, "are more than the server takes in one body: raise its body_bytes, or split it")
                return
            elif refused.code == "wrong_vectors" and not (refused.param or "").startswith("probe"):
                self._leave_out(group, f"were refused ({refused})")
                return
            else:
                raise
        self._count(group, outcomes)

    def _count(self, group: Sequence[dict[str, Any]], outcomes: dict[str, str]) -> None:
        for document in group:
            if outcomes.get(document["id"]) in ("stored", "done"):
                self.done.documents += 1
                self.done.passages += len(document["passages"])
            else:
                self.done.stale += 1
        self._say(f"{self.done.documents} documents encoded, {self.done.stale} had changed meanwhile")

    def _leave_out(self, group: Sequence[dict[str, Any]], why: str) -> None:
        """What the server does not take: the documents would come back for ever."""
        self._skip += [document["id"] for document in group]
        self._say(f"the vectors of {', '.join(document['id'] for document in group)} {why}. Left out")

    def _patiently(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return patiently(
            call,
            tries=None,
            stop=self._stop,
            on_refusal=lambda away, pause: self._say(f"{away}; trying again in {pause:g} s"),
        )


def _packed(vectors: Vectors) -> str:
    return base64.b64encode(vectors.astype("<f2").tobytes()).decode()
