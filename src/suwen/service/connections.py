"""The protocol of HTTP connections: how many there may be, and an end to the patience with each. Answers nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

#: The longest head of a request and the most headers in it; no client of ours needs a tenth of either.
_LONGEST_HEAD, _MOST_HEADERS = 64 * 1024, 200
#: Requests that may be sent on one connection before the first of them is answered.
_MOST_AHEAD = 512


class Crowd:
    """Who is connected: so many in all, and so many from one address.

    Nobody is shut out by a crowd from elsewhere: when all connections are taken, the address that has the most of them
    loses one on which nothing is under way.

    Args:
        most: Connections in all.
        each: Connections of one address.
    """

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._of: Counter[str] = Counter()
        self._there: dict[PatientProtocol, str] = {}

    def come(self, connection: PatientProtocol, address: str) -> bool:
        """Take a connection in; whether there was room for it, or room was made."""
        if self._of[address] >= self._each or (len(self._there) >= self._most and not self._make_room(address)):
            return False
        self._there[connection] = address
        self._of[address] += 1
        return True

    def go(self, connection: PatientProtocol) -> None:
        """Forget a connection."""
        address = self._there.pop(connection, None)
        if address is not None:
            self._of[address] -= 1
            self._of = +self._of

    def _make_room(self, address: str) -> bool:
        ((largest, count),) = self._of.most_common(1)
        if count <= self._of[address] + 1:
            return False
        idle = next((one for one, whose in self._there.items() if whose == largest and one.idle), None)
        if idle is None:
            return False
        self.go(idle)
        idle.transport.abort()
        return True


class PatientProtocol(HttpToolsProtocol):
    """The protocol of uvicorn, with an end to its patience.

    uvicorn ends connections that idle between two requests. One that never sends a whole head, never ends a body nobody
    waits for, or never reads its answer, would stay for good.
    """

    slow_seconds = 20.0
    crowd = Crowd(1000, 500)
    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _in_head, _head, _begun = True, 0, False
    _open: tuple[RequestResponseCycle, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.crowd.come(self, self.client[0] if self.client else ""):
            self._wait()
        else:
            transport.abort()

    @property
    def idle(self) -> bool:
        """Whether nothing is being answered: no request came yet, or no whole one, or all were answered."""
        return all(cycle.response_complete or cycle.more_body for cycle in self._open)

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.go(self)
        self._enough()
        self.resume_writing()
        self._drop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # Behind a request that is not answered yet, this would pass for its answer.
        if self._drop():
            self.transport.close()
        else:
            super().send_400_response(msg)

    def data_received(self, data: bytes) -> None:
        # Looked at before it is parsed: a parser calls back for each of a hundred thousand headers.
        if self._in_head:
            end = data.find(b"\r\n\r\n")
            self._head += len(data) if end < 0 else end
            if self._head > _LONGEST_HEAD:
                self._hang_up()
                return
        super().data_received(data)
        # Not with its first byte: nearly every head comes whole, and needs no clock.
        if self._begun and self._reading is None:
            self._wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._begun = True
        self._enough()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _MOST_HEADERS:
            self._hang_up()
        elif not self.transport.is_closing():
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = self._begun = False
        self._enough()
        self._open = tuple(cycle for cycle in self._open if not cycle.response_complete)
        if len(self._open) >= _MOST_AHEAD:
            self._hang_up()
        if self.transport.is_closing():
            return
        super().on_headers_complete()
        if self.cycle is not None:
            self._open = (*self._open, self.cycle)

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._head = True, 0
        if self.transport.is_closing():
            return
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and self.cycle.more_body and not self.transport.is_closing():
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.slow_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _wait(self) -> None:
        self._enough()
        self._reading = self.loop.call_later(self.slow_seconds, self._hang_up)

    def _hang_up(self) -> None:
        self._drop()
        self.transport.close()

    def _drop(self) -> bool:
        """Tell every request that is not answered that nobody listens any more; whether there was one.

        uvicorn tells the last one alone, and those before it fail on a connection that is closed.
        """
        left = [cycle for cycle in self._open if not cycle.response_complete]
        for cycle in left:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        return bool(left)

    def _enough(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
