"""Synonym STS against a real server: rules, repair, draws, split, resumption, bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from server import Fault, Says, Server, burst

from suwen.corpora.records import Query
from suwen.corpora.training_rows import read_training_rows
from suwen.curate import CurateError
from suwen.curate.synonym_terms import Dictionary, complaint
from suwen.curate.synonyms import Sample, StsSettings, draw_pair, find_cases, make_sts, read_pairs
from suwen.llm.asker import Unfinished

NAMES = [
    ("心肌梗死", "心梗"),
    ("脑卒中", "中风"),
    ("感冒", "伤风"),
    ("骨性关节炎", "退行性关节病"),
    ("荨麻疹", "风疹块"),
]
ASKS = ("患者早期需要注意哪些征兆", "在家里应该怎样护理才好", "平时的饮食方面有哪些禁忌", "一般要治疗多久才可能好转")
DICTIONARY = Dictionary(NAMES)
QUERIES = [Query(f"q{m}{n}", name + ask) for m, (name, _) in enumerate(NAMES) for n, ask in enumerate(ASKS)]
_TERMS = re.compile("名词“(.+?)”有一个同义说法“(.+?)”")


def write(body: dict[str, Any]) -> str:
    """A model that keeps the rules, whatever the query."""
    content = body["messages"][1]["content"]
    term, synonym = _TERMS.search(content).groups()
    query = re.search("原句：(.+)", content)[1]
    rest = query.replace(term, "")
    made = {
        "same": f"{synonym}{rest}呢",
        "other_with_synonym": f"{synonym}{'是否会遗传给下一代的孩子们呀'[: len(rest)]}？",
    }
    return json.dumps(
        made | {"other_with_term": f"{term}{'每年全国新增多少病例可以查到呀'[: len(rest)]}？"}, ensure_ascii=False
    )


def run(
    ask: Any, url: str, out: Path, queries: list[Query] = QUERIES, *, calls: int | None = None, **settings: Any
) -> Any:
    asker = ask(url, calls=calls, attempts=40)
    return make_sts(queries, DICTIONARY, asker, out, StsSettings(**settings)), asker


def test_pairs_and_rows_are_written_and_keep_the_rules(ask, tmp_path) -> None:
    with Server(write) as server:
        funnel, _ = run(ask, server.url, tmp_path / "sts", train=0.4, seed=1)
    assert funnel["queries"] == funnel["with_a_term"] == funnel["rewritten"] == 20
    assert (
        funnel["test_pairs"] + funnel["training_rows"] + funnel["dropped_for_leaking"] == 20
        and funnel["training_rows"] >= 4
    )
    samples = [json.loads(line) for line in (tmp_path / "sts" / "samples.jsonl").read_text("utf-8").splitlines()]
    cases = {case.id: case for case in find_cases(QUERIES, DICTIONARY, 1)}
    assert [complaint(sample, cases[sample["id"]]) for sample in samples] == [None] * 20
    pairs = list(read_pairs(tmp_path / "sts" / "test.jsonl"))
    assert {pair.score for pair in pairs} == {0.0, 1.0} and len(pairs) == funnel["test_pairs"]
    rows = list(read_training_rows(tmp_path / "sts" / "train.jsonl.gz"))
    assert all(row.type == "symmetric_sts" and len(row.pos) == 1 and len(row.neg) == 2 for row in rows)
    # One dictionary entry is on one side.
    tested = {name for names in NAMES for name in names if any(name in pair.sentence1 for pair in pairs)}
    assert not any(name in row.query for row in rows for name in tested)


def test_a_broken_rule_is_repaired_once_and_then_left_out(ask, tmp_path) -> None:
    def play(body: dict[str, Any]) -> str:
        good = json.loads(write(body))
        first = len(body["messages"]) == 2
        content = body["messages"][1]["content"]
        if "脑卒中" in content or ("感冒" in content and first):
            good["same"] = "一句没有那个词的问句可以吗？"
        return json.dumps(good, ensure_ascii=False)

    with Server(play) as server:
        funnel, asker = run(ask, server.url, tmp_path / "sts")
        complaints = [body["messages"][-1]["content"] for _, body, _ in server.log if len(body["messages"]) == 4]
    assert funnel["rewritten"] == 16 and funnel["rejected_or_unanswered"] == 4 == asker.failed
    assert len(complaints) == 8 and all("same does not use" in text for text in complaints)


def test_faults_change_nothing(ask, tmp_path) -> None:
    def trouble(number: int, _: Any) -> Fault | None:
        kinds = (Fault("status", 429, retry_after="0"), Fault("cut"), Fault("not-json"), Fault("status", 500))
        return kinds[number // 2 % 4] if number % 2 else None

    with Server(write) as server:
        calm, _ = run(ask, server.url, tmp_path / "calm")
    (tmp_path / "replies.db").unlink()
    with Server(write, trouble) as server:
        rough, _ = run(ask, server.url, tmp_path / "rough")
    assert calm == rough
    assert (tmp_path / "calm" / "test.jsonl").read_bytes() == (tmp_path / "rough" / "test.jsonl").read_bytes()


def test_a_spent_budget_stops_and_the_next_run_goes_on(ask, tmp_path) -> None:
    with Server(write) as server:
        with pytest.raises(Unfinished):
            run(ask, server.url, tmp_path / "sts", calls=7)
        assert not (tmp_path / "sts").exists() and server.total == 7
        funnel, _ = run(ask, server.url, tmp_path / "sts")
        assert funnel["rewritten"] == 20 and server.total == 20 and server.repeated == 0


def test_the_draw_keeps_its_share_and_is_each_samples_own() -> None:
    (case, *_) = find_cases(QUERIES, DICTIONARY)
    samples = [Sample(case._replace(id=str(n)), "same", "hard", "easy") for n in range(2000)]
    drawn = [draw_pair(sample, StsSettings(positive_share=0.48)) for sample in samples]
    assert abs(sum(pair.score for pair in drawn) / 2000 - 0.48) < 0.04
    assert {pair.sentence2 for pair in drawn if not pair.score} == {"hard", "easy"}
    assert drawn[7] == draw_pair(samples[7], StsSettings(positive_share=0.48))


def test_a_dry_run_plans_and_writes_nothing(ask, tmp_path) -> None:
    asker = ask("http://127.0.0.1:9/v1", dry_run=True)
    make_sts(QUERIES, DICTIONARY, asker, tmp_path / "sts", StsSettings())
    assert asker.steps["rewrite"].calls == 20 and not (tmp_path / "sts").exists()


def test_bad_input_is_refused_before_any_call(ask, tmp_path) -> None:
    with Server(write) as server:
        for queries, problem in (
            ([], "no queries"),
            ([*QUERIES, Query("again", QUERIES[0].text)], "are the same"),
            ([Query("q", "失眠怎么办")], "none of 1 queries"),
        ):
            with pytest.raises(CurateError, match=problem):
                run(ask, server.url, tmp_path / "sts", queries)
        with pytest.raises(CurateError, match="more than 0"):
            StsSettings(positive_share=1.0)
        assert server.total == 0


def test_a_model_that_refuses_everything_leaves_nothing(ask, tmp_path) -> None:
    refused = pytest.raises(CurateError, match="none of 20 queries could be rewritten")
    with Server(lambda _: Says("", refusal="no"), burst(Fault("slow"), 1)) as server, refused:
        run(ask, server.url, tmp_path / "sts")
    assert not (tmp_path / "sts").exists()


def test_pairs_that_are_none_name_their_line(tmp_path) -> None:
    (tmp_path / "test.jsonl").write_text('{"sentence1": "a"}\n', encoding="utf-8")
    with pytest.raises(CurateError, match=r"test\.jsonl:1: this is no pair"):
        list(read_pairs(tmp_path / "test.jsonl"))
