"""Rows of one query and positives: their negatives come together, in memory that does not hold the texts."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError, merged_rows
from suwen.curate.merged_rows import merged


def test_negatives_of_one_pair_come_together_where_its_first_row_stood() -> None:
    rows = [
        TrainingRow("gout", ("An arthritis.",), ("A goat.",)),
        TrainingRow("flu", ("A virus.",), ("A flute.",)),
        TrainingRow("gout", ("An arthritis.",), ("A gown.", "A goat.")),
        TrainingRow("gout", ("An arthritis.",), ("A goat.",)),
        TrainingRow("gout", ("It hurts.",), ("\ud800 a goat.",)),
    ]
    counts: Counter[str] = Counter()
    assert list(merged(rows, counts)) == [
        TrainingRow("gout", ("An arthritis.",), ("A goat.", "A gown.")),
        rows[1],
        rows[4],
    ]
    assert counts == {"merged_into_another": 1, "repeated": 1}


def test_rows_that_lack_a_text_are_left_as_they_are() -> None:
    rows = [TrainingRow("", ("A.",)), TrainingRow("", ("A.",), ("B.",)), TrainingRow("q", ()), TrainingRow("q", ())]
    rows += [TrainingRow("q", ("",)), TrainingRow("q", ("",))]
    counts: Counter[str] = Counter()
    assert list(merged(rows, counts)) == rows and not counts


def test_memory_holds_no_texts() -> None:
    def made(size: int) -> Iterator[TrainingRow]:
        text = "A text of some length. " * 20
        yield from (TrainingRow(f"{n % 50}", (text,), (f"{text}{n}",)) for n in range(size))

    def peak(size: int) -> int:
        tracemalloc.start()
        assert sum(len(row.neg) for row in merged(made(size), Counter())) == size
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(100)
    # Of one row all negatives are held: 40 of them here.
    assert peak(2000) < 300_000


def test_a_file_that_cannot_be_written_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(merged_rows.sqlite3, "connect", full)
    with pytest.raises(CurateError, match=r"cannot be written \(database or disk is full\): make room"):
        list(merged([], Counter()))
