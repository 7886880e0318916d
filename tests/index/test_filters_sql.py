"""What a filter asks of the database: nothing of what an older view has answered."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
from naive import encoded

from suwen.index.embedded import EmbeddedEngine
from suwen.index.filters import read_where
from suwen.index.filters_sql import Compiled, compile_filter, teach

COUNT = 4000


def steps(connection: sqlite3.Connection, compiled: Compiled) -> tuple[list[int], int]:
    """The rows, and the steps that the database took for them."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(step, 1)
    rows = [row for (row,) in connection.execute(*compiled)]
    connection.set_progress_handler(None, 0)
    return rows, taken


def test_what_came_after_a_row_is_found_without_looking_at_what_was_there(tmp_path: Path) -> None:
    engine = EmbeddedEngine.create(tmp_path / "index", space="sp", dimension=4)
    vectors = np.eye(4, dtype=np.float32)
    engine.add([encoded(f"d{i}", ["text"], vectors[:1], {"kind": i % 7}, "") for i in range(COUNT)])
    connection = sqlite3.connect(tmp_path / "index" / "truth.db")
    teach(connection)
    where = read_where({"kind": 3})
    every, most = steps(connection, compile_filter(where))
    assert every == [i + 1 for i in range(COUNT) if i % 7 == 3]
    for after in (COUNT, COUNT - 20):
        rows, few = steps(connection, compile_filter(where, after=after))
        assert rows == [row for row in every if row > after]
        assert few < most / 10, (after, few, most)
    connection.close()
    engine.close()
