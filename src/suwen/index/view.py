"""What a moment of an embedded index looks like outside SQLite, made again only where it changed. Searches nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tantivy

from suwen.index.counts import fields
from suwen.index.derive import generation_name
from suwen.index.engine import DamagedIndex, Rows, Vectors
from suwen.index.filters import Where, read_where
from suwen.index.filters_sql import check_fields, compile_filter
from suwen.index.groups import Groups, read_groups
from suwen.index.lexical import Lexical
from suwen.index.stored_vectors import FORMAT, vectors_after
from suwen.index.truth import Truth, rows_of
from suwen.index.vectors import VectorFiles, among

#: Filters whose rows are remembered.
_FILTERS = 16
#: Terms of which it is remembered how many passages have them: as many as a search or two have.
_TERMS = 256


@dataclass
class View:
    """What a moment looks like outside SQLite: the files up to their watermark, the tail, and the tombstones."""

    sequence: int
    generation: int
    deletions: int
    dimension: int
    last_row: int
    sealed_row: int
    files: VectorFiles
    lexical: Lexical
    searcher: tantivy.Searcher
    #: In how many passages a term of a field stands: one search asks for most of its terms twice.
    frequency: Callable[[str, str], int]
    hidden: Rows
    dead: npt.NDArray[np.bool_] | None
    tail_rows: Rows
    tail: Vectors
    groups: Groups
    #: Sealed rows and vectors for exact search, loaded when first asked for; shared between views of the same files,
    #: with the deletions they were loaded after: an older view may still need what is gone since.
    exact: list[tuple[int, Rows, Vectors]] = field(default_factory=list)
    #: What filters let through in older views of the same generation, each with the last row of its view.
    before: dict[str, tuple[int, Rows]] = field(default_factory=dict)
    _admitted: dict[str, Rows] = field(default_factory=dict)

    @property
    def filtered(self) -> dict[str, tuple[int, Rows]]:
        """What filters have let through so far, for the view after this one."""
        fresh = {where: (self.last_row, rows) for where, rows in list(self._admitted.items())}
        kept = [(where, found) for where, found in self.before.items() if where not in fresh]
        return dict([*kept, *fresh.items()][-_FILTERS:])

    def admitted(self, connection: sqlite3.Connection, where: Where) -> Rows:
        """Live rows a filter lets through, ascending; remembered for as long as the view lives.

        A row never changes: those that an older view let through stay, but for what is deleted, and only what came
        since is asked for.
        """
        known = repr(where)
        rows = self._admitted.get(known)
        if rows is None:
            found = read_where(where)
            check_fields(connection, found, lambda: fields(connection))
            if known in self.before:
                last, kept = self.before[known]
                gone = among(kept, self.hidden)
                fresh = rows_of(connection.execute(*compile_filter(found, after=last)))
                # The very same array where a write changed nothing of it: where its rows stand is then known as well.
                rows = np.concatenate([kept[~gone], fresh]) if len(fresh) or gone.any() else kept
            else:
                rows = rows_of(connection.execute(*compile_filter(found)))
            if len(self._admitted) >= _FILTERS:
                self._admitted.clear()
            self._admitted[known] = rows
        return rows


class Views:
    """Makes the view of a connection's moment, and keeps the newest one at hand."""

    def __init__(self, folder: Path, index_id: str, dimension: int) -> None:
        self._folder, self._index_id, self._dimension = folder, index_id, dimension
        self._mutex = threading.RLock()
        self._view: View | None = None
        self._lexical: tuple[int, Lexical] | None = None

    def at(self, connection: sqlite3.Connection) -> View:
        """The view of the connection's moment: the one at hand when nothing changed, else a new one made from it."""
        sequence = int(connection.execute("SELECT value FROM meta WHERE key = 'sequence'").fetchone()[0])
        view = self._view
        if view is not None and view.sequence == sequence:
            return view
        with self._mutex:
            fresh = self._make(connection, self._view)
            if self._view is None or fresh.sequence > self._view.sequence:
                self._view = fresh
            return fresh

    def damage(self, connection: sqlite3.Connection) -> DamagedIndex | None:
        """What keeps the connection's moment from being searched; None when all is well."""
        try:
            self.at(connection)
        except DamagedIndex as problem:
            return problem
        return None

    def lexical(self, generation: int) -> Lexical:
        """The lexical index of a generation, opened once."""
        with self._mutex:
            if self._lexical is None or self._lexical[0] != generation:
                opened = Lexical(self._folder / generation_name(generation) / "lexical")
                self.rest()
                self._lexical = (generation, opened)
            return self._lexical[1]

    def files(self, meta: dict[str, Any]) -> VectorFiles:
        """The vector files of a moment, up to its watermark."""
        mean = np.frombuffer(meta["mean"], dtype="<f4") if "mean" in meta else np.zeros(self._dimension, np.float32)
        folder = self._folder / generation_name(int(meta["generation"]))
        count, similarity = int(meta["sealed"]), meta["similarity"]
        repeated = int(meta["format"]) >= FORMAT
        return VectorFiles(folder, self._index_id, self._dimension, count, mean, similarity, repeated=repeated)

    def rest(self) -> None:
        """Give up tantivy's writer; reading goes on."""
        if self._lexical is not None:
            self._lexical[1].close()

    def close(self) -> None:
        """Let go of everything."""
        with self._mutex:
            self.rest()
            self._lexical = self._view = None

    def _make(self, connection: sqlite3.Connection, old: View | None) -> View:
        meta = Truth.meta(connection)
        generation, deletions, sequence = int(meta["generation"]), int(meta["deletions"]), int(meta["sequence"])
        if old is not None and (old.generation != generation or old.sequence > sequence):
            old = None
        # The first question that comes makes rows of several vectors possible.
        like = int(meta["sealed"]), int(meta["format"]) >= FORMAT
        same = old if old is not None and (old.files.count, old.files.repeated) == like else None
        files = same.files if same else self.files(meta)
        hidden = old.hidden if old and old.deletions == deletions else Truth.deleted(connection)
        tail_rows, tail = self._tail(connection, same, hidden, int(meta["sealed_row"]))
        groups = read_groups(connection, hidden, (old.groups, old.last_row) if old else None)
        lexical = self.lexical(generation)
        searcher = lexical.reload()
        return View(
            sequence=sequence,
            generation=generation,
            deletions=deletions,
            dimension=self._dimension,
            last_row=Truth.last_row(connection),
            sealed_row=int(meta["sealed_row"]),
            files=files,
            lexical=lexical,
            searcher=searcher,
            frequency=lru_cache(maxsize=_TERMS)(searcher.doc_freq),
            hidden=hidden,
            dead=_flags(files, hidden),
            tail_rows=tail_rows,
            tail=tail,
            groups=groups,
            exact=same.exact if same else [],
            before=old.filtered if old else {},
        )

    def _tail(
        self, connection: sqlite3.Connection, same: View | None, hidden: Rows, sealed_row: int
    ) -> tuple[Rows, Vectors]:
        """Passages that are not in the files yet: what the last view had of them, and what came since."""
        if same is None:
            return vectors_after(connection, sealed_row, self._dimension)
        rows, vectors = vectors_after(connection, max(same.last_row, sealed_row), self._dimension)
        kept = ~among(same.tail_rows, hidden)
        return np.concatenate([same.tail_rows[kept], rows]), np.concatenate([same.tail[kept], vectors])


def _flags(files: VectorFiles, hidden: Rows) -> npt.NDArray[np.bool_] | None:
    positions = files.positions(hidden) if len(hidden) and files.count else hidden[:0]
    if not len(positions):
        return None
    dead = np.zeros(files.count, dtype=bool)
    dead[positions] = True
    return dead
