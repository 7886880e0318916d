"""Clients of a server that may die at any moment, what it must hold afterwards, and looking whether it does."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
from workload import State

WRITERS = 2
_IDS = 6
_REQUESTS = 10
_PATIENCE = 300.0
EVERYTHING = 1000
#: A word every passage has.
COMMON = "病历"


def text_of(id_: str, version: int) -> str:
    """The text of one version of a document: of one to three passages, and like no other's."""
    sentences = 3 + (7 * version + len(id_) + int(id_[-1])) % 24
    return "".join(f"{COMMON}{id_}版{version}句{number}说高血压患者应低盐饮食。" for number in range(sentences))


def new_client(address: str) -> httpx.Client:
    """A client of a server on this machine."""
    return httpx.Client(base_url=address, verify=False, timeout=_PATIENCE)


class Ask(NamedTuple):
    """One writing request, and the state it leads to."""

    method: str
    path: str
    body: Any
    after: State


@dataclass
class Writer:
    """Posts and deletes documents of its own, one request after the other, and knows what it was told."""

    name: str
    rng: random.Random
    #: What is there for sure, and what may be there instead: where the request under way leads to.
    acknowledged: State = field(default_factory=State)
    intended: State = field(default_factory=State)
    problems: list[str] = field(default_factory=list)

    def asks(self) -> Iterator[Ask]:
        for version in range(1, _REQUESTS + 1):
            state, ids = self.acknowledged, [f"{self.name}-{number}" for number in range(_IDS)]
            kind = self.rng.choice(["post", "post", "post", "delete one", "delete"]) if state else "post"
            if kind == "post":
                chosen = self.rng.sample(ids, self.rng.randint(1, 3))
                documents = [{"id": id_, "text": text_of(id_, version)} for id_ in chosen]
                after = state | dict.fromkeys(chosen, version)
                yield Ask("POST", "/documents", {"documents": documents}, after)
                continue
            chosen = self.rng.sample(sorted(state), 1 if kind == "delete one" else min(2, len(state)))
            after = {id_: known for id_, known in state.items() if id_ not in chosen}
            if kind == "delete one":
                yield Ask("DELETE", f"/documents/{chosen[0]}", None, after)
            else:
                yield Ask("POST", "/documents/delete", {"ids": chosen}, after)

    def run(self, address: str) -> None:
        """Ask until all is done, or the server is gone."""
        with new_client(address) as client:
            for ask in self.asks():
                self.intended = ask.after
                try:
                    reply = client.request(ask.method, ask.path, json=ask.body)
                except httpx.TransportError:
                    return
                if reply.status_code != 200:
                    self.problems.append(f"{ask.method} {ask.path}: {reply.status_code} {reply.text[:300]}")
                    return
                self.acknowledged = ask.after


class Reader(threading.Thread):
    """Searches and looks at documents until it is told to stop; nothing it is told may be half a document."""

    def __init__(self, address: str, done: threading.Event) -> None:
        super().__init__()
        self._address, self._done = address, done
        self.problems: list[str] = []

    def run(self) -> None:
        rng = random.Random(0)
        with new_client(self._address) as client:
            while not self._done.is_set() and not self.problems:
                try:
                    self._look(client, f"w{rng.randrange(WRITERS)}-{rng.randrange(_IDS)}")
                except httpx.TransportError:
                    return
                # A reader without pause would take the processor from those who write.
                self._done.wait(0.01)

    def _look(self, client: httpx.Client, id_: str) -> None:
        searched = client.post("/search", json={"query": f"{COMMON} {id_}", "k": 20})
        ids = [hit["id"] for hit in searched.json()["hits"]]
        if searched.status_code != 200 or len(set(ids)) < len(ids):
            self.problems.append(f"a search gave {searched.status_code} and {ids}")
        seen = client.get(f"/documents/{id_}")
        if seen.status_code == 200 and seen.json()["text"] not in _texts(id_):
            self.problems.append(f"{id_} is no version that was ever posted: {seen.json()['text'][:200]}")
        elif seen.status_code not in (200, 404):
            self.problems.append(f"{id_}: {seen.status_code} {seen.text[:300]}")


def _texts(id_: str) -> set[str]:
    return {text_of(id_, version) for version in range(_REQUESTS + 1)}


# -- looking at what is there ---------------------------------------------------------------------------------------


def problems_of(client: httpx.Client, writers: list[Writer], seed: State) -> list[str]:
    """What is wrong with what a server holds after all this: nothing, when every writer finds its own."""
    ids = client.get("/documents", params={"limit": EVERYTHING}).json()["ids"]
    if len(set(ids)) < len(ids):
        return [f"an id is there twice: {ids}"]
    seen = {id_: client.get(f"/documents/{id_}").json() for id_ in ids}
    found: list[str] = []
    for writer in writers:
        mine = {id_: seen[id_]["text"] for id_ in ids if id_.startswith(f"{writer.name}-")}
        allowed = [{id_: text_of(id_, version) for id_, version in state.items()} for state in _states(writer)]
        if mine not in allowed:
            found.append(f"{writer.name} holds {_told(mine)}, not one of {_states(writer)}")
    kept = {id_: text_of(id_, version) for id_, version in seed.items()}
    if any(seen.get(id_, {}).get("text") != text for id_, text in kept.items()):
        found.append("a document nobody touched is gone or changed")
    return found + _searches(client, seen)


def _states(writer: Writer) -> list[State]:
    return [writer.acknowledged, writer.intended]


def _told(texts: dict[str, str]) -> dict[str, str]:
    return {id_: f"{text[:16]}… of {len(text)}" for id_, text in texts.items()}


def _searches(client: httpx.Client, seen: dict[str, Any]) -> list[str]:
    """Either way of searching brings back every passage of every document once, and nothing else."""
    found = []
    wanted = sorted((passage["id"], passage["text"]) for one in seen.values() for passage in one["passages"])
    for mode in ("lexical", "dense"):
        asked = {"query": COMMON, "k": EVERYTHING, "mode": mode}
        hits = client.post("/search", json=asked).json()["hits"]
        got = sorted((hit["id"], hit["text"]) for hit in hits)
        if got != wanted:
            found.append(f"{mode}: {len(got)} passages, {len(set(got))} different, where {len(wanted)} are stored")
    counted = client.get("/info").json()["index"]
    if (counted["documents"], counted["passages"]) != (len(seen), len(wanted)):
        found.append(f"/info counts {counted['documents']} documents and {counted['passages']} passages")
    return found


def wait_until_encoded(client: httpx.Client) -> list[str]:
    """Wait for the background to finish; what is wrong then."""
    deadline = time.monotonic() + _PATIENCE
    while (fresh := client.get("/info").json()["freshness"])["waiting_documents"]:
        if time.monotonic() > deadline:
            return [f"the background does not finish: {fresh}"]
        time.sleep(0.05)
    ids = client.get("/documents", params={"limit": EVERYTHING}).json()["ids"]
    states = {client.get(f"/documents/{id_}").json()["state"] for id_ in ids}
    return [] if states <= {"encoded"} else [f"nothing waits, and documents are {states}"]
