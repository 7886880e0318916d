"""Rebuilding: the same answers from the truth alone, without an encoder, whatever of the derived files is left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from naive import encoded, ids_of, unit

import suwen
from suwen.index import embedded, snapshot, stored_vectors
from suwen.index.embedded import EmbeddedEngine

Make = Callable[..., EmbeddedEngine]

# Run where importing torch or an encoder's library is an error, as on a machine that has neither.
REBUILD = """
import json, sys
for name in ("torch", "transformers", "sentence_transformers", "onnxruntime", "tokenizers"):
    sys.modules[name] = None
import numpy as np
from suwen.index.embedded import EmbeddedEngine
engine = EmbeddedEngine.open(sys.argv[1], write=True, repair=False)
engine.rebuild()
assert engine.verify() == []
queries = np.load(sys.argv[2])
with engine.snapshot() as view:
    dense = [view.dense(query, 10).rows.tolist() for query in queries]
    words = [view.lexical(text, 10).rows.tolist() for text in sys.argv[3:]]
engine.close()
print(json.dumps([dense, words]))
"""


def test_rebuild_restores_the_same_answers_without_torch(made: Make, tmp_path: Path) -> None:
    engine = made(documents=60)
    queries = unit(np.random.default_rng(9), 12, 16)
    texts = ["糖尿病 编号7", "Stroke", "第二段", "高血压低盐 number11"]
    with engine.snapshot() as view:
        dense = [view.dense(query, 10).rows.tolist() for query in queries]
        words = [view.lexical(text, 10).rows.tolist() for text in texts]
    assert all(len(rows) == 10 for rows in dense + words)
    engine.close()
    for entry in engine.folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif not entry.name.startswith("truth.db"):
            entry.unlink()
    np.save(tmp_path / "queries.npy", queries)
    done = subprocess.run(
        [sys.executable, "-c", REBUILD, str(engine.folder), str(tmp_path / "queries.npy"), *texts],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(suwen.__file__).parents[1]), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [dense, words]


def test_rebuild_after_deletes_gives_the_same_dense_answers(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "EXACT_LIMIT", 0)
    engine = made(documents=60)
    engine.delete([f"d{number}" for number in range(0, 60, 3)])
    queries = unit(np.random.default_rng(9), 12, 16)
    with engine.snapshot() as view:
        before = [view.dense(query, 10).rows.tolist() for query in queries]
    engine.rebuild()
    with engine.snapshot() as view:
        assert [view.dense(query, 10).rows.tolist() for query in queries] == before
    assert engine.stats().deleted == 0
    assert engine.verify() == []


def test_compaction_gives_space_back(made: Make) -> None:
    engine = made(documents=0)
    rng = np.random.default_rng(3)
    for start in range(0, 300, 100):
        batch = [encoded(f"d{n}", ["高血压 " * 400], unit(rng, 1, 16)) for n in range(start, start + 100)]
        engine.add(batch)
    engine.delete([f"d{n}" for n in range(280)])
    before = engine.stats()
    assert engine.compact() is True
    after = engine.stats()
    assert (before.deleted, after.deleted, after.passages) == (280, 0, 20)
    assert after.bytes_truth < before.bytes_truth / 2
    assert after.bytes_derived < before.bytes_derived
    assert engine.compact() is False
    assert len(list(engine.folder.glob("gen-*"))) == 1


def test_one_deleted_passage_of_many_is_no_reason_to_write_all_anew(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "REWRITTEN", 20)
    engine, rng = made(documents=0, seal=8), np.random.default_rng(3)
    for number in range(60):
        engine.add([encoded(f"d{number}", ["高血压 " * 2000], unit(rng, 1, 16))])
    before, (generation,) = engine.stats(), engine.folder.glob("gen-*")
    engine.delete(["d7"])
    assert engine.compact() is True, "the pages of its text are given back"
    after = engine.stats()
    assert (after.deleted, after.bytes_truth < before.bytes_truth) == (1, True)
    assert list(engine.folder.glob("gen-*")) == [generation] and engine.verify() == []
    assert engine.compact() is False
    assert "d7#0" not in ids_of(engine) + ids_of(engine, text="高血压") and len(ids_of(engine)) == 59
    engine.delete([f"d{number}" for number in range(10, 14)])
    assert engine.compact() is True and engine.stats().deleted == 0
    assert list(engine.folder.glob("gen-*")) != [generation] and engine.verify() == []


def test_progress_runs_to_its_end(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_vectors, "_CHUNK", 16)
    engine = made(documents=30)
    seen: list[tuple[int, int]] = []
    engine.rebuild(lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    assert len(seen) >= 4
    assert engine.verify() == []


def test_a_rebuild_in_chunks_holds_every_vector_once(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_vectors, "_CHUNK", 7)
    monkeypatch.setattr(snapshot, "EXACT_LIMIT", 0)
    engine = made(documents=25)
    engine.rebuild()
    with engine.snapshot() as view:
        query = unit(np.random.default_rng(2), 1, 16)[0]
        assert view.dense(query, 50).rows.tolist() == view.exact(query[None, :], 50)[0].rows.tolist()
        assert len(view.dense(query, 99).rows) == 50
