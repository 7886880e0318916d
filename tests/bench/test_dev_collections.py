"""``tools/make_dev_collections.py``, run as a program on a few hand-written rows."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_loading import load_data

TOOL = Path(__file__).parents[2] / "tools" / "make_dev_collections.py"


def held_out(text: str) -> bool:
    return int(hashlib.sha1(text.encode()).hexdigest(), 16) % 10 == 0


QUESTIONS = [f"第{number}个问题怎么办" for number in range(80)]
KEPT = [text for text in QUESTIONS if held_out(text)]
FILES = {
    "zh/huatuo-qa-a": [{"query": text, "document": f"答{number}"} for number, text in enumerate(QUESTIONS)],
    "zh/toyhom-qa": [{"department": "内科", "query": KEPT[0], "question": "长", "document": "另一个答案"}],
    "zh/cmedir-dev": [
        {"query": "牙疼", "documents": [{"text": "牙疼怎么办", "label": 3}, {"text": "感冒", "label": 0}]}
    ],
    "zh/cmedqa-dev": [
        {"query": "甲", "document": "对", "label": 1},
        {"query": "甲", "document": "错", "label": 0},
        {"query": "乙", "document": "也错", "label": 0},
    ],
    "zh/cmedqq-dev": [{"a": "一", "b": "壹", "label": 1}, {"a": "一", "b": "二", "label": 0}],
    "en/nfcorpus/corpus": [{"id": "M1", "text": "statins"}, {"id": "M2", "text": "salt"}],
    "en/nfcorpus/queries-dev": [{"id": "P1", "text": "cholesterol"}],
    "en/nfcorpus/qrels-dev": [{"query": "P1", "document": "M1", "score": 2}],
    "en/medquad-qa": [{"query": text, "document": f"answer {text}"} for text in QUESTIONS],
    "en/pubmedqa": [{"id": str(n), "query": text, "document": f"abstract {n}"} for n, text in enumerate(QUESTIONS)],
    "en/medical-question-pairs": [{"a": text, "b": "other", "label": n % 2} for n, text in enumerate(QUESTIONS)],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dev")
    for name, rows in FILES.items():
        file = root / "data" / f"{name}.jsonl.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wt", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    subprocess.run([sys.executable, TOOL, root / "data", root / "suite"], check=True, capture_output=True)
    return root / "suite"


def test_only_held_out_questions_are_asked_in_the_whole_pool(made: Path):
    suite = load_suite(made / "dev.toml")
    data = load_data(suite, suite.task("consultation"))
    assert sorted(data.queries) == sorted(KEPT) and 0 < len(KEPT) < len(QUESTIONS)
    assert len(data.documents) == 81
    grades = data.qrels[data.query_ids[data.queries.index(KEPT[0])]]
    assert len(grades) == 2  # one answer in each file
    for name in ("medquad", "pubmedqa"):
        found = load_data(suite, suite.task(name))
        assert sorted(found.queries) == sorted(KEPT) and len(found.documents) == 80
    pairs = load_data(suite, suite.task("question-pairs"))
    assert pairs.left == KEPT


def test_labels_are_the_gain_and_dev_files_are_used_whole(made: Path):
    suite = load_suite(made / "dev.toml")
    titles = load_data(suite, suite.task("cmedir"))
    assert sorted(next(iter(titles.qrels.values())).values()) == [0, 3]
    answers = load_data(suite, suite.task("cmedqa"))
    assert answers.queries == ["甲"] and len(answers.documents) == 3
    assert load_data(suite, suite.task("nfcorpus")).qrels == {"P1": {"M1": 2}}
    assert load_data(suite, suite.task("cmedqq")).scores == [1.0, 0.0]
    assert [average.name for average in suite.averages] == ["zh retrieval", "en retrieval"]
    assert {task.name: task.hyde for task in suite.tasks if task.hyde} == {"cmedir": "q2t"}, "its documents are titles"


def test_an_existing_folder_is_left_alone(made: Path):
    before = (made / "dev.toml").stat().st_mtime_ns
    again = subprocess.run([sys.executable, TOOL, made.parent / "data", made], capture_output=True, text=True)
    assert again.returncode == 1 and "exists" in again.stderr
    assert (made / "dev.toml").stat().st_mtime_ns == before
