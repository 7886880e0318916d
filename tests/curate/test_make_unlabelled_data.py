"""The data of the run without labels: no question lies beside its answer, and no task loses a document."""

from __future__ import annotations

import gzip
import json
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "make_unlabelled_data.py"
ANSWER = "第{0}种病要多休息、多喝水，少吃油腻的东西，两个星期不好就去医院检查，按医生说的用药，不要自己加量或者停药。"


def lines(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [str(TOOL), *map(str, arguments)])
    runpy.run_path(str(TOOL), run_name="__main__")


def test_documents_come_without_their_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    texts = [
        {"text": ANSWER.format("一"), "kind": "answer", "source": "zh/disease-articles"},
        {
            "text": "A cold is treated with rest, warmth and water, and no more.",
            "kind": "answer",
            "source": "en/x",
        },
        {"text": "感冒了怎么办", "kind": "query", "source": "zh/toyhom-qa"},
        {"text": "模型写的问题是什么", "kind": "query", "source": "written"},
    ]
    lines(data / "texts.jsonl.gz", texts)
    lines(data / "rows/toyhom.jsonl.gz", [{"query": "头疼三天了", "pos": [ANSWER.format("二")]}])
    lines(data / "rows/unsup-toyhom.jsonl.gz", [{"query": "多休息", "pos": ["多喝水"]}])
    lines(data / "held-out.jsonl.gz", [{"text": "留出来的"}])
    run(monkeypatch, "texts", data, out)
    drawn = {(one["kind"], one["text"]) for one in read(out / "texts.jsonl.gz")}
    assert drawn == {("answer", ANSWER.format("一")), ("answer", ANSWER.format("二")), ("query", "感冒了怎么办")}
    assert {one["source"] for one in read(out / "plain.jsonl.gz")} == {"zh/disease-articles", "en/x", "zh/toyhom-qa"}
    assert [file.name for file in (out / "rows").iterdir()] == ["unsup-toyhom.jsonl.gz"]
    assert (out / "held-out.jsonl.gz").is_file()


def test_a_smaller_measure_keeps_all_documents_and_only_judgements_of_its_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "dev" / "nfcorpus"
    (task / "qrels").mkdir(parents=True)
    names = range(400)
    (task / "corpus.jsonl").write_text("".join(json.dumps({"_id": f"d{n}", "text": "x"}) + "\n" for n in names))
    (task / "queries.jsonl").write_text("".join(json.dumps({"_id": f"q{n}", "text": "x"}) + "\n" for n in names))
    judged = [f"q{n}\td{n}\t1" for n in range(300)]
    (task / "qrels" / "dev.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    (tmp_path / "dev" / "dev.toml").write_text("")
    run(monkeypatch, "measure", tmp_path / "dev", tmp_path / "out")
    made = tmp_path / "out" / "nfcorpus"
    kept = {json.loads(line)["_id"] for line in (made / "queries.jsonl").read_text().splitlines()}
    assert len(kept) == 150 and (made / "corpus.jsonl").read_text() == (task / "corpus.jsonl").read_text()
    assert {line.split("\t")[0] for line in (made / "qrels" / "dev.tsv").read_text().splitlines()[1:]} == kept
