"""The data of the small BMRetriever recipes: what is trained on, and that nothing measured is among it."""

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

TOOL = Path(__file__).parents[2] / "tools" / "make_bmretriever_data.py"
ANSWER = "{0} is treated with rest, warmth and water. A doctor should see {0} that lasts for longer than two weeks."
LABELLED = {"medquad", "consult-qa", "mqp", "nfcorpus", "nfcorpus-judged"}


def lines(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


def test_nothing_measured_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [f"What helps against ailment number {number}?" for number in range(40)]
    out = {query for query in asked if int(hashlib.sha1(query.encode()).hexdigest(), 16) % 10 == 0}
    assert 0 < len(out) < len(asked)
    answers = [{"query": query, "document": ANSWER.format(f"Ailment {query[-4:-1]}")} for query in asked]
    en = tmp_path / "data" / "en"
    lines(en / "medquad-qa.jsonl.gz", [{"source": "x", "focus": "An ailment", **row} for row in answers])
    forum = [
        {"source": "forum", "query": "My knee hurts when I climb stairs", "document": ANSWER.format("A sore knee")}
    ]
    clinic = [{"source": "icliniq", "query": "My ear rings at night, why?", "document": ANSWER.format("A ringing ear")}]
    lines(en / "consult-qa.jsonl.gz", forum + clinic)
    pairs = [("Is tea good for a cold?", "Does tea help a cold?", 1), ("Is tea good for a cold?", "Is tea a plant?", 0)]
    lines(en / "medical-question-pairs.jsonl.gz", [{"a": a, "b": b, "label": label} for a, b, label in pairs])
    lines(
        en / "pubmedqa.jsonl.gz", [{"query": "Does salt harm?", "document": "A trial of salt.", "conclusion": "Yes."}]
    )
    book = [{"id": "m1", "title": "The heart", "paragraphs": [ANSWER.format(f"Beat {number}") for number in range(30)]}]
    lines(en / "openstax-nursing.jsonl.gz", book)
    lines(en / "openstax-anatomy.jsonl.gz", [{**book[0], "title": "The lung"}])
    paper = "vitamin c and colds abstract eighty people took vitamin c through one winter and fewer of them had colds"
    others = {f"MED-{number}": f"{paper} in town {number}" for number in range(2, 12)}
    lines(en / "nfcorpus" / "corpus.jsonl.gz", [{"id": id_, "text": text} for id_, text in others.items()])
    with gzip.open(en / "nfcorpus" / "corpus.jsonl.gz", "at") as stream:
        stream.write(json.dumps({"id": "MED-1", "text": paper}) + "\n")
    lines(en / "nfcorpus" / "queries-train.jsonl.gz", [{"id": "Q1", "text": "vitamin c"}])
    judged = [{"query": "Q1", "document": id_, "score": 1} for id_ in others]
    lines(en / "nfcorpus" / "qrels-train.jsonl.gz", [*judged, {"query": "Q1", "document": "MED-1", "score": 2}])
    lines(en / "nfcorpus" / "queries-dev.jsonl.gz", [{"id": "Q2", "text": "green tea and iron"}])
    monkeypatch.setattr(sys, "argv", [str(TOOL), str(tmp_path / "data"), str(tmp_path / "made")])
    monkeypatch.syspath_prepend(TOOL.parent)
    runpy.run_path(str(TOOL), run_name="__main__")
    rows = {file.name.split(".")[0]: read(file) for file in (tmp_path / "made" / "rows").iterdir()}
    assert set(rows) == LABELLED | {"unsup-pretraining", "unsup-crops"}
    assert {row["query"] for row in rows["medquad"]} == set(asked) - out
    assert [row["query"] for row in rows["consult-qa"]] == [forum[0]["query"]]
    assert rows["mqp"][0]["pos"] == ["Does tea help a cold?"] and rows["mqp"][0]["neg"] == ["Is tea a plant?"]
    best, every = rows["nfcorpus"][0]["pos"], rows["nfcorpus-judged"][0]["pos"]
    assert paper in best and set(best) < set(every) == {paper, *others.values()}
    assert all(row["prompt"] for some in rows.values() for row in some)
    assert "The heart" in {row["query"] for row in rows["unsup-pretraining"]}
    assert "The heart" not in {row["query"] for row in rows["unsup-crops"]}
    held = {row["text"] for row in read(tmp_path / "made" / "held-out.jsonl.gz")}
    assert out | {clinic[0]["query"], "Does salt harm?", "green tea and iron"} <= held
    kinds = {row["kind"] for row in read(tmp_path / "made" / "texts.jsonl.gz")}
    assert kinds == {"query", "name", "title", "answer", "sentence", "span", "term"}

    written = [{"query": "tea leaves", "pos": [paper], "prompt": "Find."}]
    lines(tmp_path / "kept.jsonl.gz", written)
    lines(tmp_path / "written.jsonl.gz", [*written, {**written[0], "query": "winter towns"}])
    more = ["--synthetic", str(tmp_path / "kept.jsonl.gz"), "--asked", str(tmp_path / "written.jsonl.gz")]
    for name, like in (("anew", []), ("like", ["--like", str(tmp_path / "made")])):
        monkeypatch.setattr(sys, "argv", [str(TOOL), str(tmp_path / "data"), str(tmp_path / name), *like, *more])
        runpy.run_path(str(TOOL), run_name="__main__")
    files = {file.relative_to(tmp_path / "anew") for file in (tmp_path / "anew").rglob("*") if file.is_file()}
    assert all((tmp_path / "anew" / file).read_bytes() == (tmp_path / "like" / file).read_bytes() for file in files)
    assert [row["query"] for row in read(tmp_path / "like" / "rows" / "synthetic.jsonl.gz")] == ["tea leaves"]
    told = {row["text"] for row in read(tmp_path / "like" / "texts.jsonl.gz") if row["kind"] == "query"}
    assert {"tea leaves", "winter towns"} <= told
    monkeypatch.setattr(sys, "argv", [str(TOOL), str(tmp_path / "data"), str(tmp_path / "no"), "--like", str(tmp_path)])
    with pytest.raises(SystemExit, match="no folder that this tool has made"):
        runpy.run_path(str(TOOL), run_name="__main__")
