"""Files that are there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from suwen.durable import write_json, write_lines


def test_lines_and_documents_are_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "a.jsonl"
    assert write_lines(file, ({"文": number} for number in range(3))) == 3
    assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == [{"文": n} for n in range(3)]
    write_json(tmp_path / "a.json", {"a": [1]})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"a": [1]}


def test_what_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise RuntimeError("stop")

    write_lines(tmp_path / "a.jsonl", [{"old": 1}])
    with pytest.raises(RuntimeError, match="stop"):
        write_lines(tmp_path / "a.jsonl", broken())
    assert (tmp_path / "a.jsonl").read_text("utf-8") == '{"old": 1}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
