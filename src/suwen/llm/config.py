"""The ``[llm]`` part of ``suwen.toml``: named endpoints and models, and what is wrong with it. Makes no call."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from suwen.errors import SuwenError

JsonMode = Literal["auto", "schema", "object", "prompt"]
#: The ``base_url`` of models in this process.
LOCAL = "local"
_EXAMPLE = """[llm.endpoints.local]
base_url = "http://localhost:8080/v1"

[llm.models.small]
endpoint = "local"
model = "qwen2.5-0.5b"
"""


class LLMError(SuwenError):
    """A problem with asking language models."""


class ConfigProblem(LLMError):
    """The configuration names something that is not there, or cannot be read."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EndpointConfig(_Section):
    """One server that speaks the OpenAI protocol, or this process itself.

    Attributes:
        base_url: Its address up to and with ``/v1``; ``local`` for models that are loaded here, by transformers, whose
            ``model`` is a GGUF file, a folder or a hub id.
        key_env: The environment variable that holds the key; None where no key is needed.
        concurrency: The most calls on the wire at once; of ``local``, the requests that are sampled together.
        requests_per_minute: The most calls started in a minute; None for no limit.
        timeout: The seconds one call may take.
        json_mode: How a reply is held to a schema: ``schema`` (response_format json_schema), ``object`` (json_object,
            with the schema in the prompt), ``prompt`` (the schema in the prompt alone), or ``auto``: the first of these
            that the server takes.
        attempts: How often one call is tried.
        backoff: The seconds before the second try; doubled for each further one, and jittered.
        longest_wait: The most seconds to wait before a try; a server that asks for more ends the run.
        identity: What stands for the endpoint in the cache key; the address unless given. Give one where the same
            model will be served from another address.
    """

    base_url: str
    key_env: str | None = None
    concurrency: int = Field(default=4, ge=1, le=8192)
    requests_per_minute: float | None = Field(default=None, gt=0)
    timeout: float = Field(default=120.0, gt=0)
    json_mode: JsonMode = "auto"
    attempts: int = Field(default=6, ge=1)
    backoff: float = Field(default=1.0, gt=0)
    longest_wait: float = Field(default=120.0, gt=0)
    identity: str | None = None

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value == LOCAL:
            return value
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(
                f"{value!r} is not an address: write http://HOST:PORT/v1, or {LOCAL} for a model in this process"
            )
        return value.rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether its models are loaded into this process."""
        return self.base_url == LOCAL

    def key(self, name: str) -> str:
        """The key, from the environment.

        Args:
            name: The endpoint's name, for the message.
        """
        if self.key_env is None:
            return "none"
        if value := os.environ.get(self.key_env, "").strip():
            return value
        raise ConfigProblem(
            f"endpoint {name!r} needs a key, and the environment variable {self.key_env} is not set: "
            f"export {self.key_env}=…, or drop key_env from [llm.endpoints.{name}] if it needs none"
        )


class ModelConfig(_Section):
    """One model at one endpoint, with how it is asked.

    Attributes:
        endpoint: The name of its endpoint.
        model: What the endpoint calls it.
        context: The tokens its window holds, prompt and reply together.
        price_in: The price of a million prompt tokens, in any currency.
        price_out: The price of a million reply tokens.
        temperature: The sampling temperature; ``"omit"`` sends none, for models that refuse one.
        max_tokens: The most tokens of a reply.
        token_field: What the endpoint calls that limit.
        seed: The sampling seed; a request's ``sample`` is added to it. None sends none.
        extra: More fields of the request's body, such as ``top_p``.
        adapter: The folder of an adapter trained on the model; for models in this process alone.
        vision: Whether pages may be sent to it as pictures: scans leave this machine for its endpoint then.
    """

    endpoint: str
    model: str
    context: int = Field(default=8192, ge=1)
    price_in: float = Field(default=0.0, ge=0)
    price_out: float = Field(default=0.0, ge=0)
    temperature: float | Literal["omit"] = 0.0
    max_tokens: int = Field(default=1024, ge=1)
    token_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    seed: int | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    adapter: str | None = None
    vision: bool = False

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """The price of a call."""
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6


class LLMConfig(_Section):
    """All endpoints and models, by name."""

    endpoints: dict[str, EndpointConfig] = Field(default_factory=dict)
    models: dict[str, ModelConfig] = Field(default_factory=dict)

    def model_post_init(self, context: Any, /) -> None:
        """Hold every model to an endpoint that is there."""
        for name, model in self.models.items():
            if model.endpoint not in self.endpoints:
                hint = _nearest(model.endpoint, self.endpoints, "[llm.endpoints.…]")
                raise ConfigProblem(
                    f"model {name!r} is at endpoint {model.endpoint!r}, which is not configured; {hint}"
                )
            if model.vision and self.endpoints[model.endpoint].is_local:
                raise ConfigProblem(
                    f"model {name!r} has vision, but models in this process see no pictures: put it at a server, or "
                    "leave vision out"
                )
            if model.adapter and not self.endpoints[model.endpoint].is_local:
                raise ConfigProblem(
                    f"model {name!r} has an adapter, but its endpoint is a server: load it there, or put the model at "
                    f'an endpoint with base_url = "{LOCAL}"'
                )

    def model(self, name: str) -> ModelConfig:
        """The model of a name, or ``ConfigProblem`` naming the nearest."""
        if name not in self.models:
            raise ConfigProblem(f"no model is called {name!r}; {_nearest(name, self.models, '[llm.models.…]')}")
        return self.models[name]

    def endpoint(self, model: str) -> EndpointConfig:
        """The endpoint a model is at."""
        return self.endpoints[self.model(model).endpoint]

    def require(self, models: Iterable[str]) -> None:
        """Raise ``ConfigProblem`` unless all these models are configured and their keys are set; makes no call."""
        for name in dict.fromkeys(models):
            self.endpoint(name).key(self.model(name).endpoint)


def _nearest(name: str, known: Iterable[str], section: str) -> str:
    names = sorted(known)
    if not names:
        return f"add it to suwen.toml as {section}"
    if close := difflib.get_close_matches(name, names, n=1, cutoff=0.5):
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(names)}; add it to suwen.toml as {section}, or take one of these"


def load_config(path: Path | str | None = None) -> LLMConfig:
    """Read the endpoints and models of a configuration file; its other sections are left to others.

    Args:
        path: The file; else the environment variable ``SUWEN_CONFIG``, else ``suwen.toml`` in the current folder.
    """
    file = Path(path or os.environ.get("SUWEN_CONFIG") or "suwen.toml")
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigProblem(f"there is no {file}: write one that names an endpoint and a model:\n{_EXAMPLE}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigProblem(f"{file} cannot be read as TOML: {problem}") from None
    if not isinstance(section := data.get("llm"), dict):
        raise ConfigProblem(f"{file} has no [llm] section: add an endpoint and a model:\n{_EXAMPLE}")
    try:
        return LLMConfig.model_validate(section)
    except ValidationError as problem:
        raise ConfigProblem(f"{file}: {_described(problem)}") from None
    except ConfigProblem as problem:
        raise ConfigProblem(f"{file}: {problem}") from None


def _described(problem: ValidationError) -> str:
    first = problem.errors()[0]
    path = [str(part) for part in first["loc"]]
    where = ".".join(["llm", *path[:-1]])
    if first["type"] == "extra_forbidden":
        sections: dict[str, type[BaseModel]] = {"endpoints": EndpointConfig, "models": ModelConfig}
        fields = sections.get(path[0], LLMConfig).model_fields
        close = difflib.get_close_matches(path[-1], fields, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"it may have {', '.join(fields)}"
        return f"[{where}] has no setting {path[-1]!r}; {hint}"
    if first["type"] == "missing":
        return f"[{where}] lacks {path[-1]}: add it"
    return f"[{where}] {path[-1]}: {first['msg'].removeprefix('Value error, ')}"
