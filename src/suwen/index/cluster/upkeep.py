"""Bringing the searcher of a cluster index in line with its truth, and telling where it is not."""

from __future__ import annotations

import contextlib
import zlib

import numpy as np
import psycopg

from suwen.index.cluster import questions, stored, words
from suwen.index.cluster.batch import New
from suwen.index.cluster.cut import Cut, terms_in
from suwen.index.cluster.searcher import Searcher
from suwen.index.cluster.truth import Connection, Meta, read_meta
from suwen.index.cluster.wire import CHUNK, rows_of
from suwen.index.engine import DamagedIndex, Progress, Rows


def rebuild(connection: Connection, meta: Meta, searcher: Searcher, progress: Progress | None) -> None:
    """Derive the next generation beside the one in use; it counts once the caller's transaction commits."""
    generation, done = meta.generation + 1, 0
    words.drop(connection, generation)
    searcher.drop(connection, meta, generation)
    words.create(connection, generation, searcher.outside)
    searcher.create(connection, meta, generation)
    if meta.searched:
        meta = with_means(meta, meta.searched, (meta.words, meta.bigrams))
    totals = np.zeros(3, dtype=np.int64)
    for rows, vectors in stored.all_vectors(connection, meta.dimension):
        cut = Cut(stored.contents_of(connection, rows))
        searcher.insert(connection, meta, generation, rows, vectors, cut)
        words.add(connection, generation, rows, cut, searcher.outside)
        totals += [len(rows), *cut.totals]
        done += len(rows)
        if progress:
            progress(done, meta.passages)
    for rows, _, vectors in questions.every(connection, meta.dimension):
        searcher.insert(connection, meta, generation, rows, vectors, Cut([""] * len(rows)))
    connection.execute("DELETE FROM gone")
    connection.execute("DELETE FROM doomed")
    query = """UPDATE meta SET generation = %s, searcher = %s, searched = %s, words = %s, bigrams = %s,
               mean_words = %s, mean_bigrams = %s"""
    connection.execute(query, (generation, searcher.name, *totals.tolist(), meta.mean_words, meta.mean_bigrams))
    searcher.ready(connection, read_meta(connection))


def sweep(connection: Connection, meta: Meta, searcher: Searcher) -> None:
    """Name the generation in use, and drop older ones; one that a reader still looks at stays until the next time."""
    searcher.switched(meta)
    for generation in sorted(words.generations(connection) - {meta.generation}):
        with contextlib.suppress(psycopg.errors.LockNotAvailable), connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '500ms'")
            words.drop(connection, generation)
    # Readers hold the words of their generation, whatever the searcher is.
    kept = words.generations(connection) | {meta.generation}
    for generation in sorted(searcher.generations(connection, meta) - kept):
        searcher.drop(connection, meta, generation)


def with_means(meta: Meta, texts: int, totals: tuple[int, int]) -> Meta:
    """The state with the mean lengths of so many texts frozen."""
    return meta._replace(mean_words=totals[0] / texts or 1.0, mean_bigrams=totals[1] / texts or 1.0)


def reserve(connection: Connection, meta: Meta, new: New) -> Meta:
    """Give out rows for a write that a searcher outside will hear of first; until it commits they are doomed."""
    if not meta.searched and new.passages:
        meta = with_means(meta, new.passages, new.cut.totals)
    query = "UPDATE meta SET last_row = last_row + %s, mean_words = %s, mean_bigrams = %s"
    connection.execute(query, (new.count, meta.mean_words, meta.mean_bigrams))
    query = "INSERT INTO doomed(first, last) VALUES (%s, %s)"
    connection.execute(query, (new.first, meta.last_row + new.count))
    return meta


def spare(connection: Connection, first: int, gone: Rows) -> bool:
    """In the transaction that stores reserved rows: they are doomed no more, and those gone are. Whether any are."""
    connection.execute("DELETE FROM doomed WHERE first = %s", (first,))
    query = "INSERT INTO doomed(first, last) SELECT row, row FROM unnest(%s::bigint[]) AS row"
    connection.execute(query, (gone.tolist(),))
    return bool((connection.execute("SELECT EXISTS(SELECT 1 FROM doomed)").fetchone() or (False,))[0])


def remove_doomed(connection: Connection, meta: Meta, searcher: Searcher) -> None:
    """Take from a searcher outside the rows that no reader's moment has any more, on this server or its standbys."""
    query = """DELETE FROM doomed WHERE age(by) > (SELECT coalesce(max(age(backend_xmin)), 0) FROM pg_stat_activity
               WHERE pid <> pg_backend_pid()) RETURNING first, last"""
    ranges = connection.execute(query).fetchall()
    rows = np.concatenate([np.empty(0, np.int64), *(np.arange(first, last + 1) for first, last in ranges)])
    if len(rows):
        searcher.remove(connection, meta, rows)


def mend(connection: Connection, meta: Meta, searcher: Searcher) -> str:
    """Give the searcher the rows it lacks and take away those it should not have; what was done, if anything was."""
    (doomed,) = connection.execute("SELECT coalesce(sum(last - first + 1), 0) FROM doomed").fetchone() or (0,)
    if not doomed and searcher.is_whole(connection, meta):
        return ""
    there, asked = _passages(connection), questions.rows(connection)
    held = searcher.rows(connection, meta)
    foreign, lacking = np.setdiff1d(held, np.concatenate([there, asked])), np.setdiff1d(there, held)
    if len(foreign) and not (doomed and searcher.outside):
        searcher.remove(connection, meta, foreign)
    for start in range(0, len(lacking), CHUNK):
        part = lacking[start : start + CHUNK]
        vectors, cut = stored.vectors_of(connection, part, meta.dimension), Cut(stored.contents_of(connection, part))
        searcher.insert(connection, meta, meta.generation, part, vectors, cut)
    if len(unasked := np.setdiff1d(asked, held)):
        for rows, _, vectors in questions.every(connection, meta.dimension):
            lost = np.isin(rows, unasked)
            if lost.any():
                cut = Cut([""] * int(lost.sum()))
                searcher.insert(connection, meta, meta.generation, rows[lost], vectors[lost], cut)
        lacking = np.concatenate([lacking, unasked])
    if not len(lacking) and (not len(foreign) or doomed):
        return ""
    return f"the searcher lacked {len(lacking)} rows and had {len(foreign)} too many"


def is_lost(connection: Connection, meta: Meta, searcher: Searcher) -> bool:
    """Whether what is derived is not there, or its words are all gone."""
    if meta.generation not in words.generations(connection) or not searcher.is_there(connection, meta):
        return True
    if searcher.outside and words.lacks_rows(connection, meta.generation):
        return True
    return meta.words + meta.bigrams > 0 and not words.is_filled(connection, meta.generation)


def verify(connection: Connection, meta: Meta, searcher: Searcher, progress: Progress | None) -> list[str]:
    """Every problem of the truth and of what is derived from it, in words with the fix."""
    problems = _check_vectors(connection, meta, progress) + questions.problems(connection, meta.dimension)
    there, asked = _passages(connection), questions.rows(connection)
    for found, counted, what in ((there, meta.passages, "passages"), (asked, meta.questions, "questions")):
        if len(found) != counted:
            problems.append(f"{len(found)} {what} are there and {counted} are counted: restore a backup")
    try:
        with connection.transaction():
            held = searcher.rows(connection, meta)
            searched = words.rows(connection, meta.generation, searcher.outside)
    except (psycopg.errors.UndefinedTable, DamagedIndex) as problem:
        return [*problems, f"the searcher is gone ({' '.join(str(problem).split())}): run 'suwen rebuild'"]
    doomed = [np.arange(one, last + 1) for one, last in connection.execute("SELECT first, last FROM doomed")]
    held = np.setdiff1d(held, np.concatenate([np.empty(0, np.int64), *doomed]))
    every = np.concatenate([there, asked])
    if len(lacking := np.setdiff1d(every, held)):
        problems.append(f"the searcher lacks {len(lacking)} rows, the first is {lacking[0]}: run 'suwen rebuild'")
    if len(foreign := np.setdiff1d(held, every)):
        problems.append(f"the searcher has {len(foreign)} rows that are not in the truth: run 'suwen rebuild'")
    return problems + _check_words(connection, there, searched)


def _passages(connection: Connection) -> Rows:
    return rows_of(connection.execute("SELECT row FROM passages ORDER BY row"))


def _check_vectors(connection: Connection, meta: Meta, progress: Progress | None) -> list[str]:
    query = """SELECT row, vector, checksum FROM passages LEFT JOIN vectors USING (row)
               WHERE row > %s ORDER BY row LIMIT %s"""
    problems, after, done = [], 0, 0
    while records := connection.cursor(binary=True).execute(query, (after, CHUNK)).fetchall():
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
    wrong = [item.row for item in stored.fetch(connection, lacking.tolist()) if terms_in(item.passage.content)]
    if not wrong:
        return []
    return [f"{len(wrong)} passages cannot be found by their words, the first is row {wrong[0]}: run 'suwen rebuild'"]
