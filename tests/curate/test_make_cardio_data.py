"""The data of a cardiology specialist: the heart's part of each file, PDFs read back, and nothing held out among it."""

from __future__ import annotations

import gzip
import hashlib
import json
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from suwen.bench.suite_tasks import load_suite
from suwen.corpora.training_rows import read_training_rows
from suwen.curate.leakage import HeldOut, is_held_out
from suwen.text.segment import language_of

TOOL = Path(__file__).parents[2] / "tools" / "make_cardio_data.py"


def lines(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    beat = "The heart of case {0} beats at a steady pace. Its valves close one after the other in case {0}."
    chapter = {"id": "m", "title": "Heart Anatomy", "paragraphs": [beat.format(number) for number in range(8)]}
    lines(folder / "en" / "openstax-anatomy.jsonl.gz", [chapter, {**chapter, "title": "The knee"}])
    lines(folder / "en" / "openstax-nursing.jsonl.gz", [{**chapter, "title": "Heart Failure"}])
    heart = [
        {
            "source": "x",
            "focus": "Angina",
            "query": f"What helps against angina {n}?",
            "document": f"Angina {n} is eased by rest.",
        }
        for n in range(30)
    ]
    knee = {
        "source": "x",
        "focus": "Knee",
        "query": "Why does my knee hurt?",
        "document": "Knees hurt after long walks.",
    }
    # A question that is held out, asked once more in other letters and of another document.
    held = next(row for row in heart if is_held_out(row["query"]))
    again = {**held, "query": held["query"].upper(), "document": "Rest eases most of it, and so does warmth."}
    assert not is_held_out(again["query"])
    lines(folder / "en" / "medquad-qa.jsonl.gz", [*heart, knee, again])
    zh = [
        {
            "department": "心血管科",
            "query": f"心慌第{n}种怎么办",
            "question": "",
            "document": f"心慌第{n}种要注意休息，少喝咖啡。",
        }
        for n in range(30)
    ]
    lines(folder / "zh" / "toyhom-qa.jsonl.gz", [*zh, {**zh[0], "department": "肝病科", "query": "肝不好怎么办"}])
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [str(TOOL), *map(str, arguments)])
    monkeypatch.syspath_prepend(str(TOOL.parent))
    runpy.run_path(str(TOOL), run_name="__main__")


def test_questions_are_held_out_with_their_documents(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    run(monkeypatch, "questions", data, work)
    assert [(task.name, task.language) for task in load_suite(work / "suites" / "cardio.toml").tasks] == [
        ("medquad-heart", "en"),
        ("toyhom-heart", "zh"),
    ]
    held_out = HeldOut.read(work / "cardio-held-out.jsonl.gz")
    rows = list(read_training_rows(work / "cardio-qa.jsonl.gz"))
    assert rows and not held_out.hits([text for row in rows for text in (row.query, *row.pos)])
    for name, size in (("medquad", 32), ("toyhom", 30)):
        folder = work / "suites" / f"{name}-heart"
        asked = [
            json.loads(line)["text"] for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        assert asked and all(int(hashlib.sha1(text.encode()).hexdigest(), 16) % 10 == 0 for text in asked)
        assert len((folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()) == size
    lines(tmp_path / "general" / "rows" / "others.jsonl.gz", [{"query": "a", "pos": ["b"]}])
    lines(tmp_path / "general" / "rows" / "unsup-others.jsonl.gz", [{"query": "c", "pos": ["d"]}])
    for name in ("texts", "held-out"):
        lines(tmp_path / "general" / f"{name}.jsonl.gz", [{"text": "一句话", "kind": "query"}])
    run(monkeypatch, "general", tmp_path / "general", work)
    of = {path.name: list(read_training_rows(path)) for path in (work / "general" / "rows").iterdir()}
    assert of.keys() == {"others.jsonl.gz", "cardio-qa-en.jsonl.gz", "cardio-qa-zh.jsonl.gz"}
    chinese, english = of["cardio-qa-zh.jsonl.gz"], of["cardio-qa-en.jsonl.gz"]
    assert chinese and english and sorted([*chinese, *english]) == sorted(rows)
    assert all(language_of(row.query) == "zh" for row in chinese)
    both = HeldOut.read(work / "general" / "held-out.jsonl.gz")
    assert both.hit("一句话") and len(both) == len(held_out) + 1


def test_books_are_rendered_and_read_back(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    run(monkeypatch, "shelf", data, work, "--scan-pages", 1)
    names = {path.stem for path in (work / "shelf").glob("*.pdf")}
    assert names == {"openstax-anatomy-0", "openstax-nursing-0", "medquad-0", "toyhom-0"}
    run(monkeypatch, "read", work, "--no-ocr")
    pages = [
        json.loads(line)
        for line in (work / "read" / "openstax-anatomy-0.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    said = [line for page in pages for line in page["text"].splitlines()]
    assert "Its valves close one after the other in case 7." in said and len(said) == 16
    assert pages[0]["_id"] == "openstax-anatomy-0.pdf#page=1" and pages[0]["book"] == "openstax-anatomy-0"
    assert not (work / "read" / "openstax-nursing-0.jsonl").exists(), "scans are not read here"
    asked = {
        text
        for row in range(30)
        if int(hashlib.sha1((text := f"What helps against angina {row}?").encode()).hexdigest(), 16) % 10 == 0
    }
    held = {f"Angina {text.split()[-1][:-1]} is eased by rest." for text in asked}
    answers = (work / "read" / "medquad-0.jsonl").read_text(encoding="utf-8")
    assert held and "is eased by rest." in answers and not any(text in answers for text in held)
