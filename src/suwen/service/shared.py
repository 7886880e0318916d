"""What all indexes of one server share: keys, numbers, places, threads that read, and the end of it all. No index."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from suwen.encoders.pair import Pair
from suwen.service.keys import Keys
from suwen.service.places import Kind, Places
from suwen.service.problems import Problem
from suwen.service.serve_settings import ServeSettings
from suwen.service.service_metrics import Metrics
from suwen.service.turns import Turns

#: Seconds that work in the background waits for searches, and between two looks at whether there are any.
_GIVE_WAY, _LOOK = 0.05, 0.002


class Shared:
    """The part of a server that there is once, however many indexes it has: so much work in all, whichever it is for.

    Args:
        settings: How it serves.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.keys = Keys(settings.keys)
        self.metrics = Metrics()
        self.places = self._make_places()
        self.readers = ThreadPoolExecutor(settings.threads, "suwen-read")
        self.turns = Turns(self.readers)
        # Half of what searches: encoding is pure CPU, and a search must find a core that is not busy with it.
        self.encoders = ThreadPoolExecutor(max(1, settings.threads // 2), "suwen-encode")
        #: Held for each step in which documents are encoded: one at a time in all.
        self.encoding = threading.Lock()
        #: Called when half of the time of a stop is over: what is not begun by then is left.
        self.on_late: list[Callable[[], None]] = []
        #: Called when the last index is closed.
        self.on_close: list[Callable[[], None]] = []
        self._ends_at: float | None = None
        self._pairs: dict[tuple[str, int], Pair] = {}
        self._loading = threading.Lock()

    def _make_places(self) -> dict[Kind, Places]:
        settings = self.settings
        sizes: dict[Kind, int] = {
            "read": settings.concurrency,
            "encode": settings.encode_concurrency,
            "write": settings.write_concurrency,
            "recall": 1,
            "copy": 1,
            "numbers": 1,
        }

        def share(size: int) -> int:
            return settings.share(size, alone=self.keys.single)

        gauge = self.metrics.queue
        return {kind: Places(size, partial(share, size), gauge.labels(kind)) for kind, size in sizes.items()}

    def load_pair(self, path: str | Path | None) -> Pair:
        """A pair, loaded once for all indexes of its space that name the same folder."""
        with self._loading:
            pair = Pair.load(path)
            mark = (str(pair.path.resolve()), (pair.path / "suwen.json").stat().st_mtime_ns)
            return self._pairs.setdefault(mark, pair)

    # -- the end ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Begin to stop, from any thread: half of the time is for what was accepted, the rest is left undone."""
        if self._ends_at is None:
            self._ends_at = time.monotonic() + self.settings.stop_seconds
            late = threading.Timer(self.settings.stop_seconds / 2, self._tell_late)
            late.daemon = True
            late.start()

    def _tell_late(self) -> None:
        for tell in list(self.on_late):
            tell()

    @property
    def ending(self) -> bool:
        """Whether a stop has begun: nothing is started that nobody waits for."""
        return self._ends_at is not None

    def seconds_left(self) -> float:
        """How long a stop may still take, at the most."""
        return 0.0 if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def close(self) -> None:
        """End the threads, once no index needs them any more."""
        for close in self.on_close:
            close()
        self.encoders.shutdown(wait=True, cancel_futures=True)
        self.readers.shutdown(wait=True, cancel_futures=True)

    # -- time ---------------------------------------------------------------------------------------------------

    def give_way(self) -> None:
        """Wait a moment for searches under way to end: one that has a core to itself is done sooner."""
        until = time.perf_counter() + _GIVE_WAY
        while self.places["read"].taken and time.perf_counter() < until:
            time.sleep(_LOOK)

    @asynccontextmanager
    async def within_time(self, fix: str) -> AsyncIterator[None]:
        """End the block with the problem ``timeout`` when it takes longer than a request may."""
        try:
            async with asyncio.timeout(self.settings.seconds):
                yield
        except TimeoutError:
            raise self.late(fix) from None

    def late(self, fix: str) -> Problem:
        """The problem of a request that took longer than one may."""
        return Problem(
            "timeout",
            f"the request took longer than {self.settings.seconds:g} seconds: {fix}",
            headers={"Retry-After": "1"},
        )
