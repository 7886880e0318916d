"""A rebuild: searches go on beside it, and one that is cut off between its two steps leaves an index that answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from naive import SPACE, encoded, unit
from pymilvus import MilvusClient

import milvus_server
from postgres_server import new_address
from suwen.index.cluster import upkeep
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.cluster.place import Place

RNG = np.random.default_rng(3)
DIMENSION, DOCUMENTS = 16, 30


#: The form of milvus-lite that knows aliases is slow.
_WITH_ALIASES = pytest.param("milvus 3.2.2", marks=pytest.mark.long)


@pytest.fixture(params=["pgvector", "milvus 2.5.1", _WITH_ALIASES])
def address(request: pytest.FixtureRequest) -> str:
    name, _, version = request.param.partition(" ")
    return milvus_server.new_address(version) if name == "milvus" else new_address()


@pytest.fixture
def writer(address: str) -> Iterator[ClusterEngine]:
    engine = ClusterEngine.create(address, space=SPACE, dimension=DIMENSION)
    engine.add([encoded(f"d{number}", [f"高血压 {number}"], unit(RNG, 1, DIMENSION)) for number in range(DOCUMENTS)])
    yield engine
    engine.close()


def answer(engine: ClusterEngine) -> list[list[str]]:
    """What both legs find."""
    with engine.snapshot() as view:
        found = view.dense(np.ones(DIMENSION, np.float32), 99), view.lexical("高血压", 99)
        return [[item.passage.id for item in view.fetch(ranking.rows.tolist())] for ranking in found]


def test_searches_go_on_beside_rebuilds_and_find_all(address: str, writer: ClusterEngine) -> None:
    wanted, wrong, asked, over = answer(writer), list[object](), [0, 0], threading.Event()

    def search(number: int) -> None:
        reader = ClusterEngine.open(address)
        try:
            while not over.is_set() or not asked[number]:
                asked[number] += 1
                if (found := answer(reader)) != wanted:
                    wrong.append(found)
        except Exception as problem:
            wrong.append(problem)
        finally:
            reader.close()

    threads = [threading.Thread(target=search, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        writer.rebuild()
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and min(asked) > 0
    assert answer(writer) == wanted and writer.verify() == []


class _CutOff(BaseException):
    """As if the process had ended here."""


def aliased(address: str) -> list[str]:
    """The collections of the index that an alias names to other tools."""
    client, base = MilvusClient(uri=Place(address).milvus, dedicated=True), f"suwen_{Place(address).schema}_"
    names = [name for name in client.list_collections() if name.startswith(base)]
    found = [name for name in names if client.list_aliases(name)["aliases"]]
    client.close()
    return found


def generation(address: str) -> int:
    with Place(address).connect() as connection:
        (found,) = connection.execute("SELECT generation FROM meta").fetchone() or (0,)
        return int(found)


@pytest.mark.parametrize("step", ["filled", "switched"])
def test_one_that_is_cut_off_between_its_steps_leaves_an_index_that_answers(
    step: str, address: str, writer: ClusterEngine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A collection that is filled does not count before the commit; the alias follows, and decides nothing."""
    wanted, before = answer(writer), generation(address)
    reader = ClusterEngine.open(address)
    work = upkeep.rebuild

    def cut_off(*given: Any) -> None:
        if step == "filled":
            work(*given)
        raise _CutOff

    monkeypatch.setattr(upkeep, "rebuild" if step == "filled" else "sweep", cut_off)
    with pytest.raises(_CutOff):
        writer.rebuild()
    monkeypatch.undo()
    writer.close()
    assert generation(address) == before + (step == "switched")
    assert answer(reader) == wanted
    reader.close()
    again = ClusterEngine.open(address, write=True)
    assert answer(again) == wanted and again.verify() == [] and again.healed == ""
    if "3.2.2" in request.node.name:
        assert [name.rpartition("_")[2] for name in aliased(address)] == [str(generation(address))]
    again.close()
