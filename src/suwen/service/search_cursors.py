"""Rankings that callers read a page at a time, however deep: kept in memory, and only so many for so long. No HTTP."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from suwen.index.engine import Ranking
from suwen.service.problems import Problem


@dataclass
class Cursor:
    """A ranking, whose it is, and when it was last read."""

    id: str
    ranking: Ranking
    key: str
    used: float


class Cursors:
    """The cursors of one index. Used from any thread. A ranking of 100,000 hits takes 1.2 MB.

    Args:
        most: How many there may be; a further one ends the one that was not read for longest.
        seconds: How long one stays that is not read.
        clock: Seconds that never go back.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._cursors: OrderedDict[str, Cursor] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, ranking: Ranking, key: str) -> Cursor:
        """Keep a ranking for the one who asked for it."""
        cursor = Cursor(secrets.token_hex(16), ranking, key, self._clock())
        with self._lock:
            self._sweep()
            while len(self._cursors) >= self._most:
                self._cursors.popitem(last=False)
            self._cursors[cursor.id] = cursor
        return cursor

    def find(self, id_: str, key: str) -> Cursor:
        """A cursor of the one who asks; its time begins anew.

        Raises:
            Problem: There is none, or not any more.
        """
        with self._lock:
            self._sweep()
            cursor = self._cursors.get(id_)
            if cursor is None or cursor.key != key:
                raise Problem(
                    "unknown_cursor",
                    "there is no such cursor: it was not read for too long, or the server was restarted. Begin again "
                    "with POST /cursors",
                    param="id",
                )
            cursor.used = self._clock()
            self._cursors.move_to_end(id_)
            return cursor

    def end(self, id_: str, key: str) -> None:
        """Let go of a cursor."""
        self.find(id_, key)
        with self._lock:
            self._cursors.pop(id_, None)

    def _sweep(self) -> None:
        # The first is the one that was not read for longest.
        while self._cursors and next(iter(self._cursors.values())).used + self._seconds <= self._clock():
            self._cursors.popitem(last=False)
