"""The file of replies."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from suwen.llm.reply_cache import Cache, CacheProblem, Call, Stored

REPLY = Stored("答", "stop", "m-1", 3, 1, 0.5)
CALL = Call("m", "q1", "k", "reply", 3, 1, 0.5, 2.0)
SOURCE = Path(__file__).parents[2] / "src"


def test_a_reply_is_kept_with_its_call(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "replies.db")
    assert cache.get("k") is None
    assert cache.put("k", "{}", REPLY, CALL) == REPLY
    cache.enter(CALL._replace(outcome="429", tokens_in=0, tokens_out=0, cost=0.0))
    cache.close()
    again = Cache(tmp_path / "deep" / "replies.db")
    assert again.get("k") == REPLY
    (row,) = again.ledger()
    assert (row.calls, row.replies, row.tokens_in, row.tokens_out, row.cost, row.seconds) == (2, 1, 3, 1, 0.5, 4.0)


def test_the_first_reply_is_everyones(tmp_path: Path) -> None:
    one, two = Cache(tmp_path / "r.db"), Cache(tmp_path / "r.db")
    one.put("k", "{}", REPLY, CALL)
    assert two.put("k", "{}", REPLY._replace(text="other"), CALL) == REPLY
    assert len(one) == 1 and one.ledger()[0].calls == 2


def test_writes_are_synced(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "r.db")
    assert cache.rows("PRAGMA synchronous") == [(2,)]
    assert cache.rows("PRAGMA journal_mode") == [("wal",)]


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    with pytest.raises(CacheProblem, match="something else"):
        Cache(tmp_path / "other.db")
    (tmp_path / "text").write_text("no database, just a text that is long enough" * 9)
    with pytest.raises(CacheProblem, match="name another file"):
        Cache(tmp_path / "text")
    with pytest.raises(CacheProblem, match="name another file"):
        Cache(tmp_path)


def test_a_newer_form_is_refused(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "r.db")
    cache.rows("PRAGMA user_version=99")
    cache.close()
    with pytest.raises(CacheProblem, match="newer suwen"):
        Cache(tmp_path / "r.db")


WRITER = """
import sys
from pathlib import Path
from suwen.llm.reply_cache import Cache, Call, Stored
cache, name = Cache(Path(sys.argv[1])), sys.argv[2]
for number in range(40):
    key = f"k{number}"
    kept = cache.put(key, "{}", Stored(name, "stop", "", 1, 1, 0.0), Call(name, "", key, "reply", 1, 1, 0.0, 0.0))
    assert cache.get(key) == kept
"""


def test_processes_share_the_file_from_its_making_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "r.db")]
    environment = {"PYTHONPATH": str(SOURCE)}
    both = [subprocess.Popen([*command, name], env=environment) for name in ("one", "two", "three")]
    assert [one.wait() for one in both] == [0, 0, 0]
    cache = Cache(tmp_path / "r.db")
    assert len(cache) == 40
    assert {row.model: row.calls for row in cache.ledger()} == {"one": 40, "two": 40, "three": 40}
