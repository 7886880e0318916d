"""Which rows of a moment were encoded by whom, kept at hand for as long as an index holds vectors of several encoders.

Most indexes have one encoder and pay nothing here. Of several, the rows of all but the largest group are kept: what is
in none of them belongs to the largest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suwen.index.counts import encoders, passages_by
from suwen.index.engine import Rows, Scale, Vectors
from suwen.index.truth import rows_of
from suwen.index.vectors import VectorFiles, among

Flags = npt.NDArray[np.bool_]


@dataclass
class Groups:
    """The passages of each encoder.

    Attributes:
        names: Who encoded anything.
        rest: The encoder of every row that is not listed.
        listed: Ascending live rows of the other encoders.
    """

    names: list[str]
    rest: str = ""
    listed: dict[str, Rows] = field(default_factory=dict)
    _dead: tuple[VectorFiles, list[Flags]] | None = None

    def scaled(self, rows: Rows, scores: Vectors, scales: Mapping[str, Scale]) -> Vectors:
        """Scores with each encoder's mapped by its scale, where it has one."""
        scaled = scores.astype(np.float32, copy=True)
        others = np.ones(len(rows), dtype=bool)
        for name, members in self.listed.items():
            there = among(rows, members)
            others &= ~there
            if (scale := scales.get(name)) is not None:
                scaled[there] = scale.slope * scores[there] + scale.offset
        if (scale := scales.get(self.rest)) is not None:
            scaled[others] = scale.slope * scores[others] + scale.offset
        return scaled

    def apart(
        self, files: VectorFiles, admitted: Rows | None, dead: Flags | None
    ) -> Iterator[tuple[Rows | None, Flags | None]]:
        """For each encoder what a search of the files among its passages alone takes: admitted rows, dead records."""
        if admitted is None:
            yield from ((None, flags) for flags in self._dead_to_each(files, dead))
            return
        others = np.ones(len(admitted), dtype=bool)
        for members in self.listed.values():
            there = among(admitted, members)
            others &= ~there
            yield admitted[there], None
        yield admitted[others], None

    def _dead_to_each(self, files: VectorFiles, dead: Flags | None) -> list[Flags]:
        """For each encoder the records that are dead or another's; those of the files at hand are remembered."""
        if self._dead is None or self._dead[0] is not files:
            rest = np.zeros(files.count, dtype=bool) if dead is None else dead.copy()
            flags = []
            for members in self.listed.values():
                positions = files.positions(members)
                rest[positions] = True
                theirs = np.ones(files.count, dtype=bool)
                theirs[positions] = False
                flags.append(theirs)
            self._dead = (files, [*flags, rest])
        return self._dead[1]


def read_groups(connection: sqlite3.Connection, hidden: Rows, before: tuple[Groups, int] | None) -> Groups:
    """The groups of a moment.

    Args:
        connection: At that moment.
        hidden: Tombstones: rows that are no longer there.
        before: The groups of an earlier moment with the same tombstones or fewer, and its highest row.
    """
    names = encoders(connection)
    if len(names) < 2:
        return Groups(names, names[0] if names else "")
    old, last = before if before else (Groups([]), 0)
    if len(old.names) < 2:
        rest, last = max(names, key=lambda name: passages_by(connection, name)), 0
    else:
        rest = old.rest
    query = "SELECT row FROM passages WHERE encoder = ? AND row > ? ORDER BY row"
    listed = {}
    for name in names:
        if name != rest:
            known = old.listed.get(name, np.empty(0, dtype=np.int64))
            came = rows_of(connection.execute(query, (name, last)))
            listed[name] = np.concatenate([known[~among(known, hidden)], came])
    return Groups(names, rest, listed)
