"""Tables of rows for tests: read from disk as in a run, and as rows were once held in memory, to compare with."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.training.tasks.row_tables import PairTable, read_source, table_of


def written_table(
    sources: Mapping[str, Iterable[TrainingRow]], folder: Path | None = None, *, prompts: bool = True
) -> PairTable:
    """The table of some rows, by the files that a run would make; without a folder, they go with the table."""
    scratch = tempfile.TemporaryDirectory() if folder is None else None
    place = Path(scratch.name) if scratch is not None else folder
    assert place is not None
    shards = {}
    for name, rows in sources.items():
        write_training_rows(place / f"{name}.jsonl", rows)
        shards[name] = read_source(place / f"{name}.jsonl", None, place / "shards", prompts=prompts)
    table = table_of(shards)
    if scratch is not None:
        weakref.finalize(table, scratch.cleanup)
    return table


class MemoryTable(NamedTuple):
    """Rows by text ids, all of it in Python's objects."""

    queries: list[str]
    instructions: list[str]
    documents: list[str]
    document_instructions: list[str | None]
    sources: dict[str, list[tuple[int, list[int], list[int]]]]
    #: Every document that is right for a query, over all its rows.
    right: list[list[int]]


def memory_table(sources: Mapping[str, Iterable[TrainingRow]], *, prompts: bool = True) -> MemoryTable:
    """What release 0.1.0 made of rows: ids in the order in which texts are first named."""
    queries: dict[tuple[str, str], int] = {}
    documents: dict[tuple[str, str | None], int] = {}
    right: dict[int, set[str]] = {}
    kept: dict[str, list[tuple[int, list[int], list[int]]]] = {}
    for name, rows in sources.items():
        kept[name] = []
        for row in rows:
            instruction = row.prompt if prompts else ""
            query = queries.setdefault((row.query, instruction), len(queries))
            own = instruction if row.type.startswith("symmetric") else None
            positives, negatives = (
                [documents.setdefault((text, own), len(documents)) for text in texts] for texts in (row.pos, row.neg)
            )
            right.setdefault(query, set()).update(row.pos)
            kept[name].append((query, positives, negatives))
    known = [sorted(id_ for (text, _), id_ in documents.items() if text in right[query]) for query in range(len(right))]
    return MemoryTable(
        [text for text, _ in queries],
        [own for _, own in queries],
        [text for text, _ in documents],
        [own for _, own in documents],
        kept,
        known,
    )
