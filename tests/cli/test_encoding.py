"""``suwen encode`` in shares, and what it refuses; Ray is in tests/real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Suwen = Callable[..., Any]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_shares_and_a_join_give_the_folder_of_one_run(
    suwen: Suwen, adapter_pair: Path, base_folder: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("encode", source, "--pair", adapter_pair, "--shard-size", 2)
    whole = suwen(*asked, "--base", base_folder, "--out", tmp_path / "whole")
    assert whole.code == 0, whole.err
    shared = (*asked, "--out", tmp_path / "shared")
    done = suwen(*shared, "--join")
    assert done.code == 1 and "no shares to join" in done.err
    done = suwen(*shared, "--base", base_folder, "--share", "1/2", "--json")
    assert done.code == 0 and done.json["share"] == [1, 2] and done.json["shards"] >= 1, done.err
    done = suwen(*shared, "--join")
    assert done.code == 1 and "shards are not there yet" in done.err
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    done = suwen(*shared, "--base", base_folder, "--share", "auto")
    assert done.code == 0 and "share 2/2" in done.out and "--join" in done.out, done.err
    done = suwen(*shared, "--join")
    assert done.code == 0, done.err
    assert contents(tmp_path / "shared") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--share", "1/2", "--workers", 2), "one process's"),
        (("--share", "1/2", "--join"), "one process's"),
        (("--join", "--on", "ray"), "--join encodes nothing"),
        (("--gpus-per-worker", 1), "--on ray"),
        (("--on", "ray://head:10001"), "proxy"),
        (("--on", "head:6379"), "ray:HOST:PORT"),
        (("--share", "0/2"), "1/4 to 4/4"),
    ],
)
def test_what_does_not_go_together_is_refused(
    suwen: Suwen, adapter_pair: Path, source: Path, tmp_path: Path, options: tuple[Any, ...], said: str
) -> None:
    done = suwen("encode", source, "--pair", adapter_pair, "--out", tmp_path / "vectors", *options)
    assert done.code == 1 and said in done.err and not (tmp_path / "vectors").exists()
