"""Turns: short searches, one after the other in one thread. What may take long has the reader threads' own queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

T = TypeVar("T")
#: Seconds that one piece of work may take before another thread goes on with the rest: several times what it takes.
_LONG = 0.1
#: Pieces after which a thread lets those in that wait for one with longer work.
_STRETCH = 16


class Turns:
    """Does short work a piece at a time: all of it runs in the interpreter, for which two threads would only wait.

    One thread goes from piece to piece while there are any, so that no other has to be woken, and finds its own things
    where it left them. Whoever takes long keeps nobody: after a moment another thread goes on with the rest.

    Args:
        readers: Whose threads do it.
    """

    def __init__(self, readers: Executor) -> None:
        self._readers = readers
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        #: Who has the turn, and since when it is at its piece; later than any time before it has begun.
        self._runner: object | None = None
        self._began = inf
        self._looking = False

    async def do(self, work: Callable[[], T], seconds: float, over: Callable[[], None]) -> T:
        """Have something done, and wait for it.

        Args:
            work: What.
            seconds: How long it may take. What has not begun by then never begins.
            over: Called when it has ended, from its thread, or when it never will begin.

        Raises:
            TimeoutError: It took longer.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def piece() -> None:
            made: Any = None
            problem: BaseException | None = None
            try:
                if not answer.done():
                    made = work()
            except BaseException as error:
                problem = error
            over()
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(_settle, answer, made, problem)

        try:
            self._put(piece, loop)
        except BaseException:
            over()
            raise
        timer = loop.call_later(seconds, _give_up, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def _put(self, piece: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._runner is None:
                self._begin()
            elif not self._looking:
                self._looking = True
                loop.call_later(_LONG, self._look, loop)
            self._waiting.append(piece)

    def _begin(self) -> None:
        """Let a thread begin, in place of the one that has the turn; the lock is held."""
        mine = object()
        self._readers.submit(self._run, mine)
        self._runner, self._began = mine, inf

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """See, as long as somebody waits, whether what is under way takes long."""
        with self._lock:
            self._looking = bool(self._waiting)
            if not self._looking:
                return
            loop.call_later(_LONG, self._look, loop)
            if time.monotonic() - self._began > _LONG:
                self._begin()

    def _run(self, mine: object) -> None:
        for _ in range(_STRETCH):
            piece = self._next(mine)
            if piece is None:
                return
            piece()
        with self._lock:
            if self._runner is mine:
                # Behind whoever waits for a thread.
                self._readers.submit(self._run, mine)
                self._began = inf

    def _next(self, mine: object) -> Callable[[], None] | None:
        """The next piece; None where there is none, or where another has the turn by now."""
        with self._lock:
            if self._runner is not mine:
                return None
            if not self._waiting:
                self._runner, self._began = None, inf
                return None
            self._began = time.monotonic()
            return self._waiting.popleft()


def _give_up(answer: asyncio.Future[Any]) -> None:
    _settle(answer, None, TimeoutError())


def _settle(answer: asyncio.Future[Any], made: Any, problem: BaseException | None) -> None:
    if answer.done():
        return
    if problem is None:
        answer.set_result(made)
    else:
        answer.set_exception(problem)
