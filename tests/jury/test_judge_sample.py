"""The numbers of tools/judge_sample.py: judges and consensus held against judgements that are known."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from court import vote

from suwen.corpora.collection import Collection
from suwen.corpora.sample_collection import sample_path
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import Candidate, Found, PooledQuery, read_pool
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Label, Verdict

QRELS = {"q": {"answer": 2, "help": 1}}
GRADES = {"small-zh": "AAAD", "small-en": "SBDD", "large-zh": "ABCS"}
PASSAGES = ("answer", "help", "other", "far")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "judge_sample.py"
    spec = importlib.util.spec_from_file_location("judge_sample", path)
    assert spec is not None and spec.loader is not None
    # Dataclasses look their module up by its name.
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verdicts(labels: tuple[Label, ...]) -> list[Verdict]:
    return [
        Verdict("q", passage, label, tuple(vote("q", passage, judge, said[place]) for judge, said in GRADES.items()))
        for place, (passage, label) in enumerate(zip(PASSAGES, labels, strict=True))
    ]


def test_judges_and_consensus_are_held_against_what_answers_and_what_helps(tool: ModuleType) -> None:
    unanimous = verdicts(("positive", "undecided", "undecided", "undecided"))
    found = tool.against_qrels({"unanimous": unanimous}, QRELS)
    assert found["answers"]["every pair"] == {"chosen": 4, "right": 1, "precision": 0.25, "recall": 1.0}
    assert found["answers"]["small-zh"] == {"chosen": 3, "right": 1, "precision": 0.3333, "recall": 1.0}
    assert found["answers"]["unanimous"] == {"chosen": 1, "right": 1, "precision": 1.0, "recall": 1.0}
    assert found["helps"]["large-zh"] == {"chosen": 2, "right": 1, "precision": 0.5, "recall": 0.5}
    assert found["grades"]["large-zh"]["0"] == {"S": 1, "A": 0, "B": 0, "C": 1, "D": 0}


def test_nothing_chosen_has_no_precision(tool: ModuleType) -> None:
    assert tool.scored(set(), {("q", "answer")}) == {"chosen": 0, "right": 0, "precision": None, "recall": 0.0}


def test_order_counts_ties_as_half(tool: ModuleType) -> None:
    shares = tool.ordered(verdicts(("undecided",) * 4), QRELS)
    assert shares == {"small-zh": 0.75, "small-en": 1.0, "large-zh": 0.5}


def test_the_best_of_both_lists_are_kept_with_who_found_them(tool: ModuleType) -> None:
    found = {
        "a": (Found("lexical", 1, 9.0),),
        "b": (Found("lexical", 2, 8.0), Found("dense", 3, 0.5)),
        "c": (Found("lexical", 3, 7.0),),
        "d": (Found("dense", 1, 0.9),),
    }
    pooled = PooledQuery("q", "问题", tuple(Candidate(id_, by) for id_, by in found.items()))
    kept = tool._best(pooled, 3)["candidates"]
    assert [one["passage_id"] for one in kept] == ["a", "d", "b"]
    assert [by["retriever"] for by in kept[2]["found"]] == ["lexical", "dense"]


def test_a_pair_takes_one_short_line(tool: ModuleType, tmp_path: Path) -> None:
    once, *_ = verdicts(("positive",) * 4)
    later = vote("q", "answer", "small-zh", None, round_=1, position=3)
    tool.write_grades(tmp_path / "grades.jsonl", [Verdict("q", "answer", "positive", (later, *once.votes))], QRELS)
    (line,) = (tmp_path / "grades.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "query_id": "q",
        "passage_id": "answer",
        "label": "positive",
        "own": 2,
        "grades": {"small-zh": ["A1", "-3"], "small-en": ["S1"], "large-zh": ["A1"]},
    }


def test_a_pool_that_was_made_before_is_taken_as_it_is(tool: ModuleType, tmp_path: Path) -> None:
    pool = Path(__file__).parents[2] / "docs" / "data" / "jury-with-local-models" / "pool.jsonl"
    folder = JuryFolder(tmp_path)
    tool.take_pool(folder, Collection.open(sample_path()), pool)
    pooled = list(read_pool(folder.pool))
    assert folder.pool.read_bytes() == pool.read_bytes() and [len(one.candidates) for one in pooled] == [10] * 20
    with Texts(folder.texts) as texts:
        for one in pooled:
            ids = [candidate.passage_id for candidate in one.candidates]
            assert all(texts.get(ids)[id_] for id_ in ids)
