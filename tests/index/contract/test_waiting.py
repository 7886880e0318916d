"""Documents that wait for another encoder: listed oldest first, and replaced only while they are what was leased."""

from __future__ import annotations

import numpy as np
import pytest
from engines import Making
from naive import new_vectors, waiting_document, waiting_in

from suwen.corpora.records import Document
from suwen.index.engine import EncodedDocument, Engine, IndexProblem, Known, Reencoded


@pytest.fixture
def engine(make: Making) -> Engine:
    return waiting_in(make(documents=0))


def test_what_waits_is_listed_oldest_first(engine: Engine) -> None:
    engine.add([waiting_document("early"), waiting_document("again", arrived=4000.0)])
    engine.add([waiting_document("late", version="2", arrived=5000.0)])
    found = engine.waiting("document", 10)
    assert [(one.id, one.version, one.encoder, one.arrived) for one in found] == [
        ("later", "1", "rough", 3000.0),
        ("early", "1", "static", None),
        ("again", "1", "static", 4000.0),
        ("late", "2", "static", 5000.0),
    ]
    assert found[0].contents == ["题\nlater的第一段", "题\nlater的第二段"]
    assert [one.id for one in engine.waiting("document", 2)] == ["later", "early"]
    assert [one.id for one in engine.waiting("document", 2, {"later", "again"})] == ["early", "late"]
    assert {one.id for one in engine.waiting("static", 10)} == {"done", "later"}


def test_the_backlog_counts_documents_and_passages(engine: Engine) -> None:
    assert engine.backlog("document") == (2, 4, 2000.0)
    engine.reencode([new_vectors("late")], "document")
    assert engine.backlog("document") == (1, 2, 3000.0)
    engine.delete(["later"])
    assert engine.backlog("document") == (0, 0, None)
    assert engine.waiting("document", 5) == []


def test_new_vectors_change_nothing_else(engine: Engine) -> None:
    with engine.snapshot() as snapshot:
        before = snapshot.document("late")
    made = new_vectors("late")
    assert engine.reencode([made], "document") == {"late": "stored"}
    with engine.snapshot() as snapshot:
        after = snapshot.document("late")
        assert before is not None and after is not None
        assert [item.passage for item in after.passages] == [item.passage for item in before.passages]
        assert (after.title, after.digest, str(after.metadata)) == (before.title, before.digest, str(before.metadata))
        assert {item.encoder for item in after.passages} == {"document"}
        assert snapshot.dense(made.vectors[1], 1).rows.tolist() == [after.passages[1].row]
        assert snapshot.dense(made.vectors[1], 9, {"year": 2020}).rows.size == 6
        (first,) = snapshot.fetch(snapshot.lexical("late的第二段", 1).rows.tolist())
        assert first.passage.id == "late#1"
    assert engine.ids(origin="index") == ["done", "late", "later"]
    assert engine.stats().passages == 6


def test_a_changed_or_deleted_document_is_not_written_over(engine: Engine) -> None:
    engine.add([waiting_document("late", version="2")])
    engine.delete(["later"])
    made = [new_vectors("late"), new_vectors("later"), new_vectors("done"), new_vectors("never")]
    before = engine.stored_vectors("late", "static")
    outcomes = engine.reencode(made, "document")
    assert outcomes == {"late": "stale", "later": "gone", "done": "done", "never": "gone"}
    after = engine.stored_vectors("late", "static")
    assert all(np.array_equal(after[content], vector) for content, vector in before.items())
    assert engine.reencode([new_vectors("late", "2", passages=3)], "document") == {"late": "wrong"}


def test_a_second_result_for_the_same_version_does_nothing(engine: Engine) -> None:
    first = new_vectors("late")
    assert engine.reencode([first], "document") == {"late": "stored"}
    assert engine.reencode([new_vectors("late", seed=4)], "document") == {"late": "done"}
    stored = engine.stored_vectors("late", "document")["题\nlate的第一段"]
    np.testing.assert_allclose(stored, first.vectors[0], atol=1e-3)
    assert engine.stats().passages == 6


def test_what_cannot_be_stored_leaves_everything_as_it_was(engine: Engine) -> None:
    with pytest.raises(IndexProblem, match="twice in one call"):
        engine.reencode([new_vectors("late"), new_vectors("late")], "document")
    for bad in (np.full((2, 16), np.nan, np.float32), np.zeros((2, 8), np.float32)):
        with pytest.raises(IndexProblem):
            engine.reencode([new_vectors("later"), Reencoded("late", "1", bad)], "document")
    assert engine.backlog("document").documents == 2


def test_it_survives_a_restart(make: Making, engine: Engine) -> None:
    engine.reencode([new_vectors("late")], "document")
    engine.close()
    again = make.again(engine, write=True)
    assert again.backlog("document") == (1, 2, 3000.0)
    assert again.reencode([new_vectors("later")], "document") == {"later": "stored"}


def test_a_document_without_passages_never_waits(make: Making) -> None:
    engine = make(documents=0)
    engine.add([EncodedDocument(Document("empty", ""), [], np.empty((0, 16), np.float32), "static", "1", "add", 1.0)])
    assert engine.backlog("document") == (0, 0, None)
    assert engine.known(["empty", "nobody"]) == {"empty": Known("1", "")}
