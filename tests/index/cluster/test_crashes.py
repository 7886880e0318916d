"""Writers killed, the server killed, the searcher emptied: nothing acknowledged is lost, nothing else appears."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from naive import encoded, unit
from pymilvus import MilvusClient

import milvus_server
from postgres_server import new_address, server
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.cluster.place import Place
from suwen.index.engine import DamagedIndex, IndexProblem, Reencoded

DIMENSION = 8
Contents = dict[str, tuple[str, str, list[str], bytes]]


def contents(engine: ClusterEngine) -> Contents:
    """Every document: its digest, who encoded it, its texts and the bytes of its vectors."""
    found = {}
    for id_, known in engine.known(engine.ids()).items():
        with engine.snapshot() as view:
            stored = view.document(id_)
        assert stored is not None
        vectors = engine.stored_vectors(id_, known.encoder)
        texts = [item.passage.content for item in stored.passages]
        found[id_] = known.digest, known.encoder, texts, b"".join(vectors[text].tobytes() for text in texts)
    return found


def work(engine: ClusterEngine, turn: int) -> None:
    """One change: which, only the turn says."""
    rng = np.random.default_rng(turn)
    if turn % 4 == 0:
        ids = [f"d{number}" for number in rng.choice(6, 3, replace=False)]
        engine.add([encoded(id_, [f"第{turn}次 {id_}", "第二段"], unit(rng, 2, DIMENSION)) for id_ in ids])
    elif turn % 4 == 1:
        waits = engine.waiting(f"by{turn}", 2)
        made = [Reencoded(one.id, one.version, unit(rng, 2, DIMENSION)) for one in waits]
        engine.reencode(made, f"by{turn}")
    elif turn % 4 == 2:
        engine.delete(engine.ids()[:1])
    else:
        engine.rebuild()


def at_step(number: int, after: bool, strike: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Strike at the so-manieth statement from now on, before it goes out or after it was answered."""
    left = [number]

    def striking(method: Any) -> Any:
        def struck(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            now = left[0] == 0
            if now and not after:
                strike()
            answer = method(*given, **named)
            if now and after:
                strike()
            return answer

        return struck

    for owner, name in ((psycopg.Connection, "execute"), (psycopg.Cursor, "execute"), (psycopg.Cursor, "copy")):
        patch.setattr(owner, name, striking(getattr(owner, name)))
    for name in ("insert", "delete", "create_collection", "drop_collection", "alter_alias"):
        patch.setattr(MilvusClient, name, striking(getattr(MilvusClient, name)))


def check(address: str, before: Contents, after: Contents | None) -> ClusterEngine:
    """Open the index as its next writer would: it holds one of these two states, whole, and finds all of it."""
    engine = ClusterEngine.open(address, write=True)
    found = contents(engine)
    assert found in ([before, after] if after is not None else [before])
    assert engine.verify() == []
    wanted = sorted(f"{id_}#{part}" for id_, (_, _, texts, _) in found.items() for part in range(len(texts)))
    with engine.snapshot() as view:
        for ranking in (view.dense(np.ones(DIMENSION, np.float32), 99), view.lexical("第二段 次 题", 99)):
            assert sorted(item.passage.id for item in view.fetch(ranking.rows.tolist())) == wanted
    return engine


def searched(engine: ClusterEngine) -> None:
    """Ask both ways."""
    with engine.snapshot() as view:
        view.dense(np.ones(DIMENSION, np.float32), 99)
        view.lexical("第二段", 99)


def die(address: str, turn: int, step: int) -> None:
    """Make a change, and end at a step of it."""
    engine = ClusterEngine.open(address, write=True)
    at_step(step, bool(turn % 2), lambda: os.kill(os.getpid(), signal.SIGKILL), pytest.MonkeyPatch())
    work(engine, turn)


def killed(address: str, turn: int, step: int) -> bool:
    """Let another process make a change and kill it at a step; whether it acknowledged the change first."""
    if "milvus=" in address:
        # gRPC does not live through a fork: a channel made in the child of one that has others waits for ever.
        command = [sys.executable, __file__, address, str(turn), str(step)]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, stdout=subprocess.PIPE, env=found, check=False).stdout.endswith(b"!")
    told, tell = os.pipe()
    if (child := os.fork()) == 0:
        try:
            die(address, turn, step)
            os.write(tell, b"!")
        finally:
            os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    acknowledged = os.read(told, 1) == b"!"
    os.close(told)
    return acknowledged


def expected(engine: ClusterEngine, turn: int) -> tuple[Contents, Contents]:
    """What the index holds, and what it will hold after a change: tried out in a copy of it."""
    before = contents(engine)
    # In a copy inside PostgreSQL, whatever searches the index itself.
    with ClusterEngineCopy(engine) as copy:
        work(copy, turn)
        return before, contents(copy)


class ClusterEngineCopy:
    """A second index with the same documents, in the same order of arrival."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine

    def __enter__(self) -> ClusterEngine:
        self._copy = ClusterEngine.create(new_address(), space=self._engine.space, dimension=DIMENSION)
        found = contents(self._engine)
        with self._engine.snapshot() as view:
            stored = [document for id_ in found if (document := view.document(id_)) is not None]
        for one in sorted(stored, key=lambda document: document.passages[0].row):
            digest, encoder, _, vectors = found[one.id]
            made = np.frombuffer(vectors, dtype=np.float32).reshape(-1, DIMENSION)
            again = encoded(one.id, [item.passage.text for item in one.passages], made)
            self._copy.add([again._replace(digest=digest, encoder=encoder)])
        return self._copy

    def __exit__(self, *_: object) -> None:
        self._copy.close()


def test_a_killed_writer_leaves_all_of_a_change_or_none(points: int, address: str) -> None:
    engine = ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)
    work(engine, 0)
    died = 0
    for turn in range(1, points + 1):
        before, after = expected(engine, turn)
        engine.close()
        acknowledged = killed(address, turn, step=1 + (turn * 7) % 23)
        died += not acknowledged
        engine = check(address, after if acknowledged else before, None if acknowledged else after)
        if turn % 4 == 2:
            engine.add(
                [encoded(f"d{turn % 6}", ["补上 次", "第二段"], unit(np.random.default_rng(turn), 2, DIMENSION))]
            )
    engine.close()
    assert died >= points // 2


def test_a_killed_server_loses_nothing_acknowledged(points: int, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)
    work(engine, 0)
    said = []
    for turn in range(1, max(7, points // 4)):
        before, after = expected(engine, turn)
        acknowledged = False
        with monkeypatch.context() as patch:
            at_step(2 + (turn * 5) % 17, bool(turn % 2), server().kill, patch)
            try:
                work(engine, turn)
                acknowledged = True
            except IndexProblem as problem:
                said.append(str(problem))
        server().start()
        # The same writer goes on: it takes its lock again, and nobody has written since.
        engine.remember(turn=turn)
        assert engine.settings()["turn"] == turn
        engine.close()
        engine = check(address, after if acknowledged else before, None if acknowledged else after)
    engine.close()
    assert len(said) >= 3 and not any(server().password in problem for problem in said)


def test_a_killed_milvus_loses_nothing_acknowledged(points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher, address = milvus_server.server(), milvus_server.new_address()
    engine = ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)
    work(engine, 0)
    said = []
    for turn in range(1, max(6, points // 4)):
        before, after = expected(engine, turn)
        acknowledged = False
        with monkeypatch.context() as patch:
            at_step(2 + (turn * 5) % 17, bool(turn % 2), searcher.kill, patch)
            try:
                work(engine, turn)
                acknowledged = True
            except IndexProblem as problem:
                said.append(str(problem))
        searcher.kill()
        reader = ClusterEngine.open(address)
        with pytest.raises(IndexProblem, match="Milvus at"):
            searched(reader)
        reader.close()
        searcher.start()
        engine.close()
        engine = check(address, after if acknowledged else before, None if acknowledged else after)
    engine.close()
    assert said


@pytest.mark.parametrize("how", ["rows", "collection", "cuts"])
def test_an_emptied_milvus_is_filled_again_without_an_encoder(how: str) -> None:
    address = milvus_server.new_address()
    engine = ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)
    work(engine, 0)
    work(engine, 4)
    before = contents(engine)
    engine.close()
    client = MilvusClient(uri=Place(address).milvus)
    (name,) = [one for one in client.list_collections() if one.startswith(f"suwen_{Place(address).schema}_")]
    if how == "rows":
        client.delete(name, filter="row > 8")
    elif how == "collection":
        client.drop_collection(name)
    else:
        with Place(address).connect() as connection:
            connection.execute(b"DELETE FROM cuts_" + name.rpartition("_")[2].encode())
    client.close()
    reader = ClusterEngine.open(address)
    with pytest.raises(DamagedIndex, match="suwen rebuild"):
        searched(reader)
    if how != "cuts":
        with reader.snapshot() as view, pytest.raises(DamagedIndex, match="suwen rebuild"):
            view.dense(np.ones(DIMENSION, np.float32), 99)
    assert reader.verify() != []
    reader.close()
    check(address, before, None).close()


@pytest.mark.parametrize("lost", ["DELETE FROM near_{0}", "DELETE FROM words_{0}", "DROP TABLE near_{0}, words_{0}"])
def test_an_emptied_searcher_is_filled_again_without_an_encoder(lost: str) -> None:
    address = new_address()
    engine = ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)
    work(engine, 0)
    work(engine, 4)
    before = contents(engine)
    engine.close()
    with Place(address).connect() as connection:
        (generation,) = connection.execute("SELECT generation FROM meta").fetchone() or (0,)
        connection.execute(lost.format(generation).encode())
    reader = ClusterEngine.open(address)
    with pytest.raises(DamagedIndex, match="suwen rebuild"):
        searched(reader)
    assert reader.verify() != []
    reader.close()
    check(address, before, None).close()


@pytest.fixture(params=["pgvector", pytest.param("milvus", marks=pytest.mark.long)])
def address(request: pytest.FixtureRequest) -> str:
    """An address without an index, with either searcher."""
    return new_address() if request.param == "pgvector" else milvus_server.new_address()


@pytest.fixture(params=[16, pytest.param(160, marks=pytest.mark.long)])
def points(request: pytest.FixtureRequest) -> int:
    """How many crash points are tried."""
    return int(request.param)


if __name__ == "__main__":
    die(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    os.write(1, b"!")
    os._exit(0)
