"""Places: how many requests of one kind may be in work or waiting, and how many of them one key may have."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Literal

from prometheus_client import Gauge

from suwen.service.problems import Problem

#: Searches and other short reads; batches of texts to encode; changes of the index; looks at every vector of it; copies
#: of a whole index; the numbers that anybody may ask for, with a key or without.
Kind = Literal["read", "encode", "write", "recall", "copy", "numbers"]
#: The name of the key of the request under way; empty where a server needs none.
ASKER: ContextVar[str] = ContextVar("suwen_asker", default="")


class Shed(Problem):
    """The server has as much work of this kind as it takes, or the key has its share."""

    def __init__(self, why: str = "the server has as much work as it takes") -> None:
        super().__init__("overloaded", f"{why}: wait a second and send this again", headers={"Retry-After": "1"})


class Places:
    """The places of one kind of work. Taken and given back from any thread.

    Args:
        size: How many there are.
        share: Tells the most that one key may have: the others find a place whatever it does.
        gauge: Asks how many are taken.
    """

    def __init__(self, size: int, share: Callable[[], int], gauge: Gauge) -> None:
        self.size, self.share, self.taken = size, share, 0
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()
        gauge.set_function(lambda: self.taken)

    def check(self) -> None:
        """Raise :class:`Shed` when the next request of the one who asks would be turned away."""
        asker = ASKER.get()
        if self.taken >= self.size:
            raise Shed
        if asker and self._of[asker] >= (share := self.share()):
            raise Shed(f"the key {asker!r} has the {share} places that one key may have")

    def take(self) -> str:
        """Take a place, or raise :class:`Shed`; whose it is, for :meth:`give`."""
        asker = ASKER.get()
        with self._lock:
            self.check()
            self.taken += 1
            self._of[asker] += 1
        return asker

    def give(self, asker: str) -> None:
        """Give a place back."""
        with self._lock:
            self.taken -= 1
            self._of[asker] -= 1
            if not self._of[asker]:
                del self._of[asker]
