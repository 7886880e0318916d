"""What the cache key depends on, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suwen.llm.config import EndpointConfig, ModelConfig
from suwen.llm.prompts import Message, Prompt
from suwen.llm.requests import Request, cache_key, identity
from suwen.llm.schema import SchemaProblem

MODEL = ModelConfig(endpoint="e", model="big-1")
ENDPOINT = EndpointConfig(base_url="http://one/v1")
ASK = Request("m", (Message("system", "s"), Message("user", "u")), {"type": "object"})


def key(request: Request = ASK, model: ModelConfig = MODEL, endpoint: EndpointConfig = ENDPOINT) -> str:
    return cache_key(identity(request, model, endpoint))


@pytest.mark.parametrize(
    "other",
    [
        replace(ASK, messages=(Message("system", "s"), Message("user", "u "))),
        replace(ASK, messages=(Message("user", "s"), Message("user", "u"))),
        replace(ASK, schema=None),
        replace(ASK, schema={"type": "array"}),
        replace(ASK, sample=1),
        replace(ASK, max_tokens=7),
        replace(ASK, temperature=0.1),
    ],
)
def test_everything_that_affects_the_reply_is_in_the_key(other: Request) -> None:
    assert key(other) != key()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "big-2"},
        {"temperature": 0.5},
        {"temperature": "omit"},
        {"seed": 1},
        {"max_tokens": 5},
        {"extra": {"top_p": 0.5}},
        {"token_field": "max_completion_tokens"},
    ],
)
def test_every_setting_of_the_model_that_is_sent_is_in_the_key(change: dict[str, object]) -> None:
    assert key(model=MODEL.model_copy(update=change)) != key()


def test_the_address_counts_unless_the_endpoint_has_an_identity() -> None:
    moved = EndpointConfig(base_url="http://two/v1")
    assert key(endpoint=moved) != key()
    named = [one.model_copy(update={"identity": "same"}) for one in (ENDPOINT, moved)]
    assert key(endpoint=named[0]) == key(endpoint=named[1]) != key()


def test_what_does_not_affect_the_reply_is_not_in_the_key() -> None:
    assert key(replace(ASK, key="q9", check=lambda _: "no")) == key()
    assert key(replace(ASK, model="alias")) == key()
    for change in ({"timeout": 1.0}, {"concurrency": 9}, {"key_env": "X"}, {"attempts": 2}):
        assert key(endpoint=ENDPOINT.model_copy(update=change)) == key()
    assert key(model=MODEL.model_copy(update={"price_in": 3.0, "context": 5})) == key()


def test_two_messages_are_not_one_with_both_texts() -> None:
    one = replace(ASK, messages=(Message("user", 'a"],["user","b'),))
    assert key(one) != key(replace(ASK, messages=(Message("user", "a"), Message("user", "b"))))


def test_a_request_from_a_prompt_takes_its_schema_unless_another_is_given() -> None:
    prompt = Prompt("p", 1, "en", "", "{{a}}", {"type": "object"})
    assert Request.of(prompt, "m", {"a": 1}, key="k") == Request("m", (Message("user", "1"),), {"type": "object"}, "k")
    assert Request.of(prompt, "m", {"a": 1}, schema={"type": "array"}, sample=3).schema == {"type": "array"}
    changed = replace(prompt, user="{{a}}!")
    assert key(Request.of(changed, "m", {"a": 1})) != key(Request.of(prompt, "m", {"a": 1}))


def test_a_schema_whose_rules_are_not_all_checked_is_refused_at_once() -> None:
    with pytest.raises(SchemaProblem, match="format"):
        Request("m", (), {"type": "string", "format": "date"})


def test_a_repair_sends_the_reply_and_the_complaint_back_in_the_same_language() -> None:
    english = ASK.repaired("{", "no JSON")
    assert english.messages[:2] == ASK.messages and english.messages[2] == Message("assistant", "{")
    assert "no JSON" in english.messages[3].content and "Answer again" in english.messages[3].content
    chinese = replace(ASK, messages=(Message("user", "给下面的段落打分"),)).repaired("{", "no JSON")
    assert "重新作答" in chinese.messages[-1].content
