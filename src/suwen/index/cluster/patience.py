"""Connections to PostgreSQL that do not wait for ever: about a server that is silent another connection asks.

Some statements take minutes, such as the one that makes a graph, so a limit of time would end good work. What tells a
long statement from a network that stalls is the server itself: it knows whether the session is at work. Where it is
not (the statement never came, or its answer was lost), or where nobody can be asked either, the connection is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

import psycopg

#: A session by its process and when that began: the numbers of processes come again.
Session = tuple[int, datetime]
#: How often in a row a server may refuse to be asked (too many connections) before its silence counts.
_DOUBTS = 3
#: Waiting for its client, or for a standby that does not confirm a commit, is not work.
_AT_WORK = """SELECT state = 'active' AND coalesce(wait_event_type, '') <> 'Client'
                     AND coalesce(wait_event, '') <> 'SyncRep'
              FROM pg_stat_get_activity(%s) WHERE backend_start = %s"""


class Silent(psycopg.OperationalError):
    """Nothing came from the server, and it is not at work on what it was asked."""


class PatientConnection(psycopg.Connection[Any]):
    """A connection that looks into silences.

    Attributes:
        patience: Seconds of silence after which the server is asked.
        session: The server's name for this connection, once it is known.
        ask: Makes another connection to the same server; without one a silence ends this connection at once.
    """

    patience: float = 10.0
    session: Session | None = None
    ask: Callable[[], PatientConnection] | None = None

    def wait(self, gen: Generator[Any, Any, Any], *given: Any, **named: Any) -> Any:
        """See :meth:`psycopg.Connection.wait`."""
        return super().wait(self._watched(gen), *given, **named)

    def _watched(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same, but that silence does not go on for ever."""
        since, doubts = time.monotonic(), 0
        try:
            wants = next(gen)
            while True:
                ready = yield wants
                if ready:
                    since, doubts = time.monotonic(), 0
                elif time.monotonic() - since >= self.patience:
                    doubts = self._look_into(doubts)
                    since = time.monotonic()
                wants = gen.send(ready)
        except StopIteration as done:
            return done.value

    def _look_into(self, doubts: int) -> int:
        """Give up on this connection unless the server works for it; how often in a row it refused to say."""
        try:
            if self.ask is not None and self.session is not None:
                with self.ask() as other:
                    (works,) = other.execute(_AT_WORK, self.session).fetchone() or (False,)
                if works:
                    return 0
        except (psycopg.errors.ConnectionTimeout, Silent):
            pass
        except psycopg.OperationalError:
            if doubts + 1 < _DOUBTS:
                return doubts + 1
        self.close()
        raise Silent(f"no answer for {self.patience:g} seconds, and the server is not at work on one")


def know_session(connection: PatientConnection, search_path: str) -> None:
    """Set what a connection sees first, and learn the server's name for it, in one question."""
    # One process for each search: of two cores, helpers took 54 ms of CPU to compare 50,000 vectors, which take one
    # process 31, and brought nothing.
    query = """SELECT pid, backend_start, set_config('search_path', %s, false),
                      set_config('max_parallel_workers_per_gather', '0', false)
               FROM pg_stat_get_activity(pg_backend_pid())"""
    if (found := connection.execute(query, (search_path,)).fetchone()) is not None:
        connection.session = found[0], found[1]


def end_session(connection: psycopg.Connection[Any], session: Session) -> None:
    """End a session that its client has given up, with whatever transaction it is in; it may be gone already."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_get_activity(%s) WHERE backend_start = %s"
    connection.execute(query, session)
