"""The one open index of the process, and who may touch it how: several threads read, one writes. Speaks no HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from suwen.errors import SuwenError
from suwen.index.engine import DamagedIndex
from suwen.index.opening import search_on_one_core
from suwen.retrieve.retriever import Index
from suwen.service.keys import Keys
from suwen.service.problems import Problem, as_problem
from suwen.service.serve_settings import ServeSettings
from suwen.service.service_metrics import Metrics

log = logging.getLogger("suwen.service")
T = TypeVar("T")


class Shed(Problem):
    """The server has as much work as it takes."""

    def __init__(self) -> None:
        message = "the server has as much work as it takes: wait a second and send this again"
        super().__init__("overloaded", message, headers={"Retry-After": "1"})


class Slots:
    """How many requests may be in work or waiting. Taken and given back from any thread."""

    def __init__(self, size: int, metrics: Metrics) -> None:
        self.size, self.taken = size, 0
        self._lock = threading.Lock()
        self._metrics = metrics

    @property
    def full(self) -> bool:
        """Whether the next request would be turned away."""
        return self.taken >= self.size

    def take(self) -> None:
        """Take one, or raise :class:`Shed`."""
        with self._lock:
            if self.taken >= self.size:
                raise Shed
            self.taken += 1
            self._metrics.queue.set(self.taken)

    def give(self) -> None:
        """Give one back."""
        with self._lock:
            self.taken -= 1
            self._metrics.queue.set(self.taken)


class Holder:
    """An index being served.

    Args:
        settings: How it is served.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.keys = Keys.load(settings.keys)
        self.metrics = Metrics()
        self.slots = Slots(settings.concurrency, self.metrics)
        #: Why the index could not be opened.
        self.failure: SuwenError | None = None
        self.stopping = False
        #: Called once the index is open, and before it is closed; in no particular thread.
        self.on_open: list[Callable[[Index], None]] = []
        self.on_failure: list[Callable[[], None]] = []
        self.on_close: list[Callable[[], None]] = []
        #: Who encodes posted documents again, and how many of them are being worked on.
        self.workers: Callable[[], Mapping[str, Any]] = lambda: {"worker": "none", "leased": 0}
        self._index: Index | None = None
        # One thread a search: with several at work, a team of threads for each would only wait for one another.
        self._readers = ThreadPoolExecutor(settings.threads, "suwen-read", search_on_one_core)
        self._writer = ThreadPoolExecutor(1, "suwen-write")
        self._opening: asyncio.Future[None] | None = None

    # -- opening and closing ------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the index is open."""
        return self._index is not None and not self.stopping

    @property
    def index(self) -> Index:
        """The open index; before it is open, and once it is closed, the problem that says so."""
        if self.stopping:
            raise Problem(
                "stopping",
                "the server is about to stop: send this to another one, or again in a while",
                headers={"Retry-After": "5"},
            )
        if self._index is not None:
            return self._index
        if self.failure is not None:
            raise as_problem(self.failure)
        raise Problem("loading", "the index is being opened: try again in a moment", headers={"Retry-After": "1"})

    def open(self) -> None:
        """Open the index, in whatever thread this is; a failure is kept, not raised."""
        settings = self.settings
        try:
            index = Index.open(settings.index, pair=settings.pair, write=not settings.read_only)
            try:
                # The first search reads the vectors and the encoder, which may take seconds: no caller should wait.
                index.search("健康 health", k=1)
                for begin in self.on_open:
                    begin(index)
            except BaseException:
                index.close()
                raise
            self._index = index
            self.metrics.ready.set(1)
            return
        except OSError as problem:
            self.failure = DamagedIndex(
                f"{settings.index} cannot be read ({problem}): run 'suwen verify {settings.index}', or restore a backup"
            )
        except SuwenError as problem:
            self.failure = problem
        except Exception as problem:
            log.exception("the index cannot be opened")
            self.failure = SuwenError(f"{settings.index} cannot be opened ({type(problem).__name__}: {problem})")
        log.error("the index cannot be served: %s", self.failure)
        for stop in self.on_failure:
            stop()

    async def start(self) -> None:
        """Begin to open the index; answers are given meanwhile."""
        self._opening = asyncio.get_running_loop().run_in_executor(self._writer, self.open)

    async def stop(self) -> None:
        """Finish what was accepted, then close the index."""
        self.stopping = True
        if self._opening is not None:
            await self._opening
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        for end in self.on_close:
            end()
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True, cancel_futures=True)
        if self._index is not None:
            self._index.close()
            self._index = None
        self.metrics.ready.set(0)

    # -- working ------------------------------------------------------------------------------------------------

    async def read(self, work: Callable[[Index], T], kind: str = "read") -> T:
        """Do something that changes nothing, in one of the reader threads.

        Args:
            work: Gets the index.
            kind: What it is, for the metrics.

        Raises:
            Shed: The server has as much work as it takes.
            Problem: It took too long, or there is no index to read.
        """
        future = self._submit(self._readers, work, kind)
        # Work that has not begun when the time is up never begins.
        async with self.within_time("ask for less, or try again later"):
            return await asyncio.wrap_future(future)

    async def write(self, work: Callable[[Index], T]) -> T:
        """Change the index, one at a time in the writer's thread; what was accepted is done, whoever has left.

        Raises:
            Shed: The server has as much work as it takes.
            Problem: It took too long (and is done all the same), or there is no index to write.
        """
        if self.settings.read_only:
            raise Problem(
                "read_only", "this server only reads: post to the one that writes, or start it without read_only"
            )
        future = self._submit(self._writer, work, "write")
        self.metrics.writes.inc()
        future.add_done_callback(lambda _: self.metrics.writes.dec())
        async with self.within_time("it is still being done; sending it again does no harm"):
            return await asyncio.shield(asyncio.wrap_future(future))

    def background(self, work: Callable[[Index], T]) -> Future[T]:
        """Change the index between the writes of requests, without taking one of their places."""
        index = self.index
        return self._writer.submit(lambda: work(index))

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[Index], T], kind: str) -> Future[T]:
        index = self.index
        self.slots.take()
        asked = time.perf_counter()

        def job() -> T:
            self.metrics.waited(kind, time.perf_counter() - asked)
            return work(index)

        try:
            future = pool.submit(job)
        except BaseException:
            self.slots.give()
            raise
        # The place is free when the thread is, not when the caller gives up: else work would pile up behind it.
        future.add_done_callback(lambda _: self.slots.give())
        return future

    @asynccontextmanager
    async def within_time(self, fix: str) -> AsyncIterator[None]:
        """End the block with the problem ``timeout`` when it takes longer than a request may."""
        try:
            async with asyncio.timeout(self.settings.seconds):
                yield
        except TimeoutError:
            raise Problem(
                "timeout",
                f"the request took longer than {self.settings.seconds:g} seconds: {fix}",
                headers={"Retry-After": "1"},
            ) from None

    # -- telling ------------------------------------------------------------------------------------------------

    def freshness(self, index: Index) -> dict[str, Any]:
        """What waits for the document encoder, since when, and who works on it."""
        backlog = index.backlog()
        waited = 0.0 if backlog.oldest is None else max(0.0, time.time() - backlog.oldest)
        return {
            "fresh_passages": backlog.passages,
            "waiting_documents": backlog.documents,
            "oldest_seconds": round(waited, 3),
            **self.workers(),
        }
