"""Far more clients than the server has places: who gets one is answered as by the library, the rest must wait."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from suwen.retrieve.retriever import Index

sys.path.insert(0, str(Path(__file__).parent))
from live_server import LiveServer, live_server, mark, notes

CLIENTS, PLACES, WAVES = 500, 32, 5
#: How far the memory after the last wave may be above that after the second: caches and the heap's own slack.
MARGIN = 0.05
NOTES = 120
MODES = ("hybrid", "dense", "lexical")


class Reply(NamedTuple):
    """An answer to one of the clients."""

    status: int
    headers: bytes
    content: Any


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(notes(NOTES), concurrency=PLACES) as server:
        yield server
        assert server.failures == []


def query(number: int) -> dict[str, Any]:
    """What the client of this number asks for."""
    asked = {"query": f"{mark(number % NOTES)} 布洛芬 kidney stones 要多饮水吗", "k": 20}
    return asked | {"mode": MODES[number % 3], "highlights": True, "explain": True}


async def client(server: LiveServer, start: asyncio.Event, path: str, body: dict[str, Any]) -> Reply:
    """Connect, wait for the others, ask once."""
    content = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(*server.place)
    await start.wait()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    said, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return Reply(int(said.split(b" ")[1]), said.lower(), json.loads(answer))


async def _wave(server: LiveServer, asked: Sequence[tuple[str, dict[str, Any]]]) -> list[Reply]:
    start = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client(server, start, *one)) for one in asked]
        await asyncio.sleep(0.5)
        start.set()
    return [task.result() for task in tasks]


def wave(server: LiveServer, asked: Sequence[tuple[str, dict[str, Any]]]) -> list[Reply]:
    """All clients at once. Every one is answered, and those turned away are told for how long."""
    replies = asyncio.run(_wave(server, asked))
    assert len(replies) == len(asked) and {reply.status for reply in replies} <= {200, 429}
    for reply in replies:
        if reply.status == 429:
            assert re.search(rb"\r\nretry-after: \d+", reply.headers), reply.headers
            assert reply.content["error"]["code"] == "overloaded"
    return replies


def found(index: Index, asked: dict[str, Any]) -> list[tuple[str, float]]:
    """What the library finds."""
    return [(hit.id, round(hit.score, 4)) for hit in index.search(**asked).hits]


def test_waves_of_searches_are_answered_as_by_the_library_or_shed(server: LiveServer) -> None:
    asked = [query(number) for number in range(CLIENTS)]
    memory: list[int] = []
    shed = 0
    with Index.open(server.index) as index:
        for _ in range(WAVES):
            replies = wave(server, [("/search", one) for one in asked])
            memory.append(server.memory())
            good = [number for number, reply in enumerate(replies) if reply.status == 200]
            shed += CLIENTS - len(good)
            assert len(good) >= PLACES
            for number in good:
                hits = replies[number].content["hits"]
                assert [(hit["id"], round(hit["score"], 4)) for hit in hits] == found(index, asked[number])
    assert shed > 0
    assert memory[-1] <= memory[1] * (1 + MARGIN), memory


def test_a_write_that_was_turned_away_left_nothing(server: LiveServer) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    for number in range(CLIENTS):
        note = {"id": f"new-{number}", "text": f"新记录 {mark(1000 + number)} 。"}
        asked.append(("/search", query(number)) if number % 3 else ("/documents", {"documents": [note]}))
    replies = wave(server, asked)
    posted = {number: reply.status for number, reply in enumerate(replies) if number % 3 == 0}
    assert {200, 429} == set(posted.values())
    ids = server.ask("GET", "/documents", params={"limit": 10_000}).json()["ids"]
    assert sorted(ids) == sorted(
        [one.id for one in notes(NOTES)] + [f"new-{number}" for number, status in posted.items() if status == 200]
    )
    for number, status in posted.items():
        words = {"query": mark(1000 + number), "mode": "lexical", "k": 5}
        hits = server.ask("POST", "/search", json=words).json()["hits"]
        there = [hit["document_id"] for hit in hits if mark(1000 + number) in hit["text"]]
        assert there == ([f"new-{number}"] if status == 200 else [])
