"""What is asked and what comes back: requests, replies, and the key a reply is kept under. Sends nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from suwen.llm.config import EndpointConfig, ModelConfig
from suwen.llm.prompts import Message, Prompt
from suwen.llm.schema import check_schema
from suwen.llm.token_estimate import estimate_messages, estimate_tokens

#: Tokens of a page's picture: DeepSeek-OCR takes up to about 1,100, models that look closer more.
_PICTURE = 1500
Finish = Literal["stop", "length", "refusal", "error"]


@dataclass(frozen=True)
class Request:
    """One question to one model.

    Attributes:
        model: The configured name of the model.
        messages: The conversation so far.
        schema: The JSON Schema the reply is held to; None for free text.
        key: The caller's own id, such as ``q1/batch3``; no part of the cache key.
        sample: Which draw this is: another number is another call for the same question.
        max_tokens: The most tokens of the reply, if not the model's own.
        temperature: The sampling temperature, if not the model's own.
        image: A PNG picture that goes with the last message, for models with ``vision``.
        more: More fields of the body for this request alone, such as ``top_p`` and ``top_k``, over the model's own.
        check: What the schema cannot say: given the reply's data, what is wrong with it, or None. Must depend on the
            data alone; no part of the cache key.
        tidy: Puts the reply's data into the form that the schema asks for, where only the writing differs, so that no
            second call is paid for that; no part of the cache key.
    """

    model: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = field(default=None, hash=False)
    key: str = ""
    sample: int = 0
    max_tokens: int | None = None
    temperature: float | None = None
    image: bytes | None = None
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)
    check: Callable[[Any], str | None] | None = field(default=None, compare=False)
    tidy: Callable[[Any], Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.schema is not None:
            check_schema(self.schema)

    @classmethod
    def of(
        cls, prompt: Prompt, model: str, values: Mapping[str, str | int | float], *, key: str = "", **more: Any
    ) -> Request:
        """A request from a prompt, held to the prompt's schema unless another is given.

        Args:
            prompt: The prompt.
            model: The configured name of the model.
            values: What stands in the prompt's places.
            key: The caller's own id.
            **more: Other fields of the request.
        """
        return cls(model, prompt.render(**values), **({"schema": prompt.schema} | more), key=key)

    def repaired(self, bad: str, complaint: str) -> Request:
        """The request that sends a bad reply back with what is wrong with it."""
        words = _REPAIR["zh" if is_chinese(self.messages) else "en"].format(complaint=complaint)
        return replace(self, messages=(*self.messages, Message("assistant", bad), Message("user", words)))


_REPAIR = {
    "zh": "你的回答不能使用：{complaint}。请重新作答，只输出改正后的 JSON，不要任何其他文字。",
    "en": "Your reply cannot be used: {complaint}. Answer again with the corrected JSON and nothing else.",
}


@dataclass(frozen=True)
class Reply:
    """What came of one request.

    Attributes:
        text: What the model wrote; empty where nothing came back.
        data: The reply as JSON, held to the schema; None for free text and for a reply that is no good.
        model: The configured name of the model.
        tokens_in: Tokens of the prompt, with those of a repair.
        tokens_out: Tokens of the reply, with those of a repair.
        cost: What the reply cost when it was bought.
        cached: Whether it came from the cache, so that nothing was spent on it now.
        finish: ``stop``, ``length`` (cut at max_tokens), ``refusal``, or ``error``.
        error: What went wrong and what to do; None where the reply is good.
        attempts: The calls made for it now; 0 for a cached one.
        repaired: Whether it is what came when the first reply was no good and the model was told so.
    """

    text: str
    data: Any
    model: str
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    cached: bool = False
    finish: Finish = "stop"
    error: str | None = None
    attempts: int = 0
    repaired: bool = False

    @property
    def good(self) -> bool:
        """Whether it can be used."""
        return self.error is None


class Sampling(NamedTuple):
    """How tokens are drawn.

    Attributes:
        room: The most new tokens of a row.
        temperature: 0 takes the likeliest.
        top_p: Draw among the likeliest that have this much of the probability together.
        top_k: Draw among so many of the likeliest; 0 for all.
        min_p: Draw among those at least this many times as likely as the likeliest.
    """

    room: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


def is_chinese(messages: tuple[Message, ...]) -> bool:
    """Whether a conversation is held in Chinese, by its last message."""
    last = messages[-1].content if messages else ""
    return 5 * sum("\u4e00" <= character <= "\u9fff" for character in last) > len(last)


def clean(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def sampling(request: Request, model: ModelConfig) -> dict[str, Any]:
    """The fields of the body that steer the sampling."""
    temperature = model.temperature if request.temperature is None else request.temperature
    fields: dict[str, Any] = {model.token_field: request.max_tokens or model.max_tokens}
    if temperature != "omit":
        fields["temperature"] = temperature
    if model.seed is not None:
        # Otherwise a second draw with the same seed is the first one again.
        fields["seed"] = model.seed + request.sample
    return fields | model.extra | dict(request.more)


def identity(request: Request, model: ModelConfig, endpoint: EndpointConfig) -> str:
    """Everything that affects the reply, as canonical JSON: what the cache key is a hash of."""
    whole = {
        "endpoint": endpoint.identity or endpoint.base_url,
        # Files of one name may hold other weights tomorrow; a server's models have no better name.
        "model": _weights(model) if endpoint.is_local else model.model,
        "messages": [[message.role, clean(message.content)] for message in request.messages],
        "sampling": sampling(request, model),
        "schema": request.schema,
        # Without a schema the mode sends nothing.
        "json_mode": endpoint.json_mode if request.schema is not None else None,
        "sample": request.sample,
    }
    if request.image is not None:
        # Its hash alone: what was asked is kept beside the reply, and pictures are large.
        whole["image"] = hashlib.sha256(request.image).hexdigest()
    return json.dumps(whole, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _weights(model: ModelConfig) -> str:
    from suwen.llm.local_model import weights_digest

    return weights_digest(model.model, model.adapter)


def cache_key(whole: str) -> str:
    """The key of a reply, from ``identity``."""
    return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()


def estimate(request: Request, model: ModelConfig) -> tuple[int, int]:
    """About how many tokens a request takes in, and the most it may take out."""
    schema = estimate_tokens(json.dumps(request.schema)) if request.schema is not None else 0
    contents = [message.content for message in request.messages]
    picture = _PICTURE if request.image is not None else 0
    return estimate_messages(contents) + schema + picture, request.max_tokens or model.max_tokens
