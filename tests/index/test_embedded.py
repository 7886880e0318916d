"""The embedded engine's own promises: what it takes in, what it refuses, and what a snapshot holds still."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from naive import encoded, unit

from suwen.index import snapshot as snapshots
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import DamagedIndex, IndexLocked, IndexProblem, Known, NotAnIndex

Make = Callable[..., EmbeddedEngine]
RNG = np.random.default_rng(7)


def ids_of(engine: EmbeddedEngine, *, text: str | None = None, k: int = 1000) -> list[str]:
    with engine.snapshot() as view:
        ranking = view.lexical(text, k) if text else view.dense(np.ones(engine.dimension, np.float32), k)
        return [item.passage.id for item in view.fetch(ranking.rows.tolist())]


def test_an_upsert_replaces_the_whole_document(made: Make) -> None:
    engine = made(documents=4)
    engine.add([encoded("d1", ["改写后的唯一一段 zebra"], unit(RNG, 1, 16), {"year": 1999})])
    assert sorted(ids_of(engine)) == ["d0#0", "d0#1", "d1#0", "d2#0", "d2#1", "d3#0", "d3#1"]
    assert ids_of(engine, text="zebra") == ["d1#0"]
    assert "d1#1" not in ids_of(engine, text="第二段 number1")
    assert engine.stats().documents == 4


def test_fetch_gives_back_what_was_stored(made: Make) -> None:
    engine = made(documents=0)
    metadata = {"year": 2021, "科室": ["心内科", "急诊"], "checked": True, "score": 1.5}
    engine.add([encoded("文档/1 #x", ["第一段。", "second part"], unit(RNG, 2, 16), metadata, title="标题")])
    with engine.snapshot() as view:
        first, second = view.fetch(sorted(view.dense(np.ones(16, np.float32), 2).rows.tolist()))
    assert first.passage == ("文档/1 #x", 0, "第一段。", 0, 4, "标题")
    assert second.passage == ("文档/1 #x", 1, "second part", 5, 16, "标题")
    assert first.metadata == metadata
    assert first.encoder == "static"


def test_delete_counts_only_what_was_there(made: Make) -> None:
    engine = made(documents=3)
    assert engine.delete(["d0", "nobody", "d2"]) == 2
    assert engine.delete(["d0"]) == 0
    assert sorted(ids_of(engine)) == ["d1#0", "d1#1"]
    assert engine.stats().deleted == 4


def test_digests_and_ids_by_origin(made: Make) -> None:
    engine = made(documents=2)
    engine.add([encoded("mirror", ["一"], unit(RNG, 1, 16))._replace(origin="index", digest="abc")])
    known = engine.known(["mirror", "d0", "nobody"])
    assert known == {"mirror": Known("abc", "static"), "d0": Known("digest-d0", "static")}
    assert engine.ids(origin="index") == ["mirror"]
    assert engine.ids() == ["d0", "d1", "mirror"]
    assert engine.ids("d0", 1) == ["d1"]


def test_stored_vectors_are_those_of_one_encoder(made: Make) -> None:
    engine = made(documents=1)
    vectors = unit(RNG, 2, 16)
    engine.add([encoded("two", ["甲", "乙"], vectors, title="题")])
    found = engine.stored_vectors("two", "static")
    assert set(found) == {"题\n甲", "题\n乙"}
    np.testing.assert_allclose(found["题\n乙"], vectors[1], atol=1e-3)
    assert engine.stored_vectors("two", "document") == {}


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.full((1, 16), np.nan, np.float32), "NaN"),
        (np.full((1, 16), np.inf, np.float32), "NaN"),
        (np.full((1, 16), 1e6, np.float32), "too large"),
        (np.ones((1, 15), np.float32), r"\(1, 16\), not \(1, 15\)"),
        (np.ones((2, 16), np.float32), r"\(1, 16\), not \(2, 16\)"),
    ],
)
def test_bad_vectors_are_refused_and_nothing_is_stored(made: Make, vectors: np.ndarray, message: str) -> None:
    engine = made(documents=1)
    good = encoded("good", ["好"], unit(RNG, 1, 16))
    with pytest.raises(IndexProblem, match=message):
        engine.add([good, encoded("bad", ["坏"], np.zeros((1, 16)))._replace(vectors=vectors)])
    assert engine.stats().documents == 1


def test_bad_ids_are_refused(made: Make) -> None:
    engine = made(documents=0)
    one = encoded("same", ["一"], unit(RNG, 1, 16))
    with pytest.raises(IndexProblem, match="twice in one call"):
        engine.add([one, one])
    with pytest.raises(IndexProblem, match="empty id"):
        engine.add([encoded("", ["一"], unit(RNG, 1, 16))])
    assert engine.stats().documents == 0


@pytest.mark.parametrize("metadata", [{"n": 10**30}, {"n": float("nan")}, {"n": [1, float("inf")]}, {"n": -(10**19)}])
def test_numbers_sqlite_cannot_hold_do_not_break_an_add(made: Make, metadata: dict[str, float]) -> None:
    engine = made(documents=1)
    engine.add([encoded("odd", ["数字"], unit(RNG, 1, 16), metadata)])
    assert "odd#0" in ids_of(engine)
    with engine.snapshot() as view:
        rows = view.dense(np.ones(16, np.float32), 9, {"year": 2000}).rows
        assert len(rows) == 2


def test_a_reader_may_not_write(made: Make, tmp_path: Path) -> None:
    made(documents=1).close()
    reader = EmbeddedEngine.open(tmp_path / "index")
    calls: list[Callable[[], object]] = [
        lambda: reader.add([encoded("x", ["一"], unit(RNG, 1, 16))]),
        lambda: reader.delete(["d0"]),
        lambda: reader.remember(size=1),
        reader.rebuild,
    ]
    for call in calls:
        with pytest.raises(IndexProblem, match="write=True"):
            call()
    assert sorted(ids_of(reader)) == ["d0#0", "d0#1"]
    reader.close()


def test_a_second_writer_is_told_who_writes(made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr("suwen.index.embedded.FileLock.acquire", _impatient())
    engine = made(documents=1)
    with pytest.raises(IndexLocked, match=f"process {os.getpid()}"):
        EmbeddedEngine.open(tmp_path / "index", write=True)
    engine.close()
    EmbeddedEngine.open(tmp_path / "index", write=True).close()


def _impatient() -> Callable[..., None]:
    from suwen.durable import FileLock

    acquire = FileLock.acquire
    return lambda self, wait=0.0: acquire(self)


def test_a_closed_engine_answers_nothing(made: Make, tmp_path: Path) -> None:
    engine = made(documents=1)
    engine.close()
    engine.close()
    with pytest.raises(IndexProblem, match="closed"):
        ids_of(engine)
    with pytest.raises(IndexProblem):
        engine.add([encoded("x", ["一"], unit(RNG, 1, 16))])


def test_a_folder_that_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(NotAnIndex, match="suwen index"):
        EmbeddedEngine.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "one.txt").write_text("text")
    with pytest.raises(NotAnIndex):
        EmbeddedEngine.open(tmp_path / "papers", write=True)
    with pytest.raises(IndexProblem, match=r"one\.txt"):
        EmbeddedEngine.create(tmp_path / "papers", space="sp", dimension=4)
    assert [path.name for path in (tmp_path / "papers").iterdir()] == ["one.txt"]


def test_a_file_in_the_way_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(IndexProblem, match="folder"):
        EmbeddedEngine.create(tmp_path / "file", space="sp", dimension=4)
    with pytest.raises(NotAnIndex):
        EmbeddedEngine.open(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "text"


def test_creating_twice_is_refused(made: Make, tmp_path: Path) -> None:
    made(documents=1)
    with pytest.raises(IndexProblem, match="already"):
        EmbeddedEngine.create(tmp_path / "index", space="sp", dimension=4)


def test_a_newer_format_is_refused(made: Make, tmp_path: Path) -> None:
    made(documents=1).close()
    with sqlite3.connect(tmp_path / "index" / "truth.db") as truth:
        truth.execute("UPDATE meta SET value = 99 WHERE key = 'format'")
    truth.close()
    with pytest.raises(NotAnIndex, match=r"99, newer .* upgrade"):
        EmbeddedEngine.open(tmp_path / "index")


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\x00" + bytes(4080)])
def test_garbage_for_a_truth_is_refused(made: Make, tmp_path: Path, content: bytes) -> None:
    made(documents=1).close()
    (tmp_path / "index" / "truth.db").write_bytes(content)
    with pytest.raises(DamagedIndex, match="restore a backup"):
        EmbeddedEngine.open(tmp_path / "index", write=True)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truth_that_is_cut_off_is_an_index_problem(made: Make, tmp_path: Path, share: float) -> None:
    made(documents=20).close()
    file = tmp_path / "index" / "truth.db"
    size = file.stat().st_size // 8192
    with file.open("rb+") as stream:
        stream.truncate(max(1, int(size * share)) * 8192)
    try:
        engine = EmbeddedEngine.open(tmp_path / "index")
    except IndexProblem as problem:
        said = [str(problem)]
    else:
        said = engine.verify()
        engine.close()
    assert any("restore a backup" in line for line in said)


def test_a_snapshot_holds_still(made: Make) -> None:
    engine = made(documents=6)
    looked, changed = threading.Event(), threading.Event()
    seen: list[list[str]] = []

    def look() -> None:
        with engine.snapshot() as view:
            looked.set()
            changed.wait(20)
            for ranking in (view.dense(np.ones(16, np.float32), 99), view.lexical("编号", 99)):
                seen.append(sorted(item.passage.id for item in view.fetch(ranking.rows.tolist())))

    thread = threading.Thread(target=look)
    thread.start()
    looked.wait(20)
    engine.delete(["d0"])
    engine.add([encoded("late", ["编号 late"], unit(RNG, 1, 16))])
    now = ids_of(engine)
    changed.set()
    thread.join()
    assert seen[0] == sorted(f"d{number}#{part}" for number in range(6) for part in (0, 1))
    assert seen[1] == [f"d{number}#0" for number in range(6)]
    assert "late#0" in now and "d0#0" not in now


def test_a_snapshot_outlives_a_rebuild(made: Make) -> None:
    engine = made(documents=6)
    looked, changed = threading.Event(), threading.Event()
    seen: list[object] = []

    def look() -> None:
        try:
            with engine.snapshot() as view:
                view.dense(np.ones(16, np.float32), 99)
                looked.set()
                changed.wait(20)
                seen.append(len(view.dense(np.ones(16, np.float32), 99).rows))
                seen.append(len(view.lexical("编号", 99).rows))
        except Exception as problem:
            seen.append(problem)

    thread = threading.Thread(target=look)
    thread.start()
    looked.wait(20)
    engine.delete(["d0"])
    engine.rebuild()
    changed.set()
    thread.join()
    assert seen == [12, 6]


def test_a_thread_that_began_before_a_rebuild_reads_after_it(made: Make) -> None:
    """Its transaction is of a moment whose files are gone by the time it opens them."""
    engine = made(documents=6)
    other = EmbeddedEngine.open(engine.folder)
    load, began = other._views.at, []

    def slow(connection: sqlite3.Connection) -> object:
        if not began:
            began.append(connection.execute("SELECT value FROM meta WHERE key = 'sequence'").fetchone())
            engine.delete(["d0"])
            engine.rebuild()
        return load(connection)

    other._views.close()
    other._views.at = slow  # type: ignore[method-assign]
    assert len(ids_of(other)) in (10, 12)
    assert began
    other.close()


def test_a_truncated_tail_after_many_reopenings(made: Make, tmp_path: Path) -> None:
    engine = made(documents=3, seal=4)
    for number in range(4):
        engine.close()
        engine = EmbeddedEngine.open(tmp_path / "index", write=True, seal=4)
        assert not engine.healed
        engine.add([encoded(f"n{number}", ["新段落"], unit(RNG, 1, 16))])
    assert engine.verify() == []
    assert engine.stats().passages == 10
    engine.close()


def test_dimensions_that_are_no_multiple_of_eight(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EXACT_LIMIT", 0)
    engine = made(documents=30, dimension=13)
    query = unit(RNG, 1, 13)[0]
    with engine.snapshot() as view:
        ours, exact = view.dense(query, 10), view.exact(query[None, :], 10)[0]
    assert ours.rows.tolist() == exact.rows.tolist()
    np.testing.assert_array_equal(ours.scores, exact.scores)


def test_settings_are_remembered(made: Make, tmp_path: Path) -> None:
    engine = made(documents=0)
    engine.remember(size=120, pair_name="小")
    engine.close()
    reader = EmbeddedEngine.open(tmp_path / "index")
    settings = reader.settings()
    assert settings == {"size": 120, "pair_name": "小"}
    assert reader.stats().format == 1
    reader.close()


def test_an_empty_index_answers_with_nothing(made: Make) -> None:
    engine = made(documents=0)
    assert ids_of(engine) == []
    assert ids_of(engine, text="高血压") == []
    engine.rebuild()
    assert engine.compact() is False
    assert engine.verify() == []
