"""An index in a folder that its reader may not write to: what is found there, and what is said."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive import encoded, ids_of, unit

from suwen.index import read_only_folder
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import IndexProblem

Make = Callable[..., EmbeddedEngine]
#: Answers each line it reads, in a process that may not write to the folder.
READER = """
import json, os, sys
from suwen.index.embedded import EmbeddedEngine
from suwen.errors import SuwenError

def answer(engine):
    with engine.snapshot() as snapshot:
        vector = [1.0] + [0.0] * 15
        found = snapshot.dense(vector, 50).rows.tolist(), snapshot.lexical("高血压", 50).rows.tolist()
    return [engine.ids(), *found]

folder = sys.argv[1]
assert not os.access(folder, os.W_OK), "the test is of no use: this process may write there"
engine = None
for line in sys.stdin:
    try:
        engine = engine or EmbeddedEngine.open(folder, write=line.strip() == "write")
        told = answer(engine)
    except SuwenError as problem:
        told = str(problem)
    print(json.dumps(told, ensure_ascii=False), flush=True)
"""


def give_up_rights() -> None:
    """What lets the superuser write anywhere; nobody else has it."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE: gone with the next program


def set_writable(folder: Path, yes: bool) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod((path.stat().st_mode | 0o200) if yes else (path.stat().st_mode & ~0o222))


class Reader:
    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=give_up_rights,
        )

    def ask(self, how: str = "read") -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(how + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Callable[[Path], Reader]]:
    readers: list[Reader] = []

    def begin(folder: Path) -> Reader:
        set_writable(folder, False)
        readers.append(Reader(folder))
        return readers[-1]

    yield begin
    for one in readers:
        one.close()
    for folder in tmp_path.iterdir():
        set_writable(folder, True)


def changed(folder: Path, change: Callable[[EmbeddedEngine], object]) -> None:
    """What somebody who may write does meanwhile."""
    set_writable(folder, True)
    engine = EmbeddedEngine.open(folder, write=True, seal=8)
    change(engine)
    engine.close()
    set_writable(folder, False)


def found(folder: Path) -> list[Any]:
    vector = np.eye(1, 16, dtype=np.float32)[0]
    engine = EmbeddedEngine.open(folder)
    with engine.snapshot() as snapshot:
        ranked = snapshot.dense(vector, 50).rows.tolist(), snapshot.lexical("高血压", 50).rows.tolist()
    ids = engine.ids()
    engine.close()
    return [ids, *ranked]


def one(id_: str) -> list[Any]:
    return [encoded(id_, ["高血压 又一篇"], unit(np.random.default_rng(3), 1, 16))]


def test_it_is_searched_as_any_other_and_nothing_is_written(
    made: Make, tmp_path: Path, reader: Callable[[Path], Reader]
) -> None:
    made().close()
    folder = tmp_path / "index"
    wanted, files = found(folder), sorted(folder.rglob("*"))
    assert reader(folder).ask() == wanted
    assert sorted(folder.rglob("*")) == files


def test_what_others_write_meanwhile_is_seen(made: Make, tmp_path: Path, reader: Callable[[Path], Reader]) -> None:
    made().close()
    folder = tmp_path / "index"
    asked = reader(folder)
    assert asked.ask() == found(folder)
    for change in (
        lambda engine: engine.add(one("new")),
        lambda engine: engine.delete(["d1", "d2"]),
        lambda engine: engine.rebuild(),
        lambda engine: engine.add(one("newer")),
    ):
        changed(folder, change)
        assert asked.ask() == found(folder)
    assert {"new", "newer"} <= set(asked.ask()[0])


def test_a_writer_at_work_is_followed(made: Make, tmp_path: Path, reader: Callable[[Path], Reader]) -> None:
    writer = made()
    folder = tmp_path / "index"
    asked = reader(folder)  # with the writer's log beside the truth, which stays writable to it: it has it open
    assert asked.ask() == found(folder)
    set_writable(folder, True)
    writer.add(one("new"))
    set_writable(folder, False)
    assert "new" in asked.ask()[0]
    writer.close()
    assert asked.ask() == found(folder)


def test_writing_is_refused_in_plain_words(made: Make, tmp_path: Path, reader: Callable[[Path], Reader]) -> None:
    made().close()
    assert "could not write" in (told := reader(tmp_path / "index").ask("write"))
    assert "to search it takes no such right" in told


def test_a_log_that_was_not_taken_in_is_not_passed_over(
    made: Make, tmp_path: Path, reader: Callable[[Path], Reader]
) -> None:
    engine = made()
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "index", copied)
    engine.close()
    whole = reader(copied).ask()
    assert whole == found(tmp_path / "index")  # with both of its files the log is read
    set_writable(copied, True)
    (copied / "truth.db-shm").unlink()
    told = reader(copied).ask()
    assert f"{copied} may not be written to: run 'suwen verify {copied}' as somebody who may" in told


def test_what_was_read_while_a_writer_came_does_not_count(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made().close()
    monkeypatch.setattr(read_only_folder, "may_write", lambda folder: False)
    engine = EmbeddedEngine.open(tmp_path / "index")
    with pytest.raises(IndexProblem, match="was written to while it was read: try again"), engine.snapshot():
        os.utime(tmp_path / "index" / "truth.db", ns=(1, 1))
    assert ids_of(engine)
    engine.close()


def test_who_may_read_the_folder_may_read_all_of_it(made: Make, tmp_path: Path) -> None:
    made().close()
    files = [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
    wanted = (tmp_path / "index").stat().st_mode & 0o666
    assert {path.name: oct(path.stat().st_mode & 0o666) for path in files} == dict.fromkeys(
        [path.name for path in files], oct(wanted)
    )
