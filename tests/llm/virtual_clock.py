"""Time that passes only where somebody sleeps, so that no test of waiting reads the machine's clock. No test here."""

from __future__ import annotations

import asyncio

import pytest


class VirtualClock:
    """Stands in for the clock and the sleep of ``suwen.llm``: who sleeps shortest moves it on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._wakes: list[float] = []
        monkeypatch.setattr("suwen.llm.pace.monotonic", lambda: self.now)
        monkeypatch.setattr("suwen.llm.pace.sleep", self.sleep)
        monkeypatch.setattr("suwen.llm.endpoint._pause", lambda seconds, _: self.sleep(seconds))

    async def sleep(self, seconds: float) -> None:
        wake = self.now + seconds
        self._wakes.append(wake)
        try:
            while self.now < wake:
                # Whoever can go on does so first.
                for _ in range(5):
                    await asyncio.sleep(0)
                if wake == min(self._wakes):
                    self.now = max(self.now, wake)
        finally:
            self._wakes.remove(wake)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """A clock at 0."""
    return VirtualClock(monkeypatch)
