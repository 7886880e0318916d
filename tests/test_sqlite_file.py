"""Small SQLite stores: what 0.1.0 wrote opens unchanged, new files are of the same form, others are refused."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from suwen.jury.review import Reviews
from suwen.jury.texts import Texts
from suwen.jury.votes import Votes
from suwen.llm.reply_cache import Cache
from suwen.sqlite_file import SqliteFile

#: What 0.1.0 made: the statements, the application's number, the version, and the journal.
OLD: dict[type[SqliteFile], tuple[tuple[str, ...], int, int, str]] = {
    Cache: (
        (
            """CREATE TABLE replies (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, text TEXT NOT NULL, finish TEXT NOT NULL, served TEXT NOT NULL,
    tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, cost REAL NOT NULL, at REAL NOT NULL
) WITHOUT ROWID""",
            """CREATE TABLE calls (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, model TEXT NOT NULL, caller TEXT NOT NULL, key TEXT NOT NULL,
    outcome TEXT NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, cost REAL NOT NULL,
    seconds REAL NOT NULL
)""",
        ),
        0x53574C4D,
        1,
        "wal",
    ),
    Votes: (
        (
            """CREATE TABLE judges (
    name TEXT PRIMARY KEY, model TEXT NOT NULL, served TEXT NOT NULL, prompt TEXT NOT NULL, fingerprint TEXT NOT NULL,
    enrolled INTEGER NOT NULL
) WITHOUT ROWID""",
            """CREATE TABLE votes (
    query_id TEXT NOT NULL, passage_id TEXT NOT NULL, judge TEXT NOT NULL, round INTEGER NOT NULL, grade TEXT,
    abstained TEXT, reason TEXT NOT NULL, model TEXT NOT NULL, prompt TEXT NOT NULL, fingerprint TEXT NOT NULL,
    reply_key TEXT NOT NULL, position INTEGER NOT NULL, batch INTEGER NOT NULL, cut INTEGER NOT NULL,
    digest TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (query_id, passage_id, judge, round), CHECK ((grade IS NULL) <> (abstained IS NULL))
) WITHOUT ROWID""",
        ),
        0x5357564F,
        1,
        "wal",
    ),
    Texts: (
        ("CREATE TABLE passages (id TEXT PRIMARY KEY, title TEXT, text TEXT) WITHOUT ROWID",),
        0,
        0,
        "delete",
    ),
    Reviews: (
        (
            """CREATE TABLE labels (
    id INTEGER PRIMARY KEY, pair TEXT NOT NULL, reviewer TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL,
    source TEXT NOT NULL, at REAL NOT NULL)""",
        ),
        0,
        0,
        "wal",
    ),
}


def state(path: Path) -> list[object]:
    base = sqlite3.connect(path)
    questions = ("PRAGMA application_id", "PRAGMA user_version", "PRAGMA journal_mode", "SELECT sql FROM sqlite_master")
    rows = [base.execute(question).fetchall() for question in questions]
    base.close()
    return rows


@pytest.mark.parametrize("kind", OLD, ids=lambda kind: kind.__name__)
def test_a_file_of_the_last_release_opens_unchanged_and_new_ones_are_of_its_form(
    tmp_path: Path, kind: type[SqliteFile]
) -> None:
    statements, application, version, journal = OLD[kind]
    base = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    base.execute(f"PRAGMA journal_mode={journal}")
    for statement in statements:
        base.execute(statement)
    base.execute(f"PRAGMA application_id={application}")
    base.execute(f"PRAGMA user_version={version}")
    base.close()
    before = state(tmp_path / "old.db")
    kind(tmp_path / "old.db", create=False).close()
    kind(tmp_path / "new.db", create=True).close()
    assert state(tmp_path / "old.db") == before == state(tmp_path / "new.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.db", "old.db"]


@pytest.mark.parametrize("kind", OLD, ids=lambda kind: kind.__name__)
def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path, kind: type[SqliteFile]) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(kind.problem, match="is a database of something else: name another file for"):
        kind(tmp_path / "other.db", create=True)
    assert (tmp_path / "other.db").read_bytes() == before
    with pytest.raises(kind.problem, match=r"there is no .*absent"):
        kind(tmp_path / "absent.db", create=False)
    assert not (tmp_path / "absent.db").exists()


def test_threads_write_one_after_the_other_and_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with Reviews(tmp_path / "r.db") as store:

        def write(number: int) -> None:
            with store.writing() as base:
                (count,) = base.execute("SELECT count(*) FROM labels").fetchone()
                base.execute("INSERT INTO labels VALUES (NULL, ?, '', '', '', '', ?)", (str(count), float(number)))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        def fail() -> None:
            with store.writing() as base:
                base.execute("DELETE FROM labels")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert [pair for (pair,) in store.rows("SELECT pair FROM labels ORDER BY id")] == [str(n) for n in range(20)]
        assert len(list(store.stream("SELECT * FROM labels WHERE at < ?", (10,)))) == 10
