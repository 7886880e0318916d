"""What a reading process passes on, when the client leaves or the writing process falls."""

from __future__ import annotations

import asyncio

import pytest

from suwen.service.to_writer import Address, ToWriter

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/documents",
    "raw_path": b"/documents",
    "query_string": b"",
    "headers": [(b"host", b"here"), (b"content-length", b"2")],
}


async def passed_on(writer, *, leaves: bool) -> list[dict]:
    """What a client is sent while `writer` stands for the writing process."""
    sent: list[dict] = []
    came = asyncio.Event()
    messages = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await came.wait()
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async def answer(reader, out):
        await reader.readuntil(b"{}")
        came.set()
        await writer(reader, out)
        out.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        app = ToWriter(None, None, Address(*server.sockets[0].getsockname()[:2]))
        await asyncio.wait_for(app(SCOPE, receive, send), 60)
    return sent


def test_a_writer_that_falls_before_it_answers_is_told_of():
    async def falls(reader, out):
        out.transport.abort()

    sent = asyncio.run(passed_on(falls, leaves=False))
    assert sent[0]["status"] == 503 and b"the process that writes is not there" in sent[1]["body"]


def test_a_client_that_leaves_is_sent_nothing_and_no_fault_is_raised():
    async def waits(reader, out):
        assert await reader.read() == b""

    assert asyncio.run(passed_on(waits, leaves=True)) == []


@pytest.mark.parametrize("end", ["close", "abort"])
def test_half_an_answer_stays_half_an_answer(end):
    async def half(reader, out):
        out.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345")
        await out.drain()
        await asyncio.sleep(0.2)
        getattr(out.transport, end)()

    sent = asyncio.run(passed_on(half, leaves=False))
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    assert sent[1]["body"] == b"12345" and sent[1]["more_body"]
