"""What is turned away: bodies too long, too deep, too slow or half sent, and floods. Driven at the ASGI level."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from suwen.service.holder import Holder
from suwen.service.indexes import Indexes
from suwen.service.request_intake import Intake
from suwen.service.serve_settings import ServeSettings


class Client:
    """One request at the ASGI level: parts of a body that come when the test says so, and the answer."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": list(headers),
            "suwen.id": "id",
            "suwen.noted": {},
            "suwen.key": None,
        }
        self.parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []

    def part(self, body: bytes, more: bool = True) -> None:
        self.parts.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self.parts.put_nowait({"type": "http.disconnect"})

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def code(self) -> str:
        return str(json.loads(self.sent[1]["body"])["error"]["code"])


def make_intake(seen: list[bytes], **settings: Any) -> Intake:
    """The layer over an application that notes the bodies that reach it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert message["more_body"] is False
        seen.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def tell(request: Any, error: Exception) -> Any:
        raise error

    return Intake(app, Indexes(Holder(ServeSettings(index=Path("none"), **settings))), {}, tell)


async def asked(intake: Intake, client: Client) -> Client:
    await intake(client.scope, client.parts.get, client.send)
    return client


def test_a_body_comes_through_whole() -> None:
    seen: list[bytes] = []
    client = Client((b"content-type", b"application/json"))
    for number, part in enumerate((b'{"a"', b": ", b"1}")):
        client.part(part, more=number < 2)
    intake = make_intake(seen)
    assert asyncio.run(asked(intake, client)).status == 200
    assert seen == [b'{"a": 1}']
    assert not intake._held


def test_a_long_body_is_refused_by_its_length_alone() -> None:
    seen: list[bytes] = []
    client = Client((b"content-length", b"1025"))
    assert asyncio.run(asked(make_intake(seen, body_bytes=1024), client)).code == "too_large"
    assert (client.status, seen) == (413, [])


def test_a_long_body_without_a_length_is_refused_on_the_way() -> None:
    seen: list[bytes] = []
    client = Client()
    for _ in range(1000):
        client.part(b"x" * 512)
    intake = make_intake(seen, body_bytes=1024)
    assert asyncio.run(asked(intake, client)).status == 413
    assert client.parts.qsize() == 1000 - 3
    assert (seen, +intake._held) == ([], {})


def test_a_slow_body_is_given_up() -> None:
    seen: list[bytes] = []
    client = Client()
    client.part(b"x")
    intake = make_intake(seen, slow_seconds=0.05)
    assert asyncio.run(asked(intake, client)).code == "slow_client"
    assert (client.status, seen, +intake._held) == (408, [], {})
    assert (b"connection", b"close") in client.sent[0]["headers"]


def test_a_half_sent_body_reaches_nobody() -> None:
    seen: list[bytes] = []
    client = Client()
    client.part(b"half")
    client.leave()
    intake = make_intake(seen)
    assert asyncio.run(asked(intake, client)).sent == []
    assert (seen, +intake._held) == ([], {})


def test_a_full_server_reads_no_body() -> None:
    seen: list[bytes] = []
    intake = make_intake(seen, concurrency=1)
    asker = intake._shared.places["read"].take()
    client = Client()
    client.part(b"{}", more=False)
    assert asyncio.run(asked(intake, client)).code == "overloaded"
    assert (client.status, client.parts.qsize()) == (429, 1)
    assert (b"retry-after", b"1") in client.sent[0]["headers"]
    intake._shared.places["read"].give(asker)
    assert asyncio.run(asked(intake, client)).sent[3]["type"] == "http.response.body"
    assert seen == [b"{}"]


def test_bodies_under_way_are_bounded_in_all() -> None:
    async def flood() -> list[Client]:
        # Time stands still until all are there, however long that takes.
        now, loop = [0.0], asyncio.get_running_loop()
        loop.time = lambda: now[0]  # type: ignore[method-assign]
        intake = make_intake([], body_bytes=1024, slow_seconds=0.2)
        clients = [Client() for _ in range(40)]
        tasks = []
        for client in clients:
            client.part(b"x" * 1000)
            tasks.append(asyncio.create_task(asked(intake, client)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert intake._held["read", ""] <= 9 * 1024
        now[0] = 60.0
        await asyncio.gather(*tasks)
        assert not intake._held
        return clients

    codes = [client.code for client in asyncio.run(flood())]
    assert codes.count("slow_client") == 9
    assert codes.count("overloaded") == 31


@pytest.mark.parametrize(
    ("host", "status"),
    [(b"localhost", 200), (b"LOCALHOST:80", 200), (b"[::1]:80", 200), (b"evil.example", 403), (b"", 403)],
)
def test_names_the_server_may_be_asked_by(host: bytes, status: int) -> None:
    client = Client((b"host", host))
    client.part(b"", more=False)
    assert asyncio.run(asked(make_intake([], hosts=("localhost", "::1")), client)).status == status
