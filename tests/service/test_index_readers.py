"""Who reads an index beside the writing process: nobody uninvited, nobody once it goes; the last one is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from suwen.service.index_readers import FILE, Leaving, Reading, invite


def test_nobody_reads_uninvited(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Reading(tmp_path)
    assert Leaving(tmp_path).over()


def test_an_index_goes_when_the_last_reader_has_left(tmp_path: Path) -> None:
    invite(tmp_path)
    first, second = Reading(tmp_path), Reading(tmp_path)
    assert first.wanted() and second.wanted()
    leaving = Leaving(tmp_path)
    assert not first.wanted() and not leaving.over()
    with pytest.raises(FileNotFoundError):
        Reading(tmp_path)
    first.close()
    assert not leaving.over()
    second.close()
    assert leaving.over() and leaving.over()


def test_another_index_of_the_same_name_is_another(tmp_path: Path) -> None:
    invite(tmp_path)
    reading = Reading(tmp_path)
    (tmp_path / FILE).rename(tmp_path / "old")
    invite(tmp_path)
    assert not reading.wanted()
    assert Reading(tmp_path).wanted()
    reading.close()


def test_where_nothing_may_be_written_nobody_else_reads(tmp_path: Path) -> None:
    invite(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        Reading(tmp_path / "missing")
