"""Vectors made on another machine, checked and looked up by passage. Makes none itself."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from suwen.corpora.files import not_there
from suwen.corpora.records import Passage
from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.encoders.space import SpaceMismatch
from suwen.encoders.static import unit
from suwen.retrieve.ingest import IngestError

_PROBES = 64


class ImportedVectors:
    """An ``.npy`` matrix and the passage id of each of its rows.

    The ids file has one line for each row: the passage id, and optionally a tab and the first 12 hex digits of the
    SHA-1 of the passage's content, as ``suwen encode`` writes it; where it is there, a changed text is refused.

    Args:
        vectors: The ``.npy`` file, float16 or float32, memory-mapped.
        ids: The ids file.
        pair: The pair of the index, whose space the vectors must belong to.
        space: The id of the space the vectors were made in; read from ``vectors.json`` beside the file when not given.
    """

    name = "document"

    def __init__(self, vectors: Path, ids: Path, pair: Pair, space: str | None = None) -> None:
        self.file = vectors
        self._pair = pair
        self._matrix = _matrix(vectors, pair.space.dimension)
        _check_space(vectors, pair, space)
        self._ids = sqlite3.connect("", isolation_level=None)
        self._ids.execute("CREATE TABLE ids(id TEXT PRIMARY KEY, position INTEGER, digest TEXT) WITHOUT ROWID")
        self._read_ids(ids)
        self._probed = False

    def close(self) -> None:
        """Let go of the ids."""
        self._ids.close()

    def _read_ids(self, ids: Path) -> None:
        self._ids.execute("BEGIN")
        count, insert = 0, "INSERT OR IGNORE INTO ids VALUES(?, ?, ?)"
        try:
            with ids.open(encoding="utf-8") as lines:
                for count, line in enumerate(lines, start=1):
                    id_, _, digest = line.rstrip("\n").partition("\t")
                    if self._ids.execute(insert, (id_, count - 1, digest)).rowcount == 0:
                        raise IngestError(
                            f"{ids}:{count}: passage id {id_!r} comes twice: every row needs an id of its own"
                        )
        except (OSError, UnicodeDecodeError) as problem:
            raise IngestError(f"{ids} cannot be read ({problem}): it has one passage id a line, in UTF-8") from problem
        if count != len(self._matrix):
            raise IngestError(
                f"{ids} has {count} ids and {self.file} has {len(self._matrix)} rows: they must be of one run"
            )

    def take(self, passages: Sequence[Passage]) -> Vectors:
        """The vectors of these passages, checked for finite values, unit length and changed text."""
        records = [
            self._ids.execute("SELECT position, digest FROM ids WHERE id = ?", (p.id,)).fetchone() for p in passages
        ]
        for passage, record in zip(passages, records, strict=True):
            if record is None:
                raise IngestError(
                    f"{self.file} has no vector for passage {passage.id!r}: encode the same source with the same "
                    "--size and --overlap, or drop --vectors to encode it here"
                )
            if record[1] and record[1] != hashlib.sha1(passage.content.encode()).hexdigest()[:12]:
                raise IngestError(
                    f"the text of passage {passage.id!r} has changed since {self.file} was made: encode again"
                )
        vectors = np.asarray(self._matrix[[position for position, _ in records]], dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1)
        if not np.isfinite(vectors).all():
            raise IngestError(
                f"{self.file} holds NaN or infinite values (passage {passages[0].id!r} ff.): encode again"
            )
        if self._pair.space.normalise and np.abs(lengths - 1).max(initial=0) > 0.01:
            raise IngestError(
                f"{self.file}: the vector of passage {passages[int(np.abs(lengths - 1).argmax())].id!r} has length "
                f"{lengths[int(np.abs(lengths - 1).argmax())]:.3f}, and the space's vectors have length 1: cut and "
                "renormalise them as the space says"
            )
        if not self._probed:
            self._probe(passages)
        return vectors

    def _probe(self, passages: Sequence[Passage]) -> None:
        """Hold some vectors against the pair's own encoder: aligned ones are nearer to their own text than to others'.

        Catches what an id cannot: rows in another order, another model's vectors under this space's name.
        """
        self._probed = True
        total = int(self._ids.execute("SELECT count(*) FROM ids").fetchone()[0])
        texts = list(dict.fromkeys(passage.content for passage in passages))[:_PROBES]
        if total < 8 or len(texts) < 8:
            self._probed = len(texts) >= 8 or total < 8
            return
        chosen = {passage.content: passage.id for passage in passages}
        query = "SELECT position FROM ids WHERE id = ?"
        rows = [self._ids.execute(query, (chosen[text],)).fetchone()[0] for text in texts]
        given = np.asarray(self._matrix[rows], dtype=np.float32)
        # By directions: the longest vector would be nearest to every text.
        scores = self._pair.encoder().encode_documents(texts) @ (given if self._pair.space.normalise else unit(given)).T
        nearest = float((scores.argmax(axis=1) == np.arange(len(texts))).mean())
        if nearest < 0.5:
            raise IngestError(
                f"{self.file} does not look like vectors of space {self._pair.space.id}: only {nearest:.0%} of "
                f"{len(texts)} probed passages are nearest to their own vector. Check that ids and rows belong "
                "together and that the vectors were made with this pair's document encoder"
            )


def _matrix(file: Path, dimension: int) -> Any:
    if not file.exists():
        raise IngestError(not_there(file))
    try:
        matrix = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as problem:
        raise IngestError(f"{file} is not a readable .npy matrix ({problem}): write it with numpy.save") from problem
    if not isinstance(matrix, np.ndarray):
        raise IngestError(f"{file} is an archive of arrays, not one .npy matrix: write it with numpy.save")
    if matrix.ndim != 2 or matrix.dtype not in (np.float16, np.float32) or matrix.shape[1] != dimension:
        raise IngestError(
            f"{file} holds {matrix.dtype} of shape {matrix.shape}: the space needs float16 or float32 with "
            f"{dimension} columns"
        )
    return matrix


def _check_space(file: Path, pair: Pair, space: str | None) -> None:
    beside = file.with_name("vectors.json")
    if space is None and beside.is_file():
        try:
            space = str(json.loads(beside.read_text(encoding="utf-8"))["space"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise IngestError(
                f"{beside} cannot be read ({problem!r}): copy it again with the vectors, or give --space ID"
            ) from problem
    if not space:
        raise IngestError(
            f"nothing says in which space {file} was made: keep the vectors.json 'suwen encode' wrote beside it, or "
            f"give --space ID (this pair's space is {pair.space.id})"
        )
    if space != pair.space.id:
        raise SpaceMismatch(pair.space.id, space, needed_name=pair.name)
