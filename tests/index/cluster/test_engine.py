"""The cluster engine where it differs from others: addresses, writers that meet, the graph, and tantivy's ranking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest
from naive import SPACE, TEXTS, encoded, some_documents, unit

import milvus_server
from postgres_server import new_address, server
from suwen.index.address import name_of, whole
from suwen.index.cluster import pgvector
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.cluster.place import Place, Unreachable
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import IndexLocked, IndexProblem, NotAnIndex
from suwen.index.opening import create_engine, index_exists, open_engine
from suwen.index.recall import measure_recall

RNG = np.random.default_rng(5)


@pytest.fixture
def address() -> str:
    return new_address()


@pytest.fixture
def engine(address: str) -> Iterator[ClusterEngine]:
    made = create_engine(address, space=SPACE, dimension=16)
    assert isinstance(made, ClusterEngine)
    yield made
    made.close()


def rows(engine: ClusterEngine, text: str, k: int = 10) -> list[str]:
    with engine.snapshot() as view:
        return [item.passage.id for item in view.fetch(view.lexical(text, k).rows.tolist())]


def test_an_address_that_leads_nowhere_says_why(address: str) -> None:
    wrong = {
        address.replace(server().password, "nonsense"): "does not let this user in",
        address.replace(str(server().port), "1"): "cannot be reached",
        address.replace("/postgres?", "/nobody?"): "Make the database first",
    }
    for bad, message in wrong.items():
        for call in (open_engine, index_exists):
            with pytest.raises(Unreachable, match=message) as told:
                call(bad)
            assert server().password not in str(told.value) and "nonsense" not in str(told.value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("postgresql://h/db?index=A-b", "no name for an index"),
        ("postgresql://h/db?colour=red", "no address of a database"),
        ("mysql://h/db", "no engine for mysql:// addresses"),
        ("postgresql://h/db?milvus=ftp://m:1", "no address of a Milvus"),
        ("postgresql://h/db?milvus=http://me:word@m:19530", "set MILVUS_TOKEN"),
    ],
)
def test_an_address_that_is_none(bad: str, message: str) -> None:
    with pytest.raises(IndexProblem, match=message):
        open_engine(bad)


def test_a_place_without_an_index_and_one_with(address: str) -> None:
    assert not index_exists(address)
    with pytest.raises(NotAnIndex, match="holds no index"):
        open_engine(address)
    create_engine(address, space=SPACE, dimension=16).close()
    assert index_exists(address)
    with pytest.raises(IndexProblem, match="an index already"):
        create_engine(address, space=SPACE, dimension=16)


def test_a_schema_with_other_tables_is_left_alone(address: str) -> None:
    place = Place(address)
    with place.connect() as connection:
        connection.execute(f"CREATE SCHEMA {place.schema}")
        connection.execute("CREATE TABLE documents(mine text)")
    with pytest.raises(IndexProblem, match="holds other tables"):
        create_engine(address, space=SPACE, dimension=16)
    with place.connect() as connection:
        assert connection.execute("SELECT count(*) FROM documents").fetchone() == (0,)


def test_tables_of_another_version_are_refused(address: str, engine: ClusterEngine) -> None:
    with Place(address).connect() as connection:
        connection.execute("UPDATE meta SET format = 99")
    with pytest.raises(NotAnIndex, match="version 99"):
        open_engine(address)


def test_one_writer_at_a_time(address: str, engine: ClusterEngine) -> None:
    with pytest.raises(IndexLocked, match="by another process"):
        open_engine(address, write=True)
    engine.close()
    open_engine(address, write=True).close()


def test_a_writer_that_was_cut_off_is_shut_out(address: str, engine: ClusterEngine) -> None:
    """As one that comes back from an old primary: its lock is gone, and another has begun to write."""
    one = encoded("late", ["一"], unit(RNG, 1, 16))
    with Place(address).connect() as connection:
        query = """SELECT pg_terminate_backend(pid) FROM pg_locks
                   WHERE locktype = 'advisory' AND pid <> pg_backend_pid() AND
                         database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
        connection.execute(query)
    with open_engine_closing(address) as other:
        other.add([encoded("new", ["二"], unit(RNG, 1, 16))])
        with pytest.raises(IndexLocked, match="another process"):
            engine.add([one])
    with pytest.raises(IndexLocked, match="shut out"):
        engine.add([one])
    assert engine.ids() == ["new"]


def open_engine_closing(address: str):  # a writer for a block
    from contextlib import closing

    return closing(open_engine(address, write=True))


def test_what_postgres_cannot_store_is_refused_whole(engine: ClusterEngine) -> None:
    good = encoded("good", ["好"], unit(RNG, 1, 16))
    for bad in (encoded("bad", ["a\0b"], unit(RNG, 1, 16)), encoded("x" * 3000, ["长"], unit(RNG, 1, 16))):
        with pytest.raises(IndexProblem, match="PostgreSQL stores neither"):
            engine.add([good, bad])
    assert engine.ids() == []
    assert engine.known(["\0"]) == {} and engine.delete(["\ud800"]) == 0


def test_a_backup_is_the_databases_own_business(address: str, engine: ClusterEngine, tmp_path: Path) -> None:
    with pytest.raises(IndexProblem, match=f"pg_dump -n {Place(address).schema}"):
        engine.backup(tmp_path)
    assert not engine.abilities.backup


def test_the_graph_finds_what_exact_search_finds(engine: ClusterEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgvector, "EXACT_LIMIT", 40)
    for batch in some_documents(200, 16):
        engine.add(batch)
    engine.delete([f"d{number}" for number in range(0, 200, 5)])
    with Place(f"{server().address}?index={engine.place.schema}").connect() as connection:
        assert connection.execute("SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'near_%graph%'").fetchone() != (
            0,
        )
    assert measure_recall(engine, 30).recall > 0.95
    with engine.snapshot() as view:
        for where in ({"lang": "zh"}, {"year": {"gte": 2150}}, {"year": 2001}):
            query = unit(RNG, 1, 16)[0]
            found = view.fetch(view.dense(query, 10, where).rows.tolist())
            assert len(found) == (2 if "lang" not in where and where["year"] == 2001 else 10)
            assert all(item.metadata["lang"] == "zh" or "year" in where for item in found)
        # More than the graph gives at once: the rest is found by comparing all.
        assert len(view.dense(query, 1000).rows) == 320
    assert engine.compact() and not engine.compact()
    assert engine.verify() == [] and measure_recall(engine, 30).recall > 0.95


def test_words_rank_as_tantivy_ranks_them(engine: ClusterEngine, tmp_path: Path) -> None:
    embedded = EmbeddedEngine.create(tmp_path / "index", space=SPACE, dimension=16)
    parts = [*TEXTS, "头痛 fever HbA1c 7.5%", "阿司匹林肠溶片每日一次", "covid-19 vaccine β-blocker"]
    for number in range(60):
        # Long ones too: tantivy rounds lengths past 40.
        text = "。".join(RNG.choice(parts, int(RNG.integers(1, 40))))
        for one in (engine, embedded):
            one.add([encoded(f"d{number}", [text], np.ones((1, 16)))])
    for text in ("高血压患者吃阿司匹林", "stroke within hours", "covid-19", "双脚 检查 结石", "nothing"):
        with engine.snapshot() as ours, embedded.snapshot() as theirs:
            one, other = ours.lexical(text, 20), theirs.lexical(text, 20)
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4, atol=1e-4)
        assert one.rows.tolist() == other.rows.tolist()
    embedded.close()


def test_a_rebuild_waits_for_no_reader(address: str, engine: ClusterEngine) -> None:
    engine.add([encoded("one", ["高血压"], unit(RNG, 1, 16))])
    reader = ClusterEngine.open(address)
    with reader.snapshot() as view:
        engine.rebuild()
        engine.delete(["one"])
        assert len(view.lexical("高血压", 5).rows) == len(view.dense(np.ones(16, np.float32), 5).rows) == 1
    assert rows(reader, "高血压") == []
    reader.close()
    engine.rebuild()
    with Place(address).connect() as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM words_2")


def test_an_address_keeps_its_slashes_as_a_path() -> None:
    typed = "postgresql://suwen@db/clinic?milvus=https://milvus:19530&index=one"
    assert whole(Path(typed)) == typed and name_of(Path(typed)) == "one"
    assert Place(typed).milvus == "https://milvus:19530"
    assert Place("postgresql://db/clinic?milvus=milvus:19530").milvus == "http://milvus:19530"


def test_a_rebuild_moves_an_index_to_the_other_searcher(address: str, engine: ClusterEngine) -> None:
    for batch in some_documents(6, 16):
        engine.add(batch)
    engine.delete(["d3"])
    wanted = rows(engine, TEXTS[0])
    engine.close()
    outside = f"{address}&milvus={milvus_server.server().address}"
    for write in (False, True):
        with pytest.raises(IndexProblem, match=r"searched by pgvector: leave .* out of its address, or move it"):
            open_engine(outside, write=write)
    for there in (outside, address):
        moved = open_engine(there, write=True, repair=False)
        moved.rebuild()
        assert isinstance(moved, ClusterEngine) and rows(moved, TEXTS[0]) == wanted and moved.verify() == []
        moved.close()
    with pytest.raises(IndexProblem, match="searched by pgvector"):
        open_engine(outside)


def test_a_milvus_that_is_not_there_refuses_writes_and_stores_nothing(address: str) -> None:
    lost = milvus_server.tool().Server() if milvus_server.server() else None
    engine = create_engine(f"{address}&milvus={lost.address}", space=SPACE, dimension=16)
    engine.add([encoded("a", ["一"], unit(RNG, 1, 16)), encoded("b", ["二"], unit(RNG, 1, 16))])
    lost.kill()
    with pytest.raises(Unreachable, match=r"Milvus at .* What is stored is safe"):
        engine.add([encoded("c", ["三"], unit(RNG, 1, 16))])
    assert engine.delete(["a"]) == 1 and engine.ids() == ["b"]
    with engine.snapshot() as view, pytest.raises(Unreachable, match="Milvus at"):
        view.lexical("二", 3)
    lost.start()
    engine.add([encoded("c", ["三"], unit(RNG, 1, 16))])
    assert engine.ids() == ["b", "c"] and engine.verify() == []
    engine.close()
    lost.close()
