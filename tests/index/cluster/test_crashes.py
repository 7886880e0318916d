"""Writers killed, the server killed, the searcher emptied: nothing acknowledged is lost, nothing else appears."""

from __future__ import annotations

import numpy as np
import pytest
from changes import DIMENSION, Steps, at_step, check, contents, expected, is_after, killed, searched, work
from naive import encoded, unit
from pymilvus import MilvusClient

import milvus_server
from postgres_server import new_address, server
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.cluster.place import Place
from suwen.index.engine import DamagedIndex, IndexProblem


def test_a_killed_writer_leaves_all_of_a_change_or_none(points: int, address: str) -> None:
    engine = ClusterEngine.create(address, space="sp-test", dimension=DIMENSION)
    steps, died = Steps(engine), 0
    for turn in range(4, points + 4):
        before, after = expected(engine, turn)
        engine.close()
        acknowledged = killed(address, turn, steps.of(turn))
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
    steps, said = Steps(engine), []
    for turn in range(4, 4 + max(8, points // 3)):
        before, after = expected(engine, turn)
        acknowledged = False
        with monkeypatch.context() as patch:
            at_step(steps.of(turn), is_after(turn), server().kill, patch)
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
    steps, said = Steps(engine), []
    for turn in range(4, 4 + max(5, points // 3)):
        before, after = expected(engine, turn)
        acknowledged = False
        with monkeypatch.context() as patch:
            at_step(steps.of(turn), is_after(turn), searcher.kill, patch)
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
    client = MilvusClient(uri=Place(address).milvus, dedicated=True)
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


@pytest.fixture(params=[16, pytest.param(220, marks=pytest.mark.long)])
def points(request: pytest.FixtureRequest) -> int:
    """How many crash points are tried."""
    return int(request.param)
