from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from suwen.durable import FileLock, Locked, new_folder, replacing, write_json, write_lines, write_text


class Fails(Exception):
    pass


def half_written(file: Path) -> None:
    with replacing(file) as stream:
        stream.write(b"half of the n")
        raise Fails


def half_made(folder: Path) -> None:
    with new_folder(folder) as unfinished:
        (unfinished / "half").touch()
        raise Fails


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "made" / "file.json"
    write_json(file, {"药": 1})
    write_json(file, {"药": 2})
    assert json.loads(file.read_text(encoding="utf-8")) == {"药": 2}
    assert [entry.name for entry in file.parent.iterdir()] == ["file.json"]


def test_a_failure_on_the_way_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    write_text(file, "old\r\n")
    with pytest.raises(Fails):
        half_written(file)
    assert file.read_bytes() == b"old\r\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_lines_are_counted_and_packed_where_the_name_says_so(tmp_path: Path) -> None:
    records = [{"n": n, "text": "血压"} for n in range(3)]
    assert write_lines(tmp_path / "a.jsonl.gz", iter(records)) == 3
    assert write_lines(tmp_path / "b.jsonl.gz", iter(records)) == 3
    with gzip.open(tmp_path / "a.jsonl.gz", "rt", encoding="utf-8") as lines:
        assert [json.loads(line) for line in lines] == records
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert write_lines(tmp_path / "none.jsonl", []) == 0
    assert (tmp_path / "none.jsonl").read_bytes() == b""


def test_a_folder_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with pytest.raises(Fails):
        half_made(folder)
    assert list(tmp_path.iterdir()) == []
    for name in ("one", "two"):
        with new_folder(folder) as unfinished:
            (unfinished / name).touch()
    assert [entry.name for entry in folder.iterdir()] == ["two"]


def test_a_lock_keeps_a_second_process_out_and_names_the_first(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "lock")
    first.acquire()
    assert first.held
    code = "import sys, pathlib; from suwen.durable import FileLock; FileLock(pathlib.Path(sys.argv[1])).acquire()"
    told = subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], capture_output=True, text=True)
    assert told.returncode != 0
    assert str(os.getpid()) in told.stderr.splitlines()[-1]
    second = FileLock(tmp_path / "lock")
    with pytest.raises(Locked, match=str(os.getpid())):
        second.acquire(wait=60, stop=lambda: True)
    first.release()
    first.release()
    second.acquire()
    assert second.held and not first.held
    second.release()
