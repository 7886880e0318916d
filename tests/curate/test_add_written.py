"""``tools/add_written.py`` and ``tools/wrong_orders.py``: more written texts, where a tier's order is wrong."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name: str) -> Any:
    sys.path.insert(0, str(TOOLS))
    try:
        spec = util.spec_from_file_location(name, TOOLS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(TOOLS))
    return module


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    rows = [{"query": f"第 {n} 种病怎么治", "pos": [f"第 {n} 种病应当休息并服药。"]} for n in range(30)]
    save(folder / "rows" / "huatuo.jsonl.gz", rows)
    save(folder / "rows" / "unsup-huatuo.jsonl.gz", [{"query": "不要", "pos": ["这些不是答案"]}])
    save(folder / "texts.jsonl.gz", [{"text": "痛风能吃豆腐吗", "kind": "query", "source": "zh"}])
    save(folder / "held-out.jsonl.gz", [{"text": "考试里的问题绝不能训练"}])
    return folder


def test_rows_and_texts_come_to_what_is_there_and_nothing_that_is_held_out(data: Path, tmp_path: Path) -> None:
    written = [
        {
            "kind": "question",
            "source": "huatuo",
            "x": "休息",
            "with": "多休息，多喝水。",
            "lines": ["1. 感冒了怎么办", "发烧要紧吗"],
        },
        {
            "kind": "ask",
            "source": "huatuo",
            "x": "痛风",
            "with": "痛风",
            "lines": ["痛风能吃豆腐吗", "考试里的问题绝不能训练"],
        },
        {"kind": "topic", "source": "zh", "x": "咳嗽", "with": "咳嗽", "lines": ["咳嗽吃什么药 => 咳嗽用药指南大全"]},
    ]
    save(tmp_path / "written.jsonl.gz", written)
    asked = [sys.executable, TOOLS / "add_written.py", data, tmp_path / "written.jsonl.gz", tmp_path / "both"]
    subprocess.run(asked, check=True)
    texts = lines(tmp_path / "both" / "texts.jsonl.gz")
    added = [text["text"] for text in texts if text["source"] == "written" and text["kind"] == "query"]
    assert added == ["感冒了怎么办", "发烧要紧吗", "咳嗽吃什么药"], "each once, and not what was there or is held out"
    rows = lines(tmp_path / "both" / "rows" / "written-questions.jsonl.gz")
    assert [(row["query"], row["pos"]) for row in rows] == [
        ("感冒了怎么办", ["多休息，多喝水。"]),
        ("发烧要紧吗", ["多休息，多喝水。"]),
    ]
    assert lines(tmp_path / "both" / "rows" / "huatuo.jsonl.gz") == lines(data / "rows" / "huatuo.jsonl.gz")
    counts = json.loads((tmp_path / "both" / "added.json").read_text(encoding="utf-8"))
    assert counts["written-questions"] == 2 and counts["written-topics"] == 1 and counts["written-short"] == 0
    assert subprocess.run(asked, capture_output=True).returncode != 0, "what is there stays"


def test_a_text_is_wrong_by_what_it_does_not_find() -> None:
    rng = np.random.default_rng(0)
    documents, taught = (rng.standard_normal((count, 16)).astype(np.float32) for count in (500, 40))
    wrong_orders = tool("wrong_orders")
    assert wrong_orders.wrong_by(taught, 3 * taught, documents).max() == 0
    some, more = (
        wrong_orders.wrong_by(taught, taught + by * rng.standard_normal(taught.shape).astype(np.float32), documents)
        for by in (0.3, 1.5)
    )
    assert 0 < some.mean() < more.mean() < 1


def test_the_most_wrong_prompts_of_every_kind_are_kept() -> None:
    prompts = [{"kind": "title" if n % 2 else "ask", "x": str(n)} for n in range(40)]
    wrong = np.arange(40, dtype=np.float32)
    kept = tool("wrong_orders").chosen(prompts, wrong, 0.25)
    assert sorted(int(prompt["x"]) for prompt in kept) == list(range(30, 40))


def test_prompts_are_chosen_by_a_real_pair(adapter_pair: Path, base_folder: Path, data: Path, tmp_path: Path) -> None:
    prompts = [{"kind": "ask", "source": "huatuo", "x": f"第 {n} 种病怎么治", "with": ""} for n in range(12)]
    save(tmp_path / "prompts.jsonl.gz", prompts)
    asked = ["--data", data, "--pair", adapter_pair, "--base", base_folder, "--documents", "30", "--keep", "0.5"]
    command = [sys.executable, TOOLS / "wrong_orders.py", tmp_path / "prompts.jsonl.gz", tmp_path / "wrong.jsonl.gz"]
    subprocess.run([*command, *asked], check=True)
    kept = lines(tmp_path / "wrong.jsonl.gz")
    assert len(kept) == 6 and all(prompt in prompts for prompt in kept)
    subprocess.run([*command, *asked, "--set-aside", "0.5"], check=True)
    assert 0 < len(lines(tmp_path / "wrong.jsonl.gz")) < 6
