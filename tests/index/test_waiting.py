"""What waits for another encoder in an embedded index: how it is found, and indexes of an older version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from naive import new_vectors, waiting_document, waiting_in

from suwen.index.embedded import EmbeddedEngine
from suwen.index.truth import FILE

Make = Callable[..., EmbeddedEngine]


@pytest.fixture
def engine(made: Make) -> EmbeddedEngine:
    engine = made(documents=0)
    waiting_in(engine)
    return engine


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
    writer.add([waiting_document("new", arrived=7.0)])
    assert writer.reencode([new_vectors("late"), new_vectors("later")], "document") == {
        "late": "stored",
        "later": "stored",
    }
    assert writer.backlog("document") == (1, 2, 7.0)
    assert reader.backlog("document") == (1, 2, 7.0)
    assert writer.delete(["new"]) == 1 and writer.verify() == []
    writer.close()
    reader.close()
