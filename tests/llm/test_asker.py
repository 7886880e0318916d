"""Asking in steps: bad names before money, cutting to the context, budgets that stop, dry runs that call nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server import Fault, Says, Server, burst

from suwen.llm.asker import MARKS, Unfinished, label_schema, labelled, share
from suwen.llm.config import ConfigProblem, LLMError
from suwen.llm.endpoint import EndpointProblem
from suwen.llm.ledger import Budget, BudgetProblem
from suwen.llm.schema import fault

DEAD = "http://127.0.0.1:9/v1"


def medical(body: dict[str, Any]) -> str:
    return json.dumps({"reason": "…", "medical": int("病" in body["messages"][-1]["content"].split("文本：")[1])})


def requests(asker: Any, texts: list[str]) -> list[Any]:
    return [asker.request("cmirb-medical", {"text": text}, key=text[:6], long=("text",)) for text in texts]


def asked(asker: Any, texts: list[str]) -> dict[str, int]:
    return asker.ask("medical", requests(asker, texts), lambda data: data["medical"], lambda _: 1)


def test_replies_come_by_key_and_are_accounted_for(ask) -> None:
    with Server(medical) as server:
        asker = ask(server.url)
        assert asked(asker, ["肺炎是病", "今天天气"]) == {"肺炎是病": 1, "今天天气": 0}
        step = asker.steps["medical"]
        assert (step.calls, step.cached, step.failed) == (2, 0, 0) and step.tokens > 0
        assert asked(asker, ["肺炎是病", "今天天气"]) == {"肺炎是病": 1, "今天天气": 0}
        assert server.total == 2 and asker.steps["medical"].cached == 2


def test_what_is_wrong_is_told_before_any_call(ask, monkeypatch) -> None:
    with Server(medical) as server:
        with pytest.raises(ConfigProblem, match="no model is called 'n'"):
            ask(server.url, model="n")
        with pytest.raises(ConfigProblem, match="no model is called 'n'"):
            ask(server.url, model="n", dry_run=True)
        monkeypatch.delenv("NO_SUCH_KEY", raising=False)
        with pytest.raises(ConfigProblem, match="NO_SUCH_KEY is not set"):
            ask(server.url, key_env="NO_SUCH_KEY")
        with pytest.raises(BudgetProblem, match="allows no call"):
            Budget(calls=0)
        assert server.total == 0


def test_a_dead_endpoint_is_told(ask) -> None:
    asker = ask(DEAD, attempts=2)
    with pytest.raises(EndpointProblem):
        asker.llm.check(["m"])
    assert asked(asker, ["肺炎是病"]) == {} and asker.failed == 1 and asker.problem
    with pytest.raises(EndpointProblem):
        asked(asker, [f"第{number}种病" for number in range(50)])


def test_a_dry_run_needs_neither_key_nor_server_and_plans(ask, monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    asker = ask(DEAD, key_env="NO_SUCH_KEY", dry_run=True)
    assert asked(asker, ["肺炎是病", "今天天气"]) == {"肺炎是病": 1, "今天天气": 1}
    step = asker.steps["medical"]
    assert step.calls == 2 and step.tokens > 2 * 256


def test_a_budget_stops_and_the_next_run_goes_on(ask) -> None:
    texts = [f"第{number}种病" for number in range(6)]
    with Server(medical) as server:
        with pytest.raises(Unfinished, match="budget is spent"):
            asked(ask(server.url, calls=2), texts)
        assert server.total == 2
        assert len(asked(ask(server.url), texts)) == 6
        assert server.total == 6 and server.repeated == 0


def test_faults_are_survived_and_bad_replies_counted(ask) -> None:
    def play(body: dict[str, Any]) -> str | Says:
        text = body["messages"][1]["content"]
        if "拒绝" in text:
            return Says("", refusal="no")
        return "not json at all" if "胡说" in text else medical(body)

    with Server(play, burst(Fault("status", 429, retry_after="0"), 2)) as server:
        asker = ask(server.url)
        assert asked(asker, ["肺炎是病", "请你拒绝", "请你胡说"]) == {"肺炎是病": 1}
        assert asker.failed == 2 and asker.problem


def test_long_texts_are_cut_and_marked(ask) -> None:
    with Server(medical) as server:
        asker = ask(server.url, settings={"context": 700})
        assert asked(asker, ["病" * 5000, "短病"]) == {"病" * 6: 1, "短病": 1}
        assert asker.cut == 1
        sent = [body["messages"][-1]["content"] for _, body, _ in server.log]
        assert sum(MARKS["zh"] in text for text in sent) == 1 and max(map(len, sent)) < 700


def test_a_context_with_no_room_is_an_error_that_says_so(ask) -> None:
    with pytest.raises(LLMError, match="larger context"):
        requests(ask(DEAD, settings={"context": 300}), ["病" * 100])


def test_short_passages_leave_their_room_to_long_ones(ask) -> None:
    asker = ask(DEAD, settings={"context": 1000})
    made = asker.batch("verify", {"query": "问", "count": 3}, ["短", "长" * 900, "短"], key="q")
    assert asker.cut == 1
    kept = made.messages[-1].content
    assert kept.count("长") > 100 and "【P1】\n短" in kept and "【P3】\n短" in kept


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20), st.integers(1, 3000))
def test_what_is_shared_out_fits_and_is_as_much_as_can_be(lengths: list[int], room: int) -> None:
    most = share(sorted(lengths), room)
    taken = [min(length, most) for length in lengths]
    assert sum(taken) <= room or sum(lengths) <= room
    if sum(lengths) > room:
        assert sum(min(length, most + 1) for length in lengths) > room


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(0, 3000))
def test_shares_fill_the_room_and_never_more(lengths: list[int], room: int) -> None:
    most = share(sorted(lengths), room)
    taken = sum(min(length, most) for length in lengths)
    assert taken <= room or sum(lengths) <= room
    if sum(lengths) > room:
        assert taken > room - len(lengths)
    else:
        assert most >= max(lengths)


def test_labels_and_their_schema() -> None:
    assert labelled(["甲", "乙"]) == "【P1】\n甲\n\n【P2】\n乙"
    schema = label_schema(2, {"enum": ["yes"]})
    assert fault({"P1": "yes", "P2": "yes"}, schema) is None
    assert fault({"P1": "yes"}, schema) and fault({"P1": "yes", "P2": "yes", "P3": "yes"}, schema)
