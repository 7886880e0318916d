"""tools/jury_analyses.py: kinds of disagreement and difficulty of queries, counted, and told by a scripted model."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from court import config, make_pool, vote
from server import Server

from suwen.jury.jury_folder import JuryFolder
from suwen.jury.verdicts import Label, Verdict, write_verdicts

# What each pair is: its judges' grades (- for an abstention), its label, its text. Queries read "query a" and so on.
PAIRS: dict[tuple[str, str], tuple[str, Label, str]] = {
    ("a", "a1"): ("SSA", "positive", "nothing of it"),
    ("a", "a2"): ("AAA", "positive", "here is query a"),
    ("a", "a3"): ("ABA", "undecided", "about one"),
    ("a", "a4"): ("DSS", "undecided", "about two"),
    ("b", "b1"): ("SDD", "undecided", "about three"),
    ("b", "b2"): ("AD-", "undecided", "about four"),
    # Judges of one side with an abstention, and grades apart on one side: no disagreement.
    ("b", "b3"): ("AA-", "undecided", "about five"),
    ("b", "b4"): ("BDC", "negative", "about six"),
    ("c", "c1"): ("SSS", "positive", "other words"),
}
JUDGES = ("one", "two", "three")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "jury_analyses.py"
    spec = importlib.util.spec_from_file_location("jury_analyses", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def work(tmp_path: Path) -> JuryFolder:
    pool: dict[str, list[str]] = {}
    for query, passage in PAIRS:
        pool.setdefault(query, []).append(passage)
    folder = make_pool(tmp_path / "work", pool, {passage: text for (_, passage), (*_, text) in PAIRS.items()})
    verdicts = [
        Verdict(
            *pair,
            label,
            tuple(
                vote(*pair, judge, None if grade == "-" else grade, reason=f"reason of {judge}")
                for judge, grade in zip(JUDGES, grades, strict=True)
            ),
        )
        for pair, (grades, label, _) in PAIRS.items()
    ]
    write_verdicts(folder.verdicts, verdicts)
    return folder


def test_what_votes_and_texts_show_needs_no_model(tool: ModuleType, work: JuryFolder) -> None:
    made = tool.analyse(tool.options([str(work.root)]))
    assert made == {
        "counted": {
            "pairs on two sides": {"one apart": 1, "far apart": 2, "abstained": 1},
            "judge alone on its side": {"two": 1, "one": 2},
            # Of query a the second positive has its words, so the first does not count; c's has none of them.
            "queries by their easiest positive": {"words shared": 1, "few shared": 1},
        }
    }
    assert json.loads((work.root / "analyses.json").read_text(encoding="utf-8")) == made
    assert "- one apart: 1" in tool.told(made)


def test_another_cut_has_other_disagreements(tool: ModuleType, work: JuryFolder) -> None:
    made = tool.analyse(tool.options([str(work.root), "--worst", "B"]))
    assert made["counted"]["pairs on two sides"] == {"far apart": 3, "abstained": 1}


def play(body: Mapping[str, Any]) -> str:
    """Reads the prompt: a pair with an S and a D is a mistake, any other is at the boundary; c is hard, a is easy."""
    text = body["messages"][-1]["content"]
    if "1. " not in text:
        return json.dumps({"reason": "r", "level": "inference" if "query c" in text else "lexical"})
    assert not any(f"{judge}:" in text for judge in JUDGES), "a judge's name may sway the model"
    graded = {line[3] for line in text.splitlines() if line[1:3] == ". "}
    return json.dumps({"reason": "r", "kind": "mistake" if {"S", "D"} <= graded else "boundary"})


def test_a_model_tells_the_kinds_beside_the_paper_s(
    tool: ModuleType, work: JuryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(play, models=("large",)) as server:
        monkeypatch.setattr(tool, "load_config", lambda _: config(server.url, ["large"]))
        asking = tool.options([str(work.root), "--model", "large"])
        made = tool.analyse(asking)
        assert made["kinds"] == {"a a3": "boundary", "a a4": "mistake", "b b1": "mistake", "b b2": "boundary"}
        assert made["levels"] == {"a": "lexical", "c": "inference"}
        assert made["failed"] == 0 and server.total == 6
        lines = tool.told(made)
        assert "| Boundary relevance | 50 | 50 |" in lines and "| LLM hallucination | 50 | 38 |" in lines
        assert "| Noise | 0 | 12 |" in lines and "| L3: Hard | 50 | 21 |" in lines
        # Nothing is asked twice, and a smaller sample is a part of it.
        asking.sample = 1
        fewer = tool.analyse(asking)
        assert server.total == 6 and len(fewer["kinds"]) == len(fewer["levels"]) == 1
        assert fewer["kinds"].items() <= made["kinds"].items()
