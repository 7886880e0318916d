"""Bodies as they go over the wire and replies as they come: asking for JSON, reading it out of a text. No network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from suwen.llm.config import ModelConfig
from suwen.llm.prompts import Message
from suwen.llm.reply_cache import Stored
from suwen.llm.requests import Finish, Request, clean, estimate, is_chinese, sampling
from suwen.llm.schema import fault, is_strict
from suwen.llm.token_estimate import estimate_tokens

WireMode = Literal["schema", "object", "prompt"]
#: What ``auto`` tries next when an endpoint does not take one of these.
NEXT_MODE: dict[WireMode, WireMode] = {"schema": "object", "object": "prompt"}
_FENCE = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
# Models that think aloud may do so before the answer, inside these marks.
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_ORDER = {
    "zh": "只输出一个符合下面 JSON Schema 的 JSON，前后不要任何其他文字：\n{schema}",
    "en": "Answer with one JSON value that satisfies this JSON Schema, and with nothing before or after it:\n{schema}",
}


class MalformedReply(Exception):
    """A body that is no chat completion; such a call is tried again."""


def body(request: Request, model: ModelConfig, mode: WireMode) -> dict[str, Any]:
    """The body of a chat completion."""
    messages = request.messages
    fields: dict[str, Any] = {}
    if request.schema is not None:
        fields = _response_format(request.schema, mode)
        if mode != "schema":
            messages = _with_schema(messages, request.schema)
    sent = [{"role": message.role, "content": clean(message.content)} for message in messages]
    return {"model": model.model, "messages": sent} | sampling(request, model) | fields


def _response_format(schema: Mapping[str, Any], mode: WireMode) -> dict[str, Any]:
    if mode == "prompt":
        return {}
    if mode == "object":
        return {"response_format": {"type": "json_object"}}
    named = {"name": "reply", "schema": dict(schema), "strict": is_strict(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _with_schema(messages: tuple[Message, ...], schema: Mapping[str, Any]) -> tuple[Message, ...]:
    order = _ORDER["zh" if is_chinese(messages) else "en"]
    words = order.format(schema=json.dumps(schema, ensure_ascii=False))
    if messages and messages[0].role == "system":
        return (Message("system", f"{messages[0].content}\n\n{words}"), *messages[1:])
    return (Message("system", words), *messages)


def read(text: str, request: Request, model: ModelConfig) -> Stored:
    """The reply in the body of an answer; ``MalformedReply`` where there is none."""
    try:
        whole = json.loads(text)
        choice = whole["choices"][0]
        message = choice["message"]
        said, refused = message.get("content"), message.get("refusal")
        if not isinstance(said, str | None) or not isinstance(refused, str | None):
            raise MalformedReply("the content of the reply is not a text")
        finish = _finish(choice.get("finish_reason"), refused)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as problem:
        raise MalformedReply(f"the body is no chat completion: {text[:200]!r}") from problem
    words = clean(said or refused or "")
    usage = whole.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    tokens_in = _count(usage.get("prompt_tokens"), estimate(request, model)[0])
    tokens_out = _count(usage.get("completion_tokens"), estimate_tokens(words))
    served = whole.get("model")
    return Stored(
        words,
        finish,
        clean(served) if isinstance(served, str) else "",
        tokens_in,
        tokens_out,
        model.cost(tokens_in, tokens_out),
    )


def _finish(reason: Any, refused: str | None) -> Finish:
    if refused or reason == "content_filter":
        return "refusal"
    return "length" if reason == "length" else "stop"


def _count(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def judged(reply: Stored, request: Request) -> tuple[Any, str | None]:
    """The data of a reply and what is wrong with it: one of them is None, both for a good free text."""
    if reply.finish == "refusal":
        return None, f"the model refused: {reply.text[:200] or 'it gave no reason'}"
    if request.schema is None:
        cut = "the reply was cut at max_tokens: allow more" if reply.finish == "length" else None
        return None, cut
    try:
        data = extract(reply.text)
        complaint = fault(data, request.schema)
    except ValueError as problem:
        data, complaint = None, str(problem)
    except RecursionError:
        data, complaint = None, "it is nested too deeply"
    if complaint is None and request.check is not None:
        complaint = request.check(data)
    if complaint is not None and reply.finish == "length":
        complaint = f"the reply was cut at max_tokens: allow more, or ask for less at once ({complaint})"
    return (data, None) if complaint is None else (None, complaint)


def extract(text: str) -> Any:
    """The JSON value of a reply: the whole text, a fenced block of it, or its first object or list.

    >>> extract('Here you are: {"grade": "A"}')
    {'grade': 'A'}
    """
    text = _THOUGHT.sub("", text).strip()
    for candidate in (text, *_FENCE.findall(text)):
        try:
            return json.loads(candidate, parse_constant=_no_constant)
        except ValueError:
            continue
    starts = [place for place in (text.find("{"), text.find("[")) if place >= 0]
    if not starts:
        raise ValueError("it holds no JSON")
    try:
        return json.JSONDecoder(parse_constant=_no_constant).raw_decode(text, min(starts))[0]
    except ValueError as problem:
        raise ValueError(f"it is not valid JSON ({problem})") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
