"""Rows of one query and positives as one row with the negatives of all. Which rows there are is for ``convert``."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter

from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError

#: What :func:`merged` counts: rows whose negatives went into an earlier one, and rows that had no new ones.
COUNTED = ("merged_into_another", "repeated")
#: A file of SQLite's own that ends with its connection; what is small stays in memory.
_TEMPORARY = ""


def merged(rows: Iterable[TrainingRow], counts: Counter[str]) -> Iterator[TrainingRow]:
    """Rows with a query, positives and negatives; those of the same query and positives as one, where the first stood.

    MS MARCO's triples have each pair some eighty times, with another negative and far apart, so all texts are kept in
    a temporary file, and in memory 16 bytes of each pair.

    Raises:
        CurateError: There is no room for the file.
    """
    try:
        with closing(sqlite3.connect(_TEMPORARY)) as store:
            store.execute("PRAGMA journal_mode = OFF")
            store.execute("CREATE TABLE kept (first INTEGER, at INTEGER, row TEXT)")
            store.executemany("INSERT INTO kept VALUES (?, ?, ?)", _numbered(rows))
            kept = store.execute("SELECT first, row FROM kept ORDER BY first, at")
            for _, group in groupby(kept, itemgetter(0)):
                yield _one(group, counts)
    except sqlite3.Error as problem:
        raise CurateError(
            f"the temporary file in which rows are merged cannot be written ({problem}): make room, or name another "
            "folder for it in the environment variable SQLITE_TMPDIR"
        ) from None


def _numbered(rows: Iterable[TrainingRow]) -> Iterator[tuple[int, int, str]]:
    """Each row with the number of the first of its query and positives; one that lacks them is like no other."""
    firsts: dict[bytes, int] = {}
    for at, row in enumerate(rows):
        first = at
        if row.query and row.pos and all(row.pos):
            texts = "\0".join((row.query, *row.pos)).encode("utf-8", "replace")
            first = firsts.setdefault(blake2b(texts, digest_size=16).digest(), at)
        yield first, at, json.dumps(row[:3])


def _one(group: Iterable[tuple[int, str]], counts: Counter[str]) -> TrainingRow:
    first, *others = (json.loads(row) for _, row in group)
    negatives = dict.fromkeys(first[2])
    for _, _, more in others:
        known = len(negatives)
        negatives |= dict.fromkeys(more)
        counts["merged_into_another" if len(negatives) > known else "repeated"] += 1
    return TrainingRow(first[0], tuple(first[1]), tuple(negatives))
