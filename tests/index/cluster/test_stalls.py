"""A network that stalls: connections stay open, and nothing comes any more. Calls end all the same, and truthfully."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest
from changes import DIMENSION, check, contents, expected, searched, work

import milvus_server
from postgres_server import new_address, server
from suwen.index.cluster import milvus
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.cluster.patience import Silent
from suwen.index.cluster.place import Place
from suwen.index.engine import IndexProblem

LONG = pytest.mark.long


class Way:
    """A way to a server that can stall after so many messages, of either side: one connection of it, or all of it."""

    def __init__(self, port: int) -> None:
        self._to, self._ends = port, list[socket.socket]()
        self._change = threading.Condition()
        self._left: int | None = None
        self._whole, self.stalled = False, False
        self._held, self._late = set[int](), True
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self, after: int, whole: bool) -> None:
        """Stall from the so-manieth message from now on."""
        with self._change:
            self._left, self._whole, self.stalled = after, whole, False

    def heal(self, late: bool) -> None:
        """Let new connections pass. What was held comes late, or never."""
        with self._change:
            self._left, self._whole, self._late = None, False, late
            if late:
                self._held.clear()
            self._change.notify_all()

    def close(self) -> None:
        self._listening.close()
        with self._change:
            self._left = None
            self._held.clear()
            self._change.notify_all()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            for number in range(10**9):
                client, _ = self._listening.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [client, there]
                for source, target in ((client, there), (there, client)):
                    threading.Thread(target=self._pass, args=(number, source, target), daemon=True).start()

    def _pass(self, number: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._hold(number)
                target.sendall(data)
        if number not in self._held:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _hold(self, number: int) -> None:
        """Where this connection stalls, wait until it does not."""
        with self._change:
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    self.stalled = True
                    self._held.add(number)
                if self._left < 0 and self._whole:
                    self._held.add(number)
            self._change.wait_for(lambda: number not in self._held)


@pytest.fixture
def ways() -> Iterator[dict[str, Way]]:
    made = {"database": Way(server().port)}
    yield made
    for way in made.values():
        way.close()


def through(address: str, ways: dict[str, Way]) -> str:
    """The same address with a way in between to each of its servers; what is silent for a second is looked into."""
    address = address.replace(f":{server().port}/", f":{ways['database'].port}/")
    if there := Place(address).milvus:
        port = int(there.rpartition(":")[2])
        if "milvus" not in ways:
            ways["milvus"] = Way(port)
        address = address.replace(there, there.replace(f":{port}", f":{ways['milvus'].port}"))
    return f"{address}&connect_timeout=1"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Milvus gets five seconds for anything: with two, a busy machine made the calls late that were not held."""
    monkeypatch.setattr(milvus, "_PATIENCE", 5.0)
    monkeypatch.setattr(milvus, "_LONG", 5.0)
    monkeypatch.setattr(milvus, "_GREETING", 15.0)
    limited = {"methodConfig": [{"name": [{}], "timeout": "5s"}]}
    monkeypatch.setitem(milvus._CHANNEL, "grpc.service_config", json.dumps(limited))
    monkeypatch.setitem(milvus._CHANNEL, "grpc.min_reconnect_backoff_ms", 2000)


def outcome(engine: ClusterEngine, turn: int) -> str:
    """What a change says of itself; nothing where it is acknowledged."""
    try:
        work(engine, turn)
    except IndexProblem as problem:
        return str(problem)
    return ""


#: Which change, after how many messages, and whether all of the way stalls or one connection.
FEW = [(0, 21, True), (1, 9, False), (3, 25, False)]
EVERY = [(turn, step, bool(step // 2 % 2)) for turn in range(4) for step in range(1, 49, 2)]


@pytest.mark.parametrize("points", [FEW, pytest.param(EVERY, marks=LONG)], ids=["few", "every"])
@pytest.mark.parametrize("new", [new_address, milvus_server.new_address], ids=["pgvector", "milvus"])
@pytest.mark.usefixtures("hasty")
def test_a_change_over_a_network_that_stalls_is_whole_or_nothing(new, points, ways, caplog) -> None:
    address = new()
    engine = ClusterEngine.create(through(address, ways), space="sp-test", dimension=DIMENSION)
    work(engine, 0)
    work(engine, 4)
    stalled = 0
    for number, (kind, step, whole) in enumerate(points):
        turn, way = kind + 4 * (number + 2), list(ways.values())[number % len(ways)]
        before, after = expected(engine, turn)
        caplog.clear()
        # A change asks Milvus a few things, and the database many.
        way.stall(1 + step // 4 if way is ways.get("milvus") else step, whole)
        said = outcome(engine, turn)
        way.heal(late=bool(number % 2))
        stalled += way.stalled
        # The same writer goes on, and finds out what became of a commit that was lost.
        engine.remember(turn=turn)
        logged = " ".join(record.message for record in caplog.records if record.levelno >= logging.WARNING)
        found = contents(engine)
        engine.close()
        check(address, before if said else after, after if said else None).close()
        if "nothing of this call was stored" in said or "lost was not stored" in logged:
            assert found == before
        if "lost was stored" in logged or "stored all the same" in logged:
            assert found == after
        engine = ClusterEngine.open(through(address, ways), write=True)
    engine.close()
    assert stalled >= len(points) // 3


@pytest.mark.parametrize("steps", [[5], pytest.param(range(1, 20), marks=LONG)], ids=["few", "every"])
@pytest.mark.parametrize("new", [new_address, milvus_server.new_address], ids=["pgvector", "milvus"])
@pytest.mark.usefixtures("hasty")
def test_a_search_over_a_network_that_stalls_ends_and_never_finds_less(new, steps, ways) -> None:
    address = new()
    engine = ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)
    work(engine, 0)
    engine.close()
    reader = ClusterEngine.open(through(address, ways))
    searched(reader)
    for whole in (False, True):
        for step in steps:
            for way in ways.values():
                way.stall(step, whole)
                with contextlib.suppress(IndexProblem), reader.snapshot() as view:
                    assert len(view.dense(np.ones(DIMENSION, np.float32), 99).rows) == 6
                    assert len(view.lexical("第二段", 99).rows) == 3
                way.heal(late=False)
    # What stalled stays silent; new connections pass.
    with reader.snapshot() as view:
        assert len(view.dense(np.ones(DIMENSION, np.float32), 99).rows) == 6
    reader.close()


def test_a_long_statement_is_waited_for_and_a_lost_one_is_not(ways) -> None:
    with Place(through(new_address(), ways)).connect() as connection:
        connection.patience = 0.3
        assert connection.execute("SELECT 7 FROM pg_sleep(1.5)").fetchone() == (7,)
        ways["database"].stall(1, whole=False)
        with pytest.raises(Silent, match="not at work"):
            connection.execute("SELECT 7")
        assert connection.closed
    with psycopg.connect(server().address) as other:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'suwen' AND state = 'active'"
        assert other.execute(query).fetchone() == (0,)


def test_a_commit_that_waits_for_a_lost_standby_is_told_of_and_settled_later(caplog) -> None:
    engine = ClusterEngine.create(f"{new_address()}&connect_timeout=1", space="sp-test", dimension=DIMENSION)
    with psycopg.connect(server().address, autocommit=True) as other:
        try:
            other.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            other.execute("SELECT pg_reload_conf()")
            said = outcome(engine, 0)
        finally:
            other.execute("ALTER SYSTEM RESET synchronous_standby_names")
            other.execute("SELECT pg_reload_conf()")
    assert "stored whole or not at all" in said
    engine.remember(turn=1)
    assert "the call whose commit was lost was stored" in caplog.text
    assert len(engine.ids()) == 3 and engine.verify() == []
    engine.close()
