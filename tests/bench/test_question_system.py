"""``questions:FILES:SYSTEM``: documents that say nothing of what is asked, found by the questions they answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from suwen.bench.dense_systems import PairSystem
from suwen.bench.suite_runner import run_suite
from suwen.bench.system_specs import parse_systems
from suwen.bench.systems import SystemProblem

sys.path.insert(0, str(Path(__file__).parent))
from hyde_suite import make_suite


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


def write(file: Path, *lines: tuple[str, list[str]]) -> Path:
    file.parent.mkdir(exist_ok=True)
    records = [{"id": id_, "questions": asked} for id_, asked in lines]
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return file


def test_a_document_is_ranked_by_the_best_of_its_vectors(suite: Path, tmp_path: Path) -> None:
    asked = [("d0#0", ["甲", "盐要少吃吗"]), ("d1", ["乙"]), ("d4", ["睡不着"] * 9), ("gone", ["甲"])]
    write(tmp_path / "asked" / "t.jsonl", *asked)
    systems = ["plain=pair:default#static", f"asked=questions:{tmp_path / 'asked'}:pair:default#static"]
    outcome = run_suite(suite, systems, out=tmp_path / "out")
    done = {one.system: one.results["t"].metrics["ndcg@10"] for one in outcome.systems}
    assert done["asked"] == 1.0 > done["plain"]
    (plain,) = PairSystem.open("", "default", "static")
    corpus = [json.loads(line)["text"] for line in (tmp_path / "t" / "corpus.jsonl").read_text("utf-8").splitlines()]
    asks = plain.encode(["甲", "乙"], None, "query")
    expected = asks @ plain.encode(corpus, None, "document").T
    for id_, texts in asked[:3]:
        row = int(id_.removesuffix("#0")[1:])
        expected[:, row] = np.maximum(expected[:, row], (asks @ plain.encode(texts, None, "document").T).max(1))
    best = [f"d{row}" for row in np.argsort(-expected[0])]
    (run,) = (file for file in (tmp_path / "out").rglob("t.trec") if "asked" in str(file))
    told = [line.split() for line in run.read_text("utf-8").splitlines() if line.split()[0] == "q0"]
    assert [line[2] for line in told] == best
    assert np.allclose([float(line[4]) for line in told], np.sort(expected[0])[::-1], atol=1e-4)


def test_a_task_without_questions_is_left_out_and_wrong_ones_are_refused(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    outcome = run_suite(suite, [f"questions:{tmp_path / 'none'}:pair:default#static"], out=tmp_path / "out")
    assert "t" not in outcome.systems[0].results
    foreign = write(tmp_path / "foreign.jsonl", ("other", ["甲"]))
    outcome = run_suite(suite, [f"questions:{foreign}:pair:default#static"], out=tmp_path / "out")
    assert "none of its ids is a document of t" in outcome.systems[0].failures["t"]
    for spec, told in (
        ("questions:x:pair:default#static", "no file or folder x"),
        ("questions:x:bm25:words", "asks an"),
    ):
        with pytest.raises(SystemProblem, match=told):
            parse_systems([spec])
