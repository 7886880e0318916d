"""Bodies as they go over the wire and replies as they come: asking for JSON, reading it out of a text. No network."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Literal

from suwen.llm.config import ModelConfig
from suwen.llm.prompts import Message
from suwen.llm.reply_cache import Stored
from suwen.llm.requests import Finish, Request, clean, estimate, is_chinese, sampling
from suwen.llm.schema import fault, is_strict
from suwen.llm.token_estimate import estimate_tokens

#: What a part of a message that belongs to the answer is called; a server may leave it out.
_TEXT_PARTS = ("text", "output_text", None)
WireMode = Literal["schema", "object", "prompt"]
#: What ``auto`` tries next when an endpoint does not take one of these.
NEXT_MODE: dict[WireMode, WireMode] = {"schema": "object", "object": "prompt"}
_FENCE = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
# Models that think aloud do so before the answer, inside one of these marks; some leave the opening one out.
_THOUGHT_ENDS = re.compile(r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]|◁/think▷", re.IGNORECASE)
_THOUGHT_BEGINS = re.compile(r"<(?:think|thinking|thought|reasoning)>|\[THINK\]|◁think▷", re.IGNORECASE)
# How a model declines in words. Only a reply that holds no JSON is looked at, and only its beginning.
_DECLINES = re.compile(
    r"抱歉|对不起|不好意思|遗憾|人工智能|语言模型|违反|内容政策|敏感|拒绝"
    r"|(?:无法|不能|不便|没办法|没有办法)(?:为您|对此|给您|对这些|对该|就此)?(?:回答|提供|评|判断|处理|协助|完成|满足|给出|讨论)"
    r"|\b(?:sorry|afraid|apologi[sz]e|apologies|decline|refuse|unable|not able|as an ai|policy|policies)\b"
    r"|\b(?:can(?:no|['’])?t|can not|won['’]t|will not) (?:\w+ )?"
    r"(?:help|assist|answer|provide|comply|grade|judge|assess|rate|do that|fulfil|discuss|continue)",
    re.IGNORECASE,
)
_DECLINED_WITHIN = 120
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
    sent: list[dict[str, Any]] = [{"role": one.role, "content": clean(one.content)} for one in messages]
    if request.image is not None:
        sent[-1]["content"] = _with_picture(sent[-1]["content"], request.image)
    return {"model": model.model, "messages": sent} | sampling(request, model) | fields


def _with_picture(text: str, image: bytes) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{b64encode(image).decode('ascii')}"
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]


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
        said, refused = _content(message.get("content"), message.get("refusal"))
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


def _content(said: Any, refused: Any) -> tuple[str | None, str | None]:
    """What a message says and how it refuses; content may come as a text or in parts, some of which are thoughts."""
    if isinstance(said, list):
        parts = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in said]
        if not all(isinstance(part.get("text", ""), str | None) for part in parts):
            raise MalformedReply("a part of the reply's content is not a text")
        refused = refused or "".join(str(part["refusal"]) for part in parts if part.get("refusal")) or None
        said = "".join(part["text"] for part in parts if part.get("type") in _TEXT_PARTS and part.get("text"))
    if not isinstance(said, str | None) or not isinstance(refused, str | None):
        raise MalformedReply("the content of the reply is not a text")
    return said, refused


def _finish(reason: Any, refused: str | None) -> Finish:
    if refused or reason == "content_filter":
        return "refusal"
    return "length" if reason == "length" else "stop"


def _count(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def answer(text: str) -> str:
    """What a model answered: what stands before the end of its last thought is none of it, nor an unfinished thought.

    >>> answer('D at first… </think>{"grade": "A"}'), answer("<think>so it is B, or")
    ('{"grade": "A"}', '')
    """
    rest = text[max((end.end() for end in _THOUGHT_ENDS.finditer(text)), default=0) :]
    begun = _THOUGHT_BEGINS.search(rest)
    # After the answer has begun such a mark is a part of it, or of what follows.
    unfinished = begun is not None and "{" not in rest[: begun.start()]
    return (rest[: begun.start()] if begun and unfinished else rest).strip()


def refuses(text: str) -> bool:
    """Whether a text without JSON declines to answer.

    >>> refuses("抱歉，我无法对医疗内容作出评价。"), refuses("P1 is a good answer.")
    (True, False)
    """
    return "{" not in text and "[" not in text and _DECLINES.search(text[:_DECLINED_WITHIN]) is not None


def answered(reply: Stored, request: Request) -> Stored:
    """A reply as it is used: without thoughts, and a refusal in words where JSON was asked for as what it is."""
    text = answer(reply.text)
    declined = request.schema is not None and reply.finish == "stop" and refuses(text)
    return reply._replace(text=text, finish="refusal" if declined else reply.finish)


def judged(reply: Stored, request: Request) -> tuple[Any, str | None]:
    """The data of a reply and what is wrong with it: one of them is None, both for a good free text."""
    if reply.finish == "refusal":
        return None, f"the model refused: {reply.text[:200] or 'it gave no reason'}"
    if request.schema is None:
        cut = "the reply was cut at max_tokens: allow more" if reply.finish == "length" else None
        return None, cut
    try:
        data = extract(reply.text)
        data = data if request.tidy is None else request.tidy(data)
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
    text = answer(text)
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
