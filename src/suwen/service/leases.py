"""Who works on which documents, and for how long. In memory alone: what guards the index is the version of a result."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from suwen.index.engine import Waiting

#: A worker that asked for work this long ago is taken to be still there: it asks every few seconds.
_THERE = 60.0
#: Wrong answers of a worker for one document until it is left to others, how many are remembered, and the seconds a
#: worker gets nothing whose encoder is wrong.
_WRONG, _REMEMBERED, _BARRED = 3, 10_000, 600.0


@dataclass
class Lease:
    """Documents that one worker has, until a moment of the clock."""

    id: str
    worker: str
    documents: set[str]
    until: float
    probe: int


class Leases:
    """The leases of one server. Safe to use from any thread.

    Args:
        seconds: How long a worker may keep what it leased without giving anything back.
        clock: Seconds that never go back.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._asked: float | None = None
        self._wrong: Counter[tuple[str, str, str]] = Counter()
        self._barred: dict[str, float] = {}

    def grant(
        self, worker: str, find: Callable[[Collection[str]], Sequence[Waiting]], probes: int = 1
    ) -> tuple[Lease | None, Sequence[Waiting]]:
        """Lease what waits and is nobody's.

        Args:
            worker: Who asks.
            find: Gives documents that wait, without those it is called with.
            probes: How many texts there are to try its encoder with; one of them goes with the lease.

        Returns:
            The lease and its documents; no lease when nothing waits.
        """
        # Found and taken in one step: two workers that ask at once get different documents.
        with self._lock:
            self._asked = self._clock()
            waiting = find(self._held() | self._given_up(worker))
            if not waiting:
                return None, []
            ids, until = {one.id for one in waiting}, self._clock() + self.seconds
            lease = Lease(secrets.token_hex(8), worker, ids, until, secrets.randbelow(max(1, probes)))
            self._leases[lease.id] = lease
            return lease, waiting

    def settle(self, id_: str | None, documents: Iterable[str]) -> bool:
        """Take documents out of a lease and give the rest its full time again; False for a lease that is no more."""
        with self._lock:
            self._asked = self._clock()
            self._held()
            lease = self._leases.get(id_ or "")
            if lease is None:
                return False
            lease.documents.difference_update(documents)
            lease.until = self._clock() + self.seconds
            if not lease.documents:
                del self._leases[lease.id]
            return True

    def find(self, id_: str | None) -> Lease | None:
        """A lease that has not ended."""
        with self._lock:
            self._held()
            return self._leases.get(id_ or "")

    def note_wrong(self, worker: str, id_: str, version: str) -> None:
        """Remember a wrong answer: after a few of one worker for one version it is left to others."""
        with self._lock:
            if len(self._wrong) >= _REMEMBERED:
                self._wrong.clear()
            self._wrong[worker, id_, version] += 1

    def bar(self, worker: str) -> None:
        """Give a worker nothing for a while: its encoder is not the space's."""
        with self._lock:
            self._barred[worker] = self._clock() + _BARRED
            while len(self._barred) > _REMEMBERED:
                del self._barred[next(iter(self._barred))]

    def barred(self, worker: str) -> bool:
        """Whether a worker gets nothing now."""
        return self._barred.get(worker, 0.0) > self._clock()

    def _given_up(self, worker: str) -> set[str]:
        # By id alone: a changed document comes back to this worker when the server is started again, at the latest.
        return {id_ for (who, id_, _), times in self._wrong.items() if who == worker and times >= _WRONG}

    def release(self, id_: str) -> int | None:
        """End a lease; how many documents it still had, or None for a lease that is no more."""
        with self._lock:
            self._held()
            lease = self._leases.pop(id_, None)
            return None if lease is None else len(lease.documents)

    def held(self) -> int:
        """How many documents are leased."""
        with self._lock:
            return len(self._held())

    def asked_lately(self) -> bool:
        """Whether a worker seems to be there."""
        asked = self._asked
        return asked is not None and self._clock() - asked < max(_THERE, self.seconds)

    def _held(self) -> set[str]:
        """The leased documents; a lease whose time is up ends here."""
        now = self._clock()
        self._leases = {id_: lease for id_, lease in self._leases.items() if lease.until > now}
        return {document for lease in self._leases.values() for document in lease.documents}
