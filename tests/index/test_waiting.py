"""Documents that wait for another encoder: listed oldest first, and replaced only while they are what was leased."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from naive import encoded, unit

from suwen.corpora.records import Document
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import EncodedDocument, IndexProblem, Known, Reencoded
from suwen.index.truth import FILE

Make = Callable[..., EmbeddedEngine]
RNG = np.random.default_rng(3)


def document(id_: str, *, version: str = "1", encoder: str = "static", arrived: float | None = None) -> EncodedDocument:
    texts = [f"{id_}的第一段", f"{id_}的第二段"]
    made = encoded(id_, texts, unit(RNG, 2, 16), {"year": 2020, "odd": float("nan")})
    return made._replace(digest=version, encoder=encoder, arrived=arrived, origin="index")


def new(id_: str, version: str = "1", passages: int = 2) -> Reencoded:
    return Reencoded(id_, version, unit(RNG, passages, 16))


@pytest.fixture
def engine(made: Make) -> EmbeddedEngine:
    """Two documents that wait, one that does not, added in this order."""
    engine = made(documents=0)
    engine.add([document("late", arrived=2000.0)])
    engine.add([document("done", encoder="document"), document("later", encoder="rough", arrived=3000.0)])
    return engine


def test_what_waits_is_listed_oldest_first(engine: EmbeddedEngine) -> None:
    engine.add([document("early"), document("again", arrived=4000.0)])
    engine.add([document("late", version="2", arrived=5000.0)])
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


def test_the_backlog_counts_documents_and_passages(engine: EmbeddedEngine) -> None:
    assert engine.backlog("document") == (2, 4, 2000.0)
    engine.reencode([new("late")], "document")
    assert engine.backlog("document") == (1, 2, 3000.0)
    engine.delete(["later"])
    assert engine.backlog("document") == (0, 0, None)
    assert engine.waiting("document", 5) == []


def test_listing_reads_no_more_than_it_gives(engine: EmbeddedEngine) -> None:
    """At a million passages a scan would take seconds: SQLite must walk an index that holds just these rows."""
    plan = " ".join(
        row[-1]
        for row in engine._truth.reader().execute(
            "EXPLAIN QUERY PLAN SELECT row, document FROM passages WHERE encoder = ? AND ordinal = 0 ORDER BY row",
            ("static",),
        )
    )
    assert "documents_by_encoder" in plan and "SCAN" not in plan and "TEMP B-TREE" not in plan


def test_new_vectors_change_nothing_else(engine: EmbeddedEngine) -> None:
    with engine.snapshot() as snapshot:
        before = snapshot.document("late")
    made = new("late")
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
    assert engine.stats().passages == 6 and engine.verify() == []


def test_a_changed_or_deleted_document_is_not_written_over(engine: EmbeddedEngine) -> None:
    engine.add([document("late", version="2")])
    engine.delete(["later"])
    made = [new("late"), new("later"), new("done"), new("never")]
    before = engine.stored_vectors("late", "static")
    outcomes = engine.reencode(made, "document")
    assert outcomes == {"late": "stale", "later": "gone", "done": "done", "never": "gone"}
    after = engine.stored_vectors("late", "static")
    assert all(np.array_equal(after[content], vector) for content, vector in before.items())
    assert engine.reencode([new("late", "2", passages=3)], "document") == {"late": "stale"}


def test_a_second_result_for_the_same_version_does_nothing(engine: EmbeddedEngine) -> None:
    first = new("late")
    assert engine.reencode([first], "document") == {"late": "stored"}
    assert engine.reencode([new("late")], "document") == {"late": "done"}
    stored = engine.stored_vectors("late", "document")["题\nlate的第一段"]
    np.testing.assert_allclose(stored, first.vectors[0], atol=1e-3)
    assert engine.stats().passages == 6


def test_what_cannot_be_stored_leaves_everything_as_it_was(engine: EmbeddedEngine) -> None:
    with pytest.raises(IndexProblem, match="twice in one call"):
        engine.reencode([new("late"), new("late")], "document")
    for bad in (np.full((2, 16), np.nan, np.float32), np.zeros((2, 8), np.float32)):
        with pytest.raises(IndexProblem):
            engine.reencode([new("later"), Reencoded("late", "1", bad)], "document")
    assert engine.backlog("document").documents == 2
    assert engine.verify() == []


def test_it_survives_a_restart(engine: EmbeddedEngine) -> None:
    engine.reencode([new("late")], "document")
    engine.close()
    again = EmbeddedEngine.open(engine.folder, write=True)
    assert again.backlog("document") == (1, 2, 3000.0)
    assert again.reencode([new("later")], "document") == {"later": "stored"}
    again.close()


# -- indexes of an older version -------------------------------------------------------------------------------------


def make_old(folder: Path) -> None:
    """What the version before arrivals wrote: no table for them, no index for what waits."""
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute("DROP TABLE arrivals")
        connection.execute("DROP INDEX documents_by_encoder")
    connection.close()


def test_an_index_of_an_older_version_opens(engine: EmbeddedEngine) -> None:
    engine.close()
    make_old(engine.folder)
    reader = EmbeddedEngine.open(engine.folder)
    assert reader.backlog("document") == (2, 4, None)
    assert [one.id for one in reader.waiting("document", 5)] == ["late", "later"]
    writer = EmbeddedEngine.open(engine.folder, write=True)
    writer.add([document("new", arrived=7.0)])
    assert writer.reencode([new("late"), new("later")], "document") == {"late": "stored", "later": "stored"}
    assert writer.backlog("document") == (1, 2, 7.0)
    assert reader.backlog("document") == (1, 2, 7.0)
    assert writer.delete(["new"]) == 1 and writer.verify() == []
    writer.close()
    reader.close()


def test_a_document_without_passages_never_waits(made: Make) -> None:
    engine = made(documents=0)
    engine.add([EncodedDocument(Document("empty", ""), [], np.empty((0, 16), np.float32), "static", "1", "add", 1.0)])
    assert engine.backlog("document") == (0, 0, None)
    assert engine.known(["empty", "nobody"]) == {"empty": Known("1", "")}
