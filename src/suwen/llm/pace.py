"""How fast an endpoint is asked: slots, pace, slowing down, and how long to wait before another try. Sends nothing."""

from __future__ import annotations

import asyncio
import random
import time
from asyncio import sleep
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """The seconds a Retry-After header asks for: it holds seconds, or a date; None where it holds neither.

    >>> retry_after("1.5"), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=45.0), retry_after("soon")
    (1.5, 15.0, None)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, TypeError):
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - datetime.fromtimestamp(time.time() if now is None else now, UTC)).total_seconds()
    # A NaN compares false with everything and would make a sleep return at once, for ever.
    return max(0.0, seconds) if seconds == seconds and seconds != float("inf") else None


def back_off(attempt: int, first: float, longest: float, draw: Callable[[], float] = random.random) -> float:
    """The seconds to wait after the ``attempt``-th try failed: doubled each time, and drawn from its upper half."""
    return min(longest, first * 2.0 ** min(attempt - 1, 60)) * (0.5 + 0.5 * draw())


class Gate:
    """What every call to one endpoint passes: at most so many at once, so many a minute, none during a pause.

    A call that is asked to slow down halves the slots of the whole endpoint; as many good calls as there are slots
    give one back.
    """

    def __init__(self, concurrency: int, per_minute: float | None) -> None:
        self._most = self.allowed = concurrency
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._next = self._resume = 0.0
        self._active = self._good = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the endpoint's slots; entered when a call may start."""
        async with self._changed:
            try:
                await self._changed.wait_for(lambda: self._active < self.allowed)
            except BaseException:
                # It may have been woken for a slot that it does not take now.
                self._changed.notify(1)
                raise
            self._active += 1
        try:
            await self._pace()
            yield
        finally:
            self._active -= 1
            await self._notify()

    async def _pace(self) -> None:
        start = max(monotonic(), self._next)
        self._next = start + self._interval
        # A pause may begin, or be made longer, while this call waits for its turn.
        while (wait := max(start, self._resume) - monotonic()) > 0:
            await sleep(wait)

    def pause(self, seconds: float) -> None:
        """Start no call for so long, and use half the slots from now on."""
        now = monotonic()
        if now >= self._resume:
            # Of several calls rejected together, only the first halves.
            self.allowed = max(1, self.allowed // 2)
        self._resume = max(self._resume, now + seconds)
        self._good = 0

    async def good(self) -> None:
        """Take a good reply into account: enough of them widen the gate again."""
        self._good += 1
        if self.allowed < self._most and self._good >= self.allowed:
            self.allowed, self._good = self.allowed + 1, 0
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            # No more of them than find a slot: thousands may wait, and each that wakes in vain costs all the others.
            self._changed.notify(max(0, self.allowed - self._active))
