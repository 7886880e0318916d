"""The embedded engine's own promises: its folder, its lock, its formats, and what a rebuild leaves alone."""

from __future__ import annotations

import resource
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive import encoded, ids_of, unit

from suwen.index import snapshot as snapshots
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import DamagedIndex, IndexLocked, IndexProblem, NotAnIndex
from suwen.index.vectors import VectorFiles

Make = Callable[..., EmbeddedEngine]
RNG = np.random.default_rng(7)


def test_a_reader_may_not_write(made: Make, tmp_path: Path) -> None:
    made(documents=1).close()
    reader = EmbeddedEngine.open(tmp_path / "index")
    for call in (reader.rebuild, lambda: reader.remember(size=1)):
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


def test_an_index_beside_which_nothing_may_be_written_is_not_damaged(made: Make, tmp_path: Path) -> None:
    made(documents=1).close()
    # Who runs the tests may write everywhere: a link into nothing lies where SQLite puts what readers share.
    (tmp_path / "index" / "truth.db-shm").symlink_to("nowhere/shm")
    with pytest.raises(IndexProblem, match=r"allowed to read all files of .* or to write") as caught:
        EmbeddedEngine.open(tmp_path / "index")
    assert not isinstance(caught.value, DamagedIndex) and "restore" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [("SQLITE_IOERR_SHMSIZE", "free space .* restore a backup"), ("SQLITE_BUSY", "try again"), ("SQLITE_FULL", "free")],
)
def test_a_truth_that_cannot_be_read_just_now_is_not_damaged(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    made(documents=1).close()

    def fail(connection: sqlite3.Connection) -> dict[str, Any]:
        problem = sqlite3.OperationalError("disk I/O error")
        problem.sqlite_errorcode = getattr(sqlite3, name)
        raise problem

    monkeypatch.setattr("suwen.index.truth.Truth.meta", staticmethod(fail))
    with pytest.raises(IndexProblem, match=said) as caught:
        EmbeddedEngine.open(tmp_path / "index")
    assert not isinstance(caught.value, DamagedIndex)


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    # The same call of SQLite fails where a file may not grow as where the disk is full.
    (tmp_path / "index").mkdir()
    ignored, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, limits[1]))
    try:
        with pytest.raises(IndexProblem, match=r"could not write .*free disk space"):
            EmbeddedEngine.create(tmp_path / "index", space="sp", dimension=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    EmbeddedEngine.create(tmp_path / "index", space="sp", dimension=4).close()


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


def test_a_snapshot_outlives_a_rebuild(made: Make) -> None:
    engine = made(documents=6)
    looked, changed = threading.Event(), threading.Event()
    seen: list[object] = []

    def look() -> None:
        try:
            with engine.snapshot() as view:
                view.dense(np.ones(16, np.float32), 99)
                looked.set()
                changed.wait(300)
                seen.append(len(view.dense(np.ones(16, np.float32), 99).rows))
                seen.append(len(view.lexical("编号", 99).rows))
        except Exception as problem:
            seen.append(problem)

    thread = threading.Thread(target=look)
    thread.start()
    looked.wait(300)
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


def test_one_that_the_scan_passed_over_takes_its_place_where_it_is_named(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EXACT_LIMIT", 0)
    engine = made(documents=30)
    query = unit(RNG, 1, 16)[0]
    with engine.snapshot() as view:
        first, second = view.dense(query, 2).rows.tolist()
        found = VectorFiles.search
        monkeypatch.setattr(
            VectorFiles,
            "search",
            lambda *given: (hits := found(*given))._replace(rows=hits.rows[hits.rows != first]),
        )
        assert first not in view.dense(query, 30).rows
        assert view.dense(query, 2, beside=np.array([first])).rows.tolist() == [first, second]


def test_an_empty_index_is_kept_up_like_any(made: Make) -> None:
    engine = made(documents=0)
    assert engine.stats().format == 1
    engine.rebuild()
    assert engine.compact() is False
    assert engine.verify() == []
