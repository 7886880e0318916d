"""Bringing the searcher of a cluster index in line with its truth, and telling where it is not."""

from __future__ import annotations

import contextlib
import zlib

import numpy as np
import psycopg

from suwen.index.cluster import stored, words
from suwen.index.cluster.searcher import Searcher
from suwen.index.cluster.truth import Connection, Meta, read_meta
from suwen.index.engine import Progress, Rows


def rebuild(connection: Connection, meta: Meta, searcher: Searcher, progress: Progress | None) -> None:
    """Derive the next generation beside the one in use; it counts once the caller's transaction commits."""
    generation, done = meta.generation + 1, 0
    drop(connection, searcher, generation)
    words.create(connection, generation)
    searcher.create(connection, meta, generation)
    for rows, vectors in stored.all_vectors(connection, meta.dimension):
        searcher.insert(connection, generation, rows, vectors)
        done += len(rows)
        if progress:
            progress(done, 2 * meta.passages)
    for count in words.rebuild(connection, generation, stored.contents(connection)):
        done += count
        if progress:
            progress(done, 2 * meta.passages)
    connection.execute("DELETE FROM gone")
    connection.execute("UPDATE meta SET generation = %s", (generation,))
    searcher.ready(connection, read_meta(connection))


def drop(connection: Connection, searcher: Searcher, generation: int) -> None:
    """Forget a generation, if it is there."""
    connection.execute(f"DROP TABLE IF EXISTS {words.table(generation)}".encode())
    searcher.drop(connection, generation)


def sweep(connection: Connection, meta: Meta, searcher: Searcher) -> None:
    """Drop older generations; one that a reader still looks at stays until the next time."""
    query = r"""SELECT DISTINCT substring(relname from '^(?:words|near)_([0-9]+)$')::bigint FROM pg_class
                WHERE relnamespace = current_schema()::regnamespace AND relname ~ '^(words|near)_[0-9]+$'"""
    for (generation,) in connection.execute(query).fetchall():
        if generation != meta.generation:
            with contextlib.suppress(psycopg.errors.LockNotAvailable), connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '500ms'")
                drop(connection, searcher, generation)


def mend(connection: Connection, meta: Meta, searcher: Searcher) -> str:
    """Give the searcher the rows it lacks and take away those it should not have; what was done, if anything was."""
    there = stored.rows_of(connection.execute("SELECT row FROM passages ORDER BY row"))
    held = searcher.rows(connection, meta.generation)
    foreign, lacking = np.setdiff1d(held, there), np.setdiff1d(there, held)
    if len(foreign):
        searcher.remove(connection, meta.generation, foreign)
    for start in range(0, len(lacking), stored.CHUNK):
        part = lacking[start : start + stored.CHUNK]
        searcher.insert(connection, meta.generation, part, stored.vectors_of(connection, part, meta.dimension))
    if not len(foreign) and not len(lacking):
        return ""
    return f"the searcher lacked {len(lacking)} rows and had {len(foreign)} too many"


def is_lost(connection: Connection, meta: Meta, searcher: Searcher) -> bool:
    """Whether what is derived is not there, or its words are all gone."""
    for table in (words.table(meta.generation), searcher.table(meta.generation)):
        found = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
        if found is None or found[0] is None:
            return True
    return meta.words + meta.bigrams > 0 and not words.is_filled(connection, meta.generation)


def verify(connection: Connection, meta: Meta, searcher: Searcher, progress: Progress | None) -> list[str]:
    """Every problem of the truth and of what is derived from it, in words with the fix."""
    problems = _check_vectors(connection, meta, progress)
    there = stored.rows_of(connection.execute("SELECT row FROM passages ORDER BY row"))
    if len(there) != meta.passages:
        problems.append(f"{len(there)} passages are there and {meta.passages} are counted: restore a backup")
    try:
        with connection.transaction():
            held = searcher.rows(connection, meta.generation)
            searched = words.rows(connection, meta.generation)
    except psycopg.errors.UndefinedTable as problem:
        return [*problems, f"the searcher is gone ({' '.join(str(problem).split())}): run 'suwen rebuild'"]
    if len(lacking := np.setdiff1d(there, held)):
        problems.append(f"the searcher lacks {len(lacking)} rows, the first is {lacking[0]}: run 'suwen rebuild'")
    if len(foreign := np.setdiff1d(held, there)):
        problems.append(f"the searcher has {len(foreign)} rows that are not in the truth: run 'suwen rebuild'")
    return problems + _check_words(connection, there, searched)


def _check_vectors(connection: Connection, meta: Meta, progress: Progress | None) -> list[str]:
    query = """SELECT row, vector, checksum FROM passages LEFT JOIN vectors USING (row)
               WHERE row > %s ORDER BY row LIMIT %s"""
    problems, after, done = [], 0, 0
    while records := connection.cursor(binary=True).execute(query, (after, stored.CHUNK)).fetchall():
        for row, vector, checksum in records:
            if vector is None or zlib.crc32(vector) != checksum or len(vector) != 2 * meta.dimension:
                problems.append(f"the vector of row {row} is missing or damaged: add its document again")
        after, done = records[-1][0], done + len(records)
        if progress:
            progress(done, meta.passages)
    return problems


def _check_words(connection: Connection, there: Rows, searched: Rows) -> list[str]:
    """Rows without any term may be texts without any: those are cut again to see."""
    lacking = np.setdiff1d(there, searched)
    wrong = [item.row for item in stored.fetch(connection, lacking.tolist()) if words.cut(item.passage.content)]
    if not wrong:
        return []
    return [f"{len(wrong)} passages cannot be found by their words, the first is row {wrong[0]}: run 'suwen rebuild'"]
