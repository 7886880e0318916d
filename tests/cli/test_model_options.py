"""What a verb that asks a model says where nothing came of it: the reason of the first request, not the count alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))

from server import Says, Server

NOTES = [f"服用第{number}号药物之前应当先量血压，饭后半小时再吃，每日不超过三次。" for number in range(3)]


@pytest.mark.parametrize(
    "verb",
    [
        ("synthesise", "out.jsonl", "--tasks", "20"),
        ("synthesise", "out.jsonl", "--from", "notes.jsonl", "--dataset", "pubmed"),
        ("synthesise", "out.jsonl", "--from", "notes.jsonl", "--questions", "2"),
        ("rewrites", "notes.jsonl", "out.jsonl"),
        ("paraphrase", "shelf", "out.jsonl"),
    ],
    ids=("tasks", "passages", "questions", "rewrites", "paraphrase"),
)
def test_where_nothing_is_written_the_reason_is_told(
    verb: tuple[str, ...], suwen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in NOTES), encoding="utf-8")
    Path("out.jsonl").write_text("what was there before", encoding="utf-8")
    Path("shelf").mkdir()
    Path("shelf", "ward.html").write_text(f"<p>{''.join(NOTES)}</p>", encoding="utf-8")
    with Server(lambda _: Says("", refusal="not today")) as server:
        Path("suwen.toml").write_text(
            f'[llm.endpoints.here]\nbase_url = "{server.url}"\n[llm.models.m]\nendpoint = "here"\nmodel = "scripted"\n',
            encoding="utf-8",
        )
        done = suwen("curate", *verb, "-m", "m")
    assert done.code == 1 and "requests got no reply that could be used; the first problem: " in done.err
    assert "not today" in done.err and "Traceback" not in done.err
    assert Path("out.jsonl").read_text(encoding="utf-8") == "what was there before"
