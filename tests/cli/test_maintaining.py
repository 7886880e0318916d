"""verify, rebuild, compact, backup and restore."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Suwen = Callable[..., Any]


def answers(suwen: Suwen, index: Path) -> list[list[str]]:
    return [
        [hit["id"] for hit in suwen("search", index, query, "--mode", mode, "--json").json["hits"]]
        for query in ("尿酸结石", "患者应定期检查", "inhaler")
        for mode in ("hybrid", "dense", "lexical")
    ]


def flip(index: Path, kind: str) -> None:
    (file,) = index.glob(f"gen-*/{kind}")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_verify_and_rebuild(suwen: Suwen, index: Path) -> None:
    suwen("compact", index)
    assert suwen("verify", index, "--json").json == {"index": str(index), "ok": True, "problems": []}
    assert suwen("verify", index).out == f"{index} is in order\n"
    before = answers(suwen, index)
    flip(index, "codes")
    broken = suwen("verify", index)
    assert broken.code == 3
    assert "codes is damaged" in broken.out and f"run 'suwen rebuild {index}'" in broken.out
    assert suwen("verify", index, "--json").json["ok"] is False
    done = suwen("rebuild", index, "--json")
    assert done.code == 0 and done.json["passages"] > 10
    assert suwen("verify", index).code == 0
    assert answers(suwen, index) == before


def test_rebuild_from_the_truth_alone(suwen: Suwen, index: Path) -> None:
    before = answers(suwen, index)
    for folder in index.glob("gen-*"):
        shutil.rmtree(folder)
    assert suwen("verify", index).code == 3
    done = suwen("rebuild", index)
    assert done.code == 0 and "rebuilt" in done.out
    assert answers(suwen, index) == before


def test_compact(suwen: Suwen, index: Path) -> None:
    suwen("delete", index, "bp", "stone")
    deleted = suwen("info", index, "--json").json["deleted"]
    assert deleted >= 2
    done = suwen("compact", index, "--json").json
    assert (done["worked"], done["folded"]) == (True, deleted)
    assert suwen("info", index, "--json").json["deleted"] == 0
    again = suwen("compact", index)
    assert again.code == 0 and "nothing to compact" in again.out
    assert "stone" not in {id_.split("#")[0] for ids in answers(suwen, index) for id_ in ids}


def test_compact_says_what_it_freed(suwen: Suwen, index: Path) -> None:
    for part in range(2):
        suwen("add", index, "--id", f"big{part}", "--text", "number 7 page. " * 20_000)
    suwen("delete", index, "big0", "big1")
    assert suwen("compact", index, "--json").json["bytes_freed"] > 300_000


def test_backup_and_restore(suwen: Suwen, index: Path, tmp_path: Path) -> None:
    before = answers(suwen, index)
    assert suwen("backup", index, tmp_path / "backup", "--json").json["backup"] == str(tmp_path / "backup")
    suwen("delete", index, "stone")
    assert answers(suwen, index) != before
    done = suwen("restore", tmp_path / "backup", tmp_path / "restored")
    assert done.code == 0 and "restored" in done.out
    assert answers(suwen, tmp_path / "restored") == before
    assert suwen("verify", tmp_path / "restored").code == 0
    again = suwen("restore", tmp_path / "backup", tmp_path / "restored")
    assert again.code == 1 and "restore to a new folder" in again.err
