"""Bodies and replies on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.llm.config import ModelConfig
from suwen.llm.prompts import Message
from suwen.llm.replies import MalformedReply, body, extract, judged, read, refuses
from suwen.llm.requests import Request

MODEL = ModelConfig(endpoint="e", model="big-1", price_in=1.0, price_out=2.0, seed=5, extra={"top_p": 0.5})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ASK = Request("m", (Message("system", "s"), Message("user", "u")), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\n ',
        '```json\n{"a": 1}\n```',
        '好的：\n```\n{"a": 1}\n```\n希望有用',
        'Sure: {"a": 1} - there.',
        '<think>{"a": 2}</think>\n{"a": 1}',
    ],
)
def test_json_is_found_in_what_models_put_around_it(text: str) -> None:
    assert extract(text) == {"a": 1}


@pytest.mark.parametrize("text", ["", "no", '{"a": ', '{"a": NaN}', "[Infinity]", "{a: 1}"])
def test_what_is_no_json_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|json"):
        extract(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        extract(text)
    except ValueError:
        return


def test_a_deep_nest_is_a_complaint_not_a_crash() -> None:
    stored = read(json.dumps({"choices": [{"message": {"content": "[" * 200_000}}]}), ASK, MODEL)
    assert judged(stored, ASK)[1] is not None


def test_each_mode_asks_in_its_way() -> None:
    schema, thing, prompt = (body(ASK, MODEL, mode) for mode in ("schema", "object", "prompt"))
    assert schema["response_format"]["json_schema"] == {"name": "reply", "schema": SCHEMA, "strict": True}
    assert schema["messages"][0]["content"] == "s"
    assert thing["response_format"] == {"type": "json_object"}
    assert "response_format" not in prompt
    for one in (thing, prompt):
        assert json.dumps(SCHEMA) in one["messages"][0]["content"] and len(one["messages"]) == 2
    free = body(Request("m", (Message("user", "u"),)), MODEL, "object")
    assert "response_format" not in free and len(free["messages"]) == 1


def test_sampling_settings_are_sent_and_overridden() -> None:
    sent = body(Request("m", (), sample=2, max_tokens=9, temperature=0.7), MODEL, "schema")
    assert {key: sent[key] for key in ("model", "max_tokens", "temperature", "seed", "top_p")} == {
        "model": "big-1",
        "max_tokens": 9,
        "temperature": 0.7,
        "seed": 7,
        "top_p": 0.5,
    }
    bare = ModelConfig(endpoint="e", model="x", temperature="omit", token_field="max_completion_tokens")
    assert body(Request("m", ()), bare, "schema") == {"model": "x", "messages": [], "max_completion_tokens": 1024}


def test_lone_surrogates_do_not_reach_the_wire_or_the_file() -> None:
    sent = body(Request("m", (Message("user", "a\ud800b"),)), MODEL, "schema")
    assert sent["messages"][0]["content"] == "a?b"
    assert read('{"choices": [{"message": {"content": "\\ud800"}}]}', ASK, MODEL).text == "?"


def test_usage_is_taken_and_estimated_where_it_lacks() -> None:
    whole: dict[str, Any] = {"choices": [{"message": {"content": "x" * 40}, "finish_reason": "length"}], "model": "big"}
    told = read(json.dumps(whole | {"usage": {"prompt_tokens": 10, "completion_tokens": 4}}), ASK, MODEL)
    assert (told.tokens_in, told.tokens_out, told.finish, told.served) == (10, 4, "length", "big")
    assert told.cost == pytest.approx(18e-6)
    for usage in ({}, {"usage": None}, {"usage": {"prompt_tokens": "3"}}, {"usage": []}):
        guessed = read(json.dumps(whole | usage), ASK, MODEL)
        assert guessed.tokens_in > 0 and guessed.tokens_out == 12


@pytest.mark.parametrize(
    "text",
    ["", "<html>", "[]", "{}", '{"choices":[]}', '{"choices": [{}]}', '{"choices":[{"message":{"content":3}}]}'],
)
def test_a_body_that_is_no_completion_is_malformed(text: str) -> None:
    with pytest.raises(MalformedReply):
        read(text, ASK, MODEL)


@pytest.mark.parametrize(
    ("message", "reason", "told"),
    [
        ({"content": '{"a": 1}'}, "stop", None),
        ({"content": None, "refusal": "no"}, "stop", "the model refused: no"),
        ({"content": ""}, "content_filter", "refused: it gave no reason"),
        ({"content": '{"a": '}, "length", "cut at max_tokens"),
        ({"content": '{"a": 1}'}, "length", None),
        ({"content": '{"a": "1"}'}, "stop", "not of type integer"),
    ],
)
def test_what_is_wrong_with_a_reply(message: dict[str, Any], reason: str, told: str | None) -> None:
    stored = read(json.dumps({"choices": [{"message": message, "finish_reason": reason}]}), ASK, MODEL)
    data, complaint = judged(stored, ASK)
    assert (complaint is None) is (told is None) is (data == {"a": 1})
    assert told is None or told in str(complaint)


DRAFT = '{"id": "p1", "grade": "S"}'
FINAL = '{"id": "p1", "grade": "D"}'


@pytest.mark.parametrize(
    "text",
    [
        f"<think>perhaps {DRAFT}</think>{FINAL}",
        f"perhaps {DRAFT} </think>\n\n{FINAL}",
        f"<think>one {DRAFT}</think> no, wait <think>two {DRAFT}</think>```json\n{FINAL}\n```",
        f"<THINKING>{DRAFT}</THINKING>{FINAL}",
        f"[THINK]{DRAFT}[/THINK]{FINAL}",
        f"{FINAL}<think>or is it {DRAFT}",
        f'{FINAL[:-1]}, "why": "a <think> mark"}}',
    ],
)
def test_a_thought_is_never_read_as_the_answer(text: str) -> None:
    assert extract(text) | {"why": ""} == json.loads(FINAL) | {"why": ""}


@pytest.mark.parametrize("text", [f"<think>perhaps {DRAFT}, or", f"<think>{DRAFT}</think>", f"{DRAFT}</think>  "])
def test_a_thought_alone_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        extract(text)


def content(said: Any) -> str:
    return json.dumps({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]})


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([{"type": "text", "text": '{"a"'}, {"type": "text", "text": ": 1}"}], '{"a": 1}'),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}], "yes"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": "yes"}], "yes"),
        (["plain"], "plain"),
        ([], ""),
    ],
)
def test_content_in_parts_is_read(parts: list[Any], told: str) -> None:
    assert read(content(parts), ASK, MODEL).text == told


def test_a_refusal_may_be_a_part() -> None:
    reply = read(content([{"type": "refusal", "refusal": "no"}]), ASK, MODEL)
    assert (reply.finish, reply.text) == ("refusal", "no")


def test_parts_that_are_no_texts_are_malformed() -> None:
    with pytest.raises(MalformedReply):
        read(content([{"type": "text", "text": 3}]), ASK, MODEL)


@pytest.mark.parametrize(
    ("text", "declines"),
    [
        ("很抱歉，我无法对医疗内容进行评价。", True),
        ("这个问题我无法回答。", True),
        ("I'm sorry, but I can't assist with that request.", True),
        ("I am unable to grade medical content.", True),
        ("P1 answers the question; P2 does not.", False),
        ('抱歉，格式如下：{"P1": {"grade": "A"}}', False),
        ("", False),
    ],
)
def test_a_refusal_in_words(text: str, declines: bool) -> None:
    assert refuses(text) is declines
