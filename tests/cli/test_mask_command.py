"""``suwen mask``: texts out, a key apart, a sample to check."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from suwen.cli.mask_command import mask_app
from suwen.text.mask import MaskError


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "notes.jsonl"
    file.write_text('{"id": "王小明", "text": "患者王小明，男。予阿莫西林0.5g。"}\n', encoding="utf-8")
    return file


def call(*arguments: object) -> Result:
    return CliRunner().invoke(mask_app, [str(argument) for argument in arguments], catch_exceptions=True)


def test_masked_records_on_standard_output(notes: Path) -> None:
    done = call(notes, "--field", "text")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"id": "王小明", "text": "患者[姓名1]，男。予阿莫西林0.5g。"}
    assert ": 1 document; name 1" in done.stderr


def test_a_file_a_key_and_the_counts(notes: Path, tmp_path: Path) -> None:
    to, key = tmp_path / "masked.jsonl", tmp_path / "key.jsonl"
    done = call(notes, "--out", to, "--key", key, "--json")
    assert json.loads(done.stdout) == {"documents": 1, "masks": {"name": 2}, "left_out": 0}
    assert json.loads(to.read_text(encoding="utf-8"))["id"] == "[姓名1]"
    assert json.loads(key.read_text(encoding="utf-8")) == {"document": f"{notes}:1", "key": {"[姓名1]": "王小明"}}


def test_a_sample_is_a_table(notes: Path) -> None:
    done = call(notes, "--sample", 10)
    rows = list(csv.DictReader(io.StringIO(done.stdout.removeprefix("\ufeff"))))
    assert {row["sentence"] for row in rows} == {"[姓名1]", "患者[姓名1]，男。", "予阿莫西林0.5g。"}
    assert list(rows[0]) == ["document", "kinds", "before", "sentence", "after", "right"]


def test_a_record_that_fails_publishes_nothing_unless_it_is_skipped(tmp_path: Path) -> None:
    notes, to = tmp_path / "notes.csv", tmp_path / "masked.jsonl"
    notes.write_text("姓名,年龄,电话\n王建国,46,13912345678\nK-9 #7 xx,50,\n", encoding="utf-8")
    failed = call(notes, "--out", to)
    assert (
        "notes.csv:3" in str(failed.exception)
        and "'姓名'" in str(failed.exception)
        and "K-9" not in str(failed.exception)
    )
    assert list(tmp_path.iterdir()) == [notes]
    done = call(notes, "--out", to, "--skip-bad", "--json")
    assert json.loads(done.stdout) == {"documents": 1, "masks": {"name": 1, "phone": 1}, "left_out": 1}
    assert json.loads(to.read_text(encoding="utf-8")) == {"姓名": "[姓名1]", "年龄": "46", "电话": "[电话1]"}
    assert "1 left out" in call(notes, "--out", to, "--skip-bad").stderr


def test_wrong_use_says_the_way_out(notes: Path) -> None:
    assert "--out" in str(call(notes, "--json").exception)
    assert "the file being read" in str(call(notes, "--out", notes).exception)
    assert isinstance(call(notes, "--kind", "shoe").exception, MaskError)
    assert notes.read_text(encoding="utf-8").startswith('{"id"')
