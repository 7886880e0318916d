"""The one thread that changes an index, and how documents are encoded there: in steps that can be stopped. No HTTP."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from suwen.encoders.prompts import Form
from suwen.encoders.query import Encoder, Vectors
from suwen.service.problems import Problem

T = TypeVar("T")
#: Seconds one step of encoding takes: a stop waits for no more than one. A transformer needs a third for a long text.
_STEP = 0.05
#: Seconds left to others after each step, where encoding has time.
_BREATH = 0.01
_MOST_AT_ONCE = 256


def stopping(*, begun: bool = False) -> Problem:
    """What is said to requests that a stop leaves undone, or that it does not see the end of."""
    if begun:
        said = "the server stops before this is done: send it again, which does no harm where it was stored"
    else:
        said = (
            "the server is about to stop, and nothing of this was stored: send it to another one, or again in a while"
        )
    return Problem("stopping", said, headers={"Retry-After": "5"})


class Writer:
    """One thread, one job at a time, in the order they came."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, "suwen-write")
        #: Set when what is not begun must not begin, and what is being encoded must end.
        self.give_up = threading.Event()
        self._began: float | None = None
        self._thread = 0

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do something when its turn comes."""

        def job() -> T:
            if self.give_up.is_set():
                raise stopping()
            self._thread, self._began = threading.get_ident(), time.monotonic()
            try:
                return work()
            finally:
                self._began = None

        return self.pool.submit(job)

    def busy_seconds(self) -> float:
        """How long the job under way has taken so far; 0 when there is none."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def at(self) -> str:
        """Where in the code the thread is, for the log."""
        frame = sys._current_frames().get(self._thread)
        return "".join(traceback.format_stack(frame)) if frame else ""


class InSteps(Encoder):
    """An encoder of documents that works in short steps and looks between two whether it should stop.

    Args:
        encoder: Does the work.
        turn: Held for each step: one step at a time of all that share it, so that searches find a core.
        stop: Raises to end the work.
        give_way: Called before each step: waits a moment for those who search.
        breath: Give way to all others after each step, as work does that nobody waits for.
    """

    def __init__(
        self,
        encoder: Encoder,
        turn: threading.Lock,
        stop: Callable[[], None],
        *,
        give_way: Callable[[], None] = lambda: None,
        breath: bool = False,
    ) -> None:
        self.name, self.dimension = encoder.name, encoder.dimension
        self._encoder, self._turn, self._stop, self._give_way = encoder, turn, stop, give_way
        self._breath = _BREATH if breath else 0.0

    def encode(self, texts: Sequence[str], *, form: Form = "document", instruction: str | None = None) -> Vectors:
        """Encode texts, a few at a time: as many as fit into a step."""
        parts: list[Vectors] = []
        done, size = 0, 1
        while done < len(texts):
            self._stop()
            self._give_way()
            with self._turn:
                began = time.perf_counter()
                parts.append(self._encoder.encode(texts[done : done + size], form=form, instruction=instruction))
                took = time.perf_counter() - began
            done += size
            size = min(_MOST_AT_ONCE, 2 * size) if took < _STEP / 2 else max(1, size // 2) if took > _STEP else size
            if self._breath:
                # Also what lets a post that waits for the turn have it: whoever lets go of a lock gets it back first.
                time.sleep(self._breath)
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), dtype=np.float32)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has, neither cut nor with special tokens."""
        return self._encoder.count_tokens(texts)
