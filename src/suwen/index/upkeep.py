"""Looking after the folder of an embedded index: making it, the full check, backup and restore. Repairs nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from pathlib import Path

import numpy as np
import tantivy

from suwen.durable import replacing, sync
from suwen.index.engine import IndexProblem, Progress, Rows
from suwen.index.stored_vectors import has_questions
from suwen.index.truth import FILE, Truth, not_written, rows_of
from suwen.index.vectors import Block
from suwen.index.view import View


def check_truth(connection: sqlite3.Connection, dimension: int, progress: Progress | None = None) -> list[str]:
    """Problems of the truth itself: SQLite's own check, and every vector against its checksum."""
    try:
        words = [line for (line,) in connection.execute("PRAGMA quick_check")]
    except sqlite3.DatabaseError as problem:
        words = [str(problem)]
    problems = [f"truth: {line}; restore a backup" for line in words if line != "ok"]
    if problems:
        return problems
    missing = "SELECT count(*) FROM passages WHERE row NOT IN (SELECT row FROM vectors)"
    if count := connection.execute(missing).fetchone()[0]:
        problems.append(f"truth: {count} passages have no vector; index their source again")
    total = int(connection.execute("SELECT count(*) FROM passages").fetchone()[0])
    query = "SELECT row, vector, checksum FROM vectors"
    if has_questions(connection):
        query += " UNION ALL SELECT row, vector, checksum FROM questions"
        lost = "SELECT count(*) FROM questions WHERE row NOT IN (SELECT row FROM passages)"
        if count := connection.execute(lost).fetchone()[0]:
            problems.append(f"truth: {count} questions are of no passage; index their source again")
    for number, (row, blob, checksum) in enumerate(connection.execute(query), start=1):
        if zlib.crc32(blob) != checksum or len(blob) != 2 * dimension:
            owner = "SELECT id FROM documents JOIN passages ON document = number WHERE row = ?"
            (id_,) = connection.execute(owner, (row,)).fetchone() or ("?",)
            problems.append(f"truth: the vector of a passage of document {id_!r} is damaged; add the document again")
        if progress and number % 10_000 == 0:
            progress(min(number, total), total)
    return problems


def verify(connection: sqlite3.Connection, view: View, progress: Progress | None = None) -> list[str]:
    """Every difference between the truth and the derived files, in words."""
    problems = check_truth(connection, view.dimension, progress)
    if problems:
        return problems
    live = rows_of(connection.execute("SELECT row FROM passages ORDER BY row"))
    rebuild = f"run 'suwen rebuild {view.files.folder.parent}'"
    for position, count, checksums in connection.execute("SELECT * FROM blocks ORDER BY position"):
        for kind in view.files.check_block(Block(position, count, json.loads(checksums))):
            problems.append(f"{view.files.folder.name}/{kind} is damaged at records {position}+{count}; {rebuild}")
    every = _repeated(connection, live)
    if len(differing := _differ(np.concatenate([view.files.rows, view.tail_rows]), every, view.hidden)):
        problems.append(f"the vector files and the truth disagree on {len(differing)} passages; {rebuild}")
    lexical = _lexical_rows(view.searcher)
    # Rows past the watermark were left by a call that was cut off: nobody sees them, and the next writer sweeps them.
    if len(differing := _differ(lexical[lexical <= view.last_row], live, view.hidden)):
        problems.append(f"the lexical index and the truth disagree on {len(differing)} passages; {rebuild}")
    return problems


def _repeated(connection: sqlite3.Connection, live: Rows) -> Rows:
    """Live rows as vector files hold them: once, and once more for each question."""
    if not has_questions(connection):
        return live
    return np.concatenate([live, rows_of(connection.execute("SELECT row FROM questions"))])


def _differ(held: Rows, live: Rows, hidden: Rows) -> Rows:
    """Rows that are live and not held, held and neither live nor a tombstone, or held another number of times."""
    held = held[~np.isin(held, hidden)]
    (values, counts), (wanted, times) = (np.unique(rows, return_counts=True) for rows in (held, live))
    both = np.intersect1d(values, wanted)
    wrong = counts[np.searchsorted(values, both)] != times[np.searchsorted(wanted, both)]
    return np.concatenate([np.setxor1d(values, wanted), both[wrong]])


def _lexical_rows(searcher: tantivy.Searcher) -> Rows:
    if searcher.num_docs == 0:
        return np.empty(0, dtype=np.int64)
    hits = searcher.search(tantivy.Query.all_query(), limit=searcher.num_docs, count=False).hits
    return np.asarray(searcher.fast_field_values("row", [address for _, address in hits]), dtype=np.int64)


def backup(truth: Truth, target: Path) -> Path:
    """A consistent copy of the truth while it is in use; the derived files are not worth copying."""
    _make_empty(target, "give a new folder for the backup")
    unfinished = target / "truth.new"
    try:
        with truth.undisturbed():
            truth.reader().execute("VACUUM INTO ?", (str(unfinished),))
        sync(unfinished)
        unfinished.rename(target / FILE)
        sync(target)
    except (sqlite3.OperationalError, OSError) as problem:
        raise not_written(f"the backup to {target}", problem, "Free space and try again") from problem
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def restore(source: Path, target: Path) -> None:
    """Lay a backup down as an index folder; opening it derives the rest."""
    if not (source / FILE).is_file():
        raise IndexProblem(f"{source} is not a backup (no {FILE}): give the folder that 'suwen backup' wrote")
    if (log := source / f"{FILE}-wal").exists() and log.stat().st_size:
        raise IndexProblem(f"{source} is an index in use, not a backup: copy it with 'suwen backup' first")
    _make_empty(target, "restore to a new folder, then swap the two")
    with (source / FILE).open("rb") as kept, replacing(target / FILE) as stream:
        shutil.copyfileobj(kept, stream, 1 << 20)


def make_ready(folder: Path) -> None:
    """Make a folder for a new index, or refuse one that holds anything else than what a cut-off call left."""
    _make_folder(folder, "choose another place")
    if (folder / FILE).exists():
        raise IndexProblem(f"{folder} is an index already: open it, or choose another folder")
    names = [entry.name for entry in folder.iterdir()]
    foreign = [name for name in names if name != "lock" and not name.startswith("truth.new")]
    if foreign:
        raise IndexProblem(f"{folder} holds other files ({foreign[0]}, …): give a new or empty folder for the index")


def _make_empty(target: Path, fix: str) -> None:
    _make_folder(target, fix)
    if any(target.iterdir()):
        raise IndexProblem(f"{target} is not empty: {fix}")


def _make_folder(folder: Path, fix: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise IndexProblem(f"{folder} cannot be made a folder ({problem}): {fix}") from problem
