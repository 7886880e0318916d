"""verify finds every kind of damage, opening heals or says the fix, and backups of a live index are whole."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from naive import encoded, unit

from suwen.index import embedded, snapshot, upkeep
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import DamagedIndex, DiskFull, IndexProblem, NotAnIndex
from suwen.index.recall import recall
from suwen.index.truth import not_written

Make = Callable[..., EmbeddedEngine]
HEADER = 4096
QUERY = np.ones(16, np.float32)


@pytest.fixture
def folder(made: Make) -> Path:
    """A closed index with sealed passages, a tail and a tombstone."""
    engine = made(documents=24)
    engine.add([encoded("last", ["末尾的一段"], unit(np.random.default_rng(1), 1, 16))])
    engine.delete(["d3"])
    assert engine.stats().deleted == 2
    with engine.snapshot() as view:
        assert view._view.files.count > 0 and len(view._view.tail_rows) > 0
    engine.close()
    return engine.folder


def generation(folder: Path) -> Path:
    (found,) = folder.glob("gen-*")
    return found


def flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 0x40
    file.write_bytes(content)


def problems(folder: Path) -> list[str]:
    engine = EmbeddedEngine.open(folder, repair=False)
    try:
        return engine.verify()
    finally:
        engine.close()


def answers(folder: Path) -> list[list[int]]:
    engine = EmbeddedEngine.open(folder)
    try:
        with engine.snapshot() as view:
            return [view.dense(QUERY, 99).rows.tolist(), view.lexical("糖尿病 编号7", 99).rows.tolist()]
    finally:
        engine.close()


def rebuilt(folder: Path) -> None:
    engine = EmbeddedEngine.open(folder, write=True, repair=False)
    engine.rebuild()
    assert engine.verify() == []
    engine.close()


def test_an_index_in_order_has_no_problems(folder: Path) -> None:
    assert problems(folder) == []


@pytest.mark.parametrize("kind", ["bits", "codes", "rows"])
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_flipped_byte_is_found_and_rebuilt_away(folder: Path, kind: str, where: str) -> None:
    before = answers(folder)
    file = generation(folder) / kind
    size = file.stat().st_size
    flip(file, {"first": HEADER, "middle": (HEADER + size) // 2, "last": size - 1}[where])
    found = problems(folder)
    assert len(found) >= 1
    assert kind in found[0] and f"suwen rebuild {folder}" in found[0]
    rebuilt(folder)
    assert answers(folder) == before


def test_a_flipped_header_is_foreign(folder: Path) -> None:
    before = answers(folder)
    flip(generation(folder) / "codes", 12)
    assert any("does not belong" in problem for problem in problems(folder))
    assert answers(folder) == before
    assert problems(folder) == []


@pytest.mark.parametrize("kind", ["bits", "codes", "rows"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "foreign"])
def test_opening_heals_a_vector_file(made: Make, folder: Path, kind: str, damage: str) -> None:
    before = answers(folder)
    file = generation(folder) / kind
    if damage == "missing":
        file.unlink()
    elif damage == "foreign":
        other = made("other", documents=24)
        other.close()
        shutil.copy(generation(other.folder) / kind, file)
    else:
        file.write_bytes(b"" if damage == "empty" else file.read_bytes()[:-40])
    found = problems(folder)
    assert found and kind in found[0] and "suwen rebuild" in found[0]
    reader = EmbeddedEngine.open(folder)
    assert "rebuilt" in reader.healed
    reader.close()
    assert answers(folder) == before
    assert problems(folder) == []


@pytest.mark.parametrize("damage", ["gone", "meta", "segment"])
def test_opening_heals_the_lexical_folder(folder: Path, damage: str) -> None:
    before = answers(folder)
    lexical = generation(folder) / "lexical"
    if damage == "gone":
        shutil.rmtree(lexical)
    elif damage == "meta":
        (lexical / "meta.json").write_text("{")
    else:
        next(iter(lexical.glob("*.idx"))).unlink()
    found = problems(folder)
    assert found and "lexical" in found[0] and "suwen rebuild" in found[0]
    assert answers(folder) == before


def test_a_large_index_is_not_rebuilt_unasked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_HEAL_LIMIT", 10)
    shutil.rmtree(generation(folder))
    with pytest.raises(DamagedIndex, match=f"suwen rebuild {folder}"):
        EmbeddedEngine.open(folder, write=True)
    with pytest.raises(DamagedIndex, match=f"suwen rebuild {folder}"):
        EmbeddedEngine.open(folder)
    rebuilt(folder)


def test_a_damaged_row_number_is_said_and_not_a_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "EXACT_LIMIT", 0)
    file = generation(folder) / "rows"
    flip(file, file.stat().st_size - 3)
    with pytest.raises(DamagedIndex, match="suwen rebuild"):
        answers(folder)


def test_words_that_are_not_in_the_truth_are_found(folder: Path) -> None:
    engine = EmbeddedEngine.open(folder, write=True)
    with engine.snapshot() as view:
        view._view.lexical.add([(1, "多余的一行")])
    engine.remember(size=1)
    assert any("lexical" in problem and "1 passages" in problem for problem in engine.verify())
    engine.close()


def test_words_past_the_watermark_are_nobodys_and_are_swept(folder: Path) -> None:
    engine = EmbeddedEngine.open(folder, write=True)
    with engine.snapshot() as view:
        view._view.lexical.add([(9_999, "多余的一行")])
    assert engine.verify() == []
    engine.close()
    engine = EmbeddedEngine.open(folder, write=True)
    with engine.snapshot() as view:
        before = view._view.searcher.num_docs
        rows = view.lexical("多余的一行", 10).rows.tolist()
    assert 9_999 not in rows
    engine.add([encoded("later", ["新的"], unit(np.random.default_rng(2), 1, 16))])
    with engine.snapshot() as view:
        assert view._view.searcher.num_docs == before
    assert engine.verify() == []
    engine.close()


def damage_vector(folder: Path, id_: str) -> None:
    with sqlite3.connect(folder / "truth.db") as truth:
        owner = "SELECT row FROM passages JOIN documents ON number = document WHERE id = ? ORDER BY row LIMIT 1"
        (row,) = truth.execute(owner, (id_,)).fetchone()
        (vector,) = truth.execute("SELECT vector FROM vectors WHERE row = ?", (row,)).fetchone()
        changed = bytes([vector[0] ^ 1]) + vector[1:]
        truth.execute("UPDATE vectors SET vector = ? WHERE row = ?", (changed, row))
    truth.close()


@pytest.mark.parametrize("id_", ["d5", "last"], ids=["sealed", "tail"])
def test_a_flipped_byte_of_a_vector_in_the_truth(folder: Path, id_: str) -> None:
    damage_vector(folder, id_)
    found = problems(folder)
    assert found and f"{id_!r}" in found[0] and "add the document again" in found[0]
    engine = EmbeddedEngine.open(folder, write=True, seal=8)
    engine.add([encoded(id_, ["换一段新的"], unit(np.random.default_rng(2), 1, 16))])
    assert engine.verify() == []
    engine.close()


def test_a_truth_without_a_vector(folder: Path) -> None:
    with sqlite3.connect(folder / "truth.db") as truth:
        truth.execute("DELETE FROM vectors WHERE row = 2")
    truth.close()
    assert any("1 passages have no vector" in problem for problem in problems(folder))


def test_a_damaged_page_of_the_truth(folder: Path) -> None:
    file = folder / "truth.db"
    with sqlite3.connect(file) as truth:
        (page,) = truth.execute("SELECT rootpage FROM sqlite_master WHERE name = 'passages_by_document'").fetchone()
        truth.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    truth.close()
    content = bytearray(file.read_bytes())
    content[(page - 1) * 8192 : (page - 1) * 8192 + 600] = bytes(600)
    file.write_bytes(content)
    found = problems(folder)
    assert found and all("truth" in problem and "backup" in problem for problem in found)


def test_a_backup_while_another_thread_writes(made: Make, tmp_path: Path) -> None:
    """Documents come in threes in one call: a backup holds all of a three or none."""
    engine = made(documents=4)
    stop = threading.Event()
    rng = np.random.default_rng(4)

    def write() -> None:
        number = 0
        while not stop.is_set():
            engine.add([encoded(f"t{number}-{part}", ["三个一组"], unit(rng, 1, 16)) for part in range(3)])
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        copies = [engine.backup(tmp_path / f"backup{number}") for number in range(4)]
    finally:
        stop.set()
        thread.join()
    for number, copy in enumerate(copies):
        upkeep.restore(copy, tmp_path / f"restored{number}")
        restored = EmbeddedEngine.open(tmp_path / f"restored{number}", write=True)
        assert restored.verify() == []
        ids = [id_ for id_ in restored.ids() if id_.startswith("t")]
        assert len(ids) % 3 == 0
        assert restored.stats().documents == 4 + len(ids)
        with restored.snapshot() as view:
            assert len(view.dense(QUERY, 10_000).rows) == restored.stats().passages
            assert len(view.lexical("三个一组", 10_000).rows) >= len(ids)
        restored.close()


def test_a_restored_index_is_read_beside_its_writer(made: Make, tmp_path: Path) -> None:
    engine = made(documents=3)
    upkeep.restore(engine.backup(tmp_path / "backup"), tmp_path / "restored")
    writer = EmbeddedEngine.open(tmp_path / "restored", write=True)
    reader = EmbeddedEngine.open(tmp_path / "restored")
    with reader.snapshot() as view:
        writer.add([encoded("new", ["新的"], unit(np.random.default_rng(1), 1, 16))])
        assert len(view.dense(QUERY, 99).rows) == 6
    with reader.snapshot() as view:
        assert len(view.dense(QUERY, 99).rows) == 7
    reader.close()
    writer.close()


def test_backup_and_restore_refuse_what_is_there(made: Make, tmp_path: Path) -> None:
    engine = made(documents=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(IndexProblem, match="not empty"):
        engine.backup(tmp_path / "full")
    engine.backup(tmp_path / "backup")
    with pytest.raises(IndexProblem, match="not empty"):
        upkeep.restore(tmp_path / "backup", tmp_path / "full")
    with pytest.raises(IndexProblem, match="not a backup"):
        upkeep.restore(tmp_path / "full", tmp_path / "new")
    (tmp_path / "file").write_text("x")
    for call in (
        lambda: engine.backup(tmp_path / "file"),
        lambda: upkeep.restore(tmp_path / "backup", tmp_path / "file"),
    ):
        with pytest.raises(IndexProblem):
            call()
    with pytest.raises(NotAnIndex):
        EmbeddedEngine.open(tmp_path / "full")


@pytest.mark.parametrize(
    "cause",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        sqlite3.OperationalError("database or disk is full"),
        ValueError("IO error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_known_whoever_says_so(cause: Exception) -> None:
    assert isinstance(not_written("it", cause), DiskFull)
    assert not isinstance(not_written("it", PermissionError(errno.EACCES, "no")), DiskFull)


def test_recall_counts_ties_and_misses() -> None:
    class Forgetful:
        """Finds only the even half of what there is."""

        def exact(self, vectors: np.ndarray, k: int, progress: object = None) -> list[snapshot.Ranking]:
            return [snapshot.Ranking(np.arange(k), np.linspace(1, 0.5, k, dtype=np.float32)) for _ in vectors]

        def dense(self, vector: np.ndarray, k: int) -> snapshot.Ranking:
            (exact,) = self.exact(vector[None, :], k)
            return snapshot.Ranking(exact.rows[::2], exact.scores[::2])

    assert recall(Forgetful(), np.zeros((3, 4), np.float32), 10) == 0.5
