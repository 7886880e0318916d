"""Minutes of mixed load on one server: at the end a request costs as much CPU as at the start, in as much memory."""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live_server import LiveServer, live_server, mark, notes

#: Eight minutes; ``SUWEN_SOAK_SECONDS`` makes a trial shorter.
SECONDS = float(os.environ.get("SUWEN_SOAK_SECONDS", "480"))
#: The time is cut into windows. One to warm up, then the first third is the start and the last third the end.
WINDOWS = 25
MARGIN = 0.10
CLIENTS, PAUSE = 4, 0.02
NOTES, OWN = 300, 25


class Connection:
    """A kept connection that speaks just enough HTTP: a heavier client would time itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request and its answer."""
        content = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        said = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(said.split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(said.split(b" ")[1]), json.loads(await self._reader.readexactly(length))


@dataclass
class Window:
    """What was seen in one stretch of time."""

    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    #: The server's seconds of CPU and the requests so far, each time it was looked at.
    work: list[tuple[float, int]] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """Seconds of the server's CPU a request."""
        (before, first), (after, last) = self.work[0], self.work[-1]
        return (after - before) / (last - first)

    @property
    def p99(self) -> float:
        """The time all but a hundredth of the searches stayed under."""
        return statistics.quantiles(self.seconds, n=100)[98]


@dataclass
class Client:
    """One client: searches most of the time, and posts, finds, looks at and deletes documents of its own."""

    name: str
    connection: Connection
    rng: random.Random
    note: Callable[[float], None]
    there: dict[str, str] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    async def turn(self) -> None:
        """Do one thing, and check what comes of it."""
        kind = self.rng.choices(["search", "post", "look", "delete", "embed", "rerank"], [70, 8, 8, 6, 4, 4])[0]
        await getattr(self, f"_{kind}")()
        self.done[kind] += 1

    async def _get(self, *asked: Any, status: int = 200) -> Any:
        told, content = await self.connection.ask(*asked)
        assert told == status, (asked, told, content)
        return content

    async def _search(self) -> None:
        number = self.rng.randrange(NOTES)
        mode = self.rng.choice(["hybrid", "dense", "lexical"])
        query = mark(number) if mode == "lexical" else f"{mark(number)} 多饮水"
        started = time.perf_counter()
        found = await self._get("POST", "/search", {"query": query, "mode": mode, "highlights": True})
        self.note(time.perf_counter() - started)
        assert mode != "lexical" or found["hits"][0]["document_id"] == f"note-{number}"

    async def _post(self) -> None:
        id_ = f"{self.name}-{self.rng.randrange(OWN)}"
        word = f"zq{self.rng.randrange(10**9)}y"
        text = f"{word} 是新的记录。" + "复查血压与血糖。" * self.rng.randrange(40)
        await self._get("POST", "/documents", {"documents": [{"id": id_, "text": text}]})
        self.there[id_] = text
        found = await self._get("POST", "/search", {"query": word, "mode": "lexical", "k": 1})
        assert found["hits"][0]["document_id"] == id_

    async def _look(self) -> None:
        id_ = f"{self.name}-{self.rng.randrange(OWN)}"
        found = await self._get("GET", f"/documents/{id_}", status=200 if id_ in self.there else 404)
        assert id_ not in self.there or found["text"] == self.there[id_]

    async def _delete(self) -> None:
        id_ = f"{self.name}-{self.rng.randrange(OWN)}"
        await self._get("DELETE", f"/documents/{id_}", status=200 if self.there.pop(id_, None) else 404)

    async def _embed(self) -> None:
        told = await self._get("POST", "/v1/embeddings", {"input": ["高血压", "insulin"] * 4, "input_type": "query"})
        assert len(told["data"]) == 8

    async def _rerank(self) -> None:
        asked = {"query": "高血压", "documents": ["高血压要低盐饮食。", "骨折要固定。"] * 5}
        assert len((await self._get("POST", "/v1/rerank", asked))["results"]) == 10


async def soak(server: LiveServer, seconds: float) -> tuple[list[Window], Counter[str]]:
    """Load for so long; what each window saw, and how often each thing was done."""
    windows = [Window() for _ in range(WINDOWS)]
    clients: list[Client] = []
    started = time.monotonic()

    def now() -> Window:
        return windows[min(WINDOWS - 1, int((time.monotonic() - started) / seconds * WINDOWS))]

    async def work(client: Client) -> None:
        while time.monotonic() - started < seconds:
            await client.turn()
            await asyncio.sleep(PAUSE)

    async def weigh() -> None:
        while time.monotonic() - started < seconds:
            now().memory.append(server.memory())
            now().work.append((server.cpu_seconds(), sum(sum(client.done.values()) for client in clients)))
            await asyncio.sleep(seconds / WINDOWS / 5)

    for number in range(CLIENTS):
        connection = Connection(*await asyncio.open_connection(*server.place))
        clients.append(Client(f"c{number}", connection, random.Random(number), lambda took: now().seconds.append(took)))
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(work(client))
        group.create_task(weigh())
    return windows, sum((client.done for client in clients), Counter())


@pytest.mark.long
def test_a_soak_leaves_the_server_as_it_was(record_property: Callable[[str, object], None]) -> None:
    with live_server(notes(NOTES)) as server:
        windows, done = asyncio.run(soak(server, SECONDS))
        about = server.ask("GET", "/info").json()["index"]
        assert server.failures == []
    third = (WINDOWS - 1) // 3
    first, last = windows[1 : 1 + third], windows[-third:]
    slow = [statistics.median(window.p99 for window in part) for part in (first, last)]
    cost = [statistics.median(window.cost for window in part) for part in (first, last)]
    weight = [statistics.median(size for window in part for size in window.memory) for part in (first, last)]
    told = f"CPU {1000 * cost[0]:.2f} then {1000 * cost[1]:.2f} ms; p99 {1000 * slow[0]:.1f} then "
    told = f"{told}{1000 * slow[1]:.1f} ms; memory {weight[0] / 2**20:.1f} then "
    record_property("soak", told := f"{told}{weight[1] / 2**20:.1f} MiB; {dict(done)}; {about}")
    each = [
        (round(1000 * window.cost, 2), round(1000 * window.p99, 1), round(window.memory[-1] / 2**20, 1))
        for window in windows
    ]
    assert min(done.values()) > 0
    assert weight[1] <= weight[0] * (1 + MARGIN), (told, each)
    # Latency is told, not judged: it grows with whatever else the machine does.
    assert cost[1] <= cost[0] * (1 + MARGIN), (told, each)
