"""A primary that dies under load, a full disk, a network that breaks in a commit, jumping clocks, writers that meet."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from naive import encoded, unit, waiting_document

import milvus_server
from postgres_server import new_address, server, tool
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.cluster.milvus import Milvus
from suwen.index.cluster.place import Place, Unreachable
from suwen.index.engine import DiskFull, IndexLocked, IndexProblem

RNG = np.random.default_rng(7)
DIMENSION = 16
LONG = pytest.mark.long


def one(id_: str):
    return encoded(id_, [f"{id_} 高血压", "第二段"], unit(RNG, 2, DIMENSION))


def made(address: str) -> ClusterEngine:
    return ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)


@contextlib.contextmanager
def pair() -> Iterator[tuple]:
    """A primary whose commits wait for its standby, and the standby."""
    server()
    with contextlib.ExitStack() as closing:
        primary = tool().Server()
        closing.callback(primary.close)
        standby = tool().Server(primary=primary)
        closing.callback(standby.close)
        with Place(primary.address).connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            while not connection.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                time.sleep(0.1)
        yield primary, standby


@pytest.mark.parametrize("searcher", ["pgvector", pytest.param("milvus", marks=LONG)])
def test_a_promoted_standby_has_every_acknowledged_write_and_the_old_writer_is_fenced(searcher: str) -> None:
    with pair() as (primary, standby):
        options = f"&milvus={milvus_server.server().address}" if searcher == "milvus" else ""
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        both = f"postgresql://suwen:{primary.password}@{hosts}/postgres?target_session_attrs=read-write{options}"
        old, acknowledged = made(both), []

        def load() -> None:
            with contextlib.suppress(IndexProblem):
                for number in range(10_000):
                    old.add([one(f"d{number}")])
                    acknowledged.append(f"d{number}")

        loading = threading.Thread(target=load)
        loading.start()
        while len(acknowledged) < 20 and loading.is_alive():
            time.sleep(0.05)
        primary.kill()
        loading.join()
        standby.promote()
        # The old writer had one call under way, which may be there or not: nothing says that it was stored.
        there = f"{standby.address}?{options.lstrip('&')}"
        new = ClusterEngine.open(there, write=True)
        stored = new.ids()
        assert set(acknowledged) <= set(stored) and len(stored) <= len(acknowledged) + 1
        assert new.verify() == [] and len(acknowledged) >= 20
        new.add([one("new")])
        with pytest.raises(IndexLocked):
            old.add([one("late")])
        new.close()
        with pytest.raises(IndexLocked, match="shut out"):
            old.add([one("late")])
        assert sorted(old.ids()) == sorted([*stored, "new"])
        old.close()


def fill(engine: ClusterEngine, stored: list[str]) -> None:
    for number in range(2000):
        engine.add([one(f"d{number}-{part}") for part in range(40)])
        stored += [f"d{number}-{part}" for part in range(40)]


def test_a_full_disk_of_the_database_loses_nothing(tmp_path) -> None:
    """A tablespace on a small disk of its own. Where nothing may be mounted there is none to fill."""
    root, name = tool().ROOT, f"disk{secrets.token_hex(4)}"
    server()
    place = root / "clusters" / name
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)], capture_output=True).returncode:
        place.rmdir()
        return
    address = new_address()
    try:
        shutil.chown(place, 65534, 65534)
        with Place(server().address).connect() as connection:
            connection.execute(f"CREATE TABLESPACE {name} LOCATION '/clusters/{name}'".encode())
            connection.execute(f"ALTER ROLE suwen SET default_tablespace = {name}".encode())
        engine = made(address)
        stored: list[str] = []
        with pytest.raises(DiskFull, match="free space on the database server"):
            fill(engine, stored)
        assert stored and engine.ids() == sorted(stored)
        # Once there is space again the same writer goes on.
        subprocess.run(["mount", "-o", "remount,size=40m", str(place)], check=True)
        assert engine.delete(stored[:5]) == 5
        engine.close()
        engine = ClusterEngine.open(address)
        assert engine.verify() == [] and engine.ids() == sorted(stored[5:])
        engine.close()
    finally:
        with Place(server().address).connect() as connection:
            connection.execute("ALTER ROLE suwen RESET default_tablespace")
            connection.execute(f'DROP SCHEMA IF EXISTS "{Place(address).schema}" CASCADE'.encode())
            connection.execute(f"DROP TABLESPACE IF EXISTS {name}".encode())
        subprocess.run(["umount", str(place)], check=True)
        place.rmdir()


class Proxy:
    """A way to the database that can be made to break at a commit: before it gets there, or before the answer does."""

    def __init__(self, port: int) -> None:
        self._to, self.breaking = port, ""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", self._to))
            state = {"silent": False}
            for source, target, up in ((client, there, True), (there, client, False)):
                threading.Thread(target=self._pass, args=(source, target, up, state), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, up: bool, state: dict[str, bool]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                commits = up and b"COMMIT\0" in data and self.breaking
                if commits == "before":
                    break
                state["silent"] = state["silent"] or bool(commits)
                if not up and state["silent"]:
                    # The commit is done over there; its answer is lost with the connection.
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


@pytest.mark.parametrize("breaking", ["before", "after"])
@pytest.mark.parametrize("new", [new_address, milvus_server.new_address], ids=["pgvector", "milvus"])
def test_a_network_that_breaks_in_a_commit(breaking: str, new: Callable[[], str]) -> None:
    address = new()
    proxy = Proxy(server().port)
    engine = made(address.replace(f":{server().port}/", f":{proxy.port}/"))
    engine.add([one("first")])
    proxy.breaking = breaking
    if breaking == "before":
        with pytest.raises(Unreachable, match="nothing of this call was stored"):
            engine.add([one("second")])
        assert engine.ids() == ["first"]
    else:
        # The answer is lost, and looked up over another connection.
        engine.add([one("second")])
        assert engine.ids() == ["first", "second"]
    proxy.breaking = ""
    # The same writer goes on: doing it again is harmless.
    engine.add([one("second"), one("third")])
    assert engine.ids() == ["first", "second", "third"] and engine.stats().passages == 6
    engine.close()
    proxy.close()
    again = ClusterEngine.open(address, write=True)
    assert again.verify() == []
    with again.snapshot() as view:
        assert len(view.dense(unit(RNG, 1, DIMENSION)[0], 10).rows) == 6
    again.close()


def test_clocks_that_jump_change_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decided by a clock: who came first, who writes, what is swept."""
    address = new_address()
    engine = made(address)
    for number, jumped in enumerate((1e9, 2e9, 5e8, 3e9)):
        monkeypatch.setattr(time, "time", lambda jumped=jumped: jumped)
        engine.add([waiting_document(f"w{number}", arrived=time.time())])
    assert [waits.id for waits in engine.waiting("document", 9)] == ["w0", "w1", "w2", "w3"]
    assert engine.delete(["w1"]) == 1
    with pytest.raises(IndexLocked):
        ClusterEngine.open(address, write=True)
    assert engine.verify() == []
    engine.close()


def test_a_writer_that_stalls_before_its_commit_leaves_rows_that_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Milvus has its rows, another has begun to write, and the commit is refused: the rows are never found."""
    address = milvus_server.new_address()
    stalled, insert, others = made(address), Milvus.insert, []

    def stalling(self: Milvus, *given) -> None:
        insert(self, *given)
        if not others:
            others.append(None)
            with Place(address).connect() as connection:
                locks = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
                connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({locks}) AS held".encode())
            others[0] = ClusterEngine.open(address, write=True)
            others[0].add([one("new")])

    monkeypatch.setattr(Milvus, "insert", stalling)
    with pytest.raises(IndexLocked):
        stalled.add([one("late")])
    (other,) = others
    with other.snapshot() as view:
        found = view.dense(unit(RNG, 1, DIMENSION)[0], 10), view.lexical("第二段", 10)
        assert [{item.passage.document_id for item in view.fetch(r.rows.tolist())} for r in found] == [{"new"}] * 2
    other.close()
    stalled.close()
    again = ClusterEngine.open(address, write=True)
    assert again.ids() == ["new"] and again.verify() == []
    again.close()


def test_a_reader_keeps_rows_that_were_deleted_after_its_moment() -> None:
    address = milvus_server.new_address()
    writer = made(address)
    writer.add([one("a"), one("b")])
    reader = ClusterEngine.open(address)
    query = unit(RNG, 1, DIMENSION)[0]
    with reader.snapshot() as view:
        before = view.dense(query, 10).rows.tolist()
        writer.add([one("a")])
        writer.delete(["b"])
        assert view.dense(query, 10).rows.tolist() == before and len(view.lexical("高血压", 10).rows) == 2
    with reader.snapshot() as view:
        assert len(view.dense(query, 10).rows) == 2
    # What could not be swept while it was looked at is swept by the next write.
    writer.add([one("c")])
    assert writer.verify() == []
    with Place(address).connect() as connection:
        connection.execute(f'SET search_path = "{Place(address).schema}"'.encode())
        writer.delete(["c"])
        assert connection.execute("SELECT count(*) FROM doomed").fetchone() == (0,)
    reader.close()
    writer.close()
