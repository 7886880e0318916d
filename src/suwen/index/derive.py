"""Deriving a generation of files from the truth, streamed, beside the files in use. Publishes nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from suwen.durable import sync
from suwen.index.engine import Progress, Vectors
from suwen.index.lexical import Lexical
from suwen.index.stored_vectors import all_vectors, decode_vectors
from suwen.index.truth import Truth
from suwen.index.vectors import Block, VectorFiles


def generation_name(number: int) -> str:
    """The folder of a generation."""
    return f"gen-{number:06d}"


def derive(
    connection: sqlite3.Connection, folder: Path, index_id: str, dimension: int, progress: Progress | None
) -> dict[str, Any]:
    """Write the next generation's folder from one moment of the truth.

    Returns:
        What the truth must say once the new files count: the watermarks and the mean, the ``blocks`` written, and the
        rows ``gone`` whose tombstones are folded in.
    """
    meta = Truth.meta(connection)
    generation, similarity = int(meta["generation"]) + 1, meta["similarity"]
    last, gone = Truth.last_row(connection), Truth.deleted(connection)
    made, final = folder / (generation_name(generation) + ".new"), folder / generation_name(generation)
    for stale in (made, final):
        shutil.rmtree(stale, ignore_errors=True)
    made.mkdir()
    total = int(connection.execute("SELECT count(*) FROM passages").fetchone()[0])
    mean = _mean(connection, last, dimension)
    VectorFiles.create(made, index_id, dimension, similarity)
    files = VectorFiles(made, index_id, dimension, 0, mean, similarity)
    blocks = _write_vectors(connection, files, total, progress)
    lexical = Lexical(made / "lexical", create=True)
    lexical.add(_counted(Truth.contents(connection, 0), total, progress))
    lexical.close()
    sync(made)
    made.rename(final)
    sync(folder)
    watermarks = {"generation": generation, "sealed": files.count, "sealed_row": last, "lexical_row": last}
    return {**watermarks, "mean": mean.astype("<f4").tobytes(), "blocks": blocks, "gone": gone}


def _write_vectors(
    connection: sqlite3.Connection, files: VectorFiles, total: int, progress: Progress | None
) -> list[Block]:
    blocks: list[Block] = []
    for rows, vectors in all_vectors(connection, files.dimension):
        blocks.append(files.append(rows, vectors))
        files.count += len(rows)
        if progress:
            # Questions count with the passage they are of.
            progress(min(files.count, total), 2 * total)
    return blocks


def _mean(connection: sqlite3.Connection, last: int, dimension: int, most: int = 8192) -> Vectors:
    """The mean of vectors spread evenly over the index: enough for the sign bits, without reading everything."""
    query = "SELECT row, vector FROM vectors WHERE row >= ? ORDER BY row LIMIT 1"
    starts = np.unique(np.linspace(1, max(last, 1), most).astype(np.int64))
    blobs = dict(row for start in starts if (row := connection.execute(query, (int(start),)).fetchone()))
    if not blobs:
        return np.zeros(dimension, dtype=np.float32)
    return np.asarray(decode_vectors(list(blobs.values()), dimension).mean(axis=0), dtype=np.float32)


def _counted(contents: Iterator[tuple[int, str]], total: int, progress: Progress | None) -> Iterator[tuple[int, str]]:
    for number, item in enumerate(contents, start=1):
        yield item
        if progress and (number % 1000 == 0 or number == total):
            progress(total + number, 2 * total)
