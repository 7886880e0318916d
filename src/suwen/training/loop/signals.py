"""Signals that ask a training to stop. What is done then is the loop's to say."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def caught_signals() -> Iterator[list[str]]:
    """Turns the first signal to stop into a word; a second one has its old effect at once."""
    caught: list[str] = []
    old: dict[int, Any] = {}

    def handle(number: int, _: Any) -> None:
        caught.append(f"of the signal {signal.Signals(number).name}")
        for one, handler in old.items():
            signal.signal(one, handler)

    if threading.current_thread() is threading.main_thread():
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # An ignored signal stays ignored: that is how nohup and background jobs ask for it.
            if signal.getsignal(one) not in (signal.SIG_IGN, None):
                old[one] = signal.signal(one, handle)
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
