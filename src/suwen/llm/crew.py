"""Many requests at once, in one event loop that ends cleanly. Knows neither models nor caches."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from suwen.llm.config import LLMError
from suwen.llm.endpoint import Stopped
from suwen.llm.requests import Reply, Request

_T = TypeVar("_T")


class Crew:
    """Workers that take requests from one stream; ends at the first thing that must end a run, with nothing lost."""

    def __init__(
        self,
        ask: Callable[[Request, asyncio.Event], Coroutine[Any, Any, Reply]],
        source: Iterator[Request],
        stop: asyncio.Event,
        width: int,
    ) -> None:
        self._ask, self._source, self._stop = ask, source, stop
        self._ready: asyncio.Queue[tuple[Request, Reply] | None] = asyncio.Queue(width)
        self._problem: BaseException | None = None
        self._tasks = [asyncio.create_task(self._work()) for _ in range(width)]
        self._watch = asyncio.create_task(self._finish())

    async def _work(self) -> None:
        try:
            while not self._stop.is_set():
                request = next(self._source, None)
                if request is None:
                    return
                await self._ready.put((request, await self._ask(request, self._stop)))
        except Stopped:
            return
        except Exception as problem:
            self._problem = self._problem or problem
            self._stop.set()

    async def _finish(self) -> None:
        await asyncio.gather(*self._tasks)
        await self._ready.put(None)

    async def results(self) -> AsyncIterator[tuple[Request, Reply]]:
        """The replies as they come; then, where something ended the run, that is raised."""
        while (pair := await self._ready.get()) is not None:
            yield pair
        if self._problem is not None:
            raise self._problem

    async def dismiss(self) -> None:
        """End all work, done or not."""
        for task in (*self._tasks, self._watch):
            task.cancel()
        await asyncio.gather(*self._tasks, self._watch, return_exceptions=True)


def complete(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to its end in an event loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise LLMError("run() and check() start an event loop, and one is running here: await ask() or ask_many() instead")


@contextmanager
def on_interrupt(stop: asyncio.Event) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C sets ``stop``; the second interrupts as usual. Tells whether there was one."""
    seen: list[bool] = []
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if threading.current_thread() is not threading.main_thread():
        # Signals are the main thread's.
        yield lambda: False
        return

    def take() -> None:
        if seen and task is not None:
            task.cancel()
        seen.append(True)
        stop.set()

    def handler(_signal: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(take)

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)
