"""The endpoint ``local``: models of this process behind the same calls as a server, many requests sampled together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from suwen.errors import SuwenError
from suwen.llm.config import LLMError, ModelConfig
from suwen.llm.endpoint import Endpoint, EndpointProblem, Failure
from suwen.llm.replies import body
from suwen.llm.reply_cache import Stored
from suwen.llm.requests import Finish, Request, Sampling

if TYPE_CHECKING:
    from suwen.llm.local_model import Written

#: Requests that come within this many seconds of each other are sampled together.
_TOGETHER = 0.02
#: What a request may say of the draws, with what it means to say nothing.
_DRAWS = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
_KNOWN = {*_DRAWS, "model", "messages", "seed", "max_tokens", "max_completion_tokens"}


class _Asked(NamedTuple):
    model: tuple[str, str | None]
    settings: Sampling
    seed: int | None
    messages: list[dict[str, str]]
    reply: asyncio.Future[Written]


class LocalEndpoint(Endpoint):
    """Samples replies in a thread of its own; as many at once as the endpoint's ``concurrency``.

    What is drawn depends on what is sampled together, so a seed makes single requests repeatable, not batches; the
    cache of replies keeps what was drawn. A schema goes into the prompt: nothing forces the form of a reply.
    """

    _waiting: list[_Asked]
    _writing: asyncio.Task[None] | None = None

    @staticmethod
    @override
    def load() -> None:
        with contextlib.suppress(ImportError):
            import transformers  # noqa: F401

    @override
    def _connect(self) -> Any:
        self._waiting = []
        return None

    @override
    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    @override
    async def check(self, models: list[str]) -> list[str]:
        for model in models:
            if model.endswith(".gguf") and not Path(model).is_file():
                raise EndpointProblem(f"endpoint {self.name!r}: there is no file {model}; correct the model's path")
        return []

    @override
    async def _send(self, request: Request, model: ModelConfig) -> Stored | Failure:
        sent = body(request, model, "prompt")
        if unknown := sorted(set(sent) - _KNOWN):
            raise LLMError(f"a local model takes no {', '.join(unknown)}: drop it from `extra` of the model")
        reply: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self._waiting.append(
            _Asked((model.model, model.adapter), _settings_of(sent), sent.get("seed"), sent["messages"], reply)
        )
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        came = await reply
        cost = model.cost(came.tokens_in, came.tokens_out)
        ended: Finish = "stop" if came.ended else "length"
        return Stored(came.text, ended, model.model, came.tokens_in, came.tokens_out, cost)

    async def _write(self) -> None:
        while self._waiting:
            await self._gathered()
            first = self._waiting[0]
            alike = [one for one in self._waiting if (one.model, one.settings) == (first.model, first.settings)]
            alike = alike[: self.config.concurrency]
            taken = {id(one) for one in alike}
            self._waiting = [one for one in self._waiting if id(one) not in taken]
            try:
                written = await asyncio.to_thread(_replies, alike)
            except Exception as problem:
                for one in (*alike, *self._waiting):
                    # Who asked may have given up, when a time was over.
                    if not one.reply.done():
                        one.reply.set_exception(_told(self.name, problem))
                self._waiting = []
                return
            for one, reply in zip(alike, written, strict=True):
                if not one.reply.done():
                    one.reply.set_result(reply)

    async def _gathered(self) -> None:
        """Wait while more requests come in, until there are enough for a whole batch."""
        before = 0
        while before < len(self._waiting) < self.config.concurrency:
            before = len(self._waiting)
            await asyncio.sleep(_TOGETHER)


def _settings_of(sent: Mapping[str, Any]) -> Sampling:
    room = sent.get("max_tokens") or sent["max_completion_tokens"]
    return Sampling(room, *(sent.get(key, default) for key, default in _DRAWS.items()))


def forget() -> None:
    """Let go of the model in memory, and of what is known of files."""
    from suwen.llm.local_model import let_go

    let_go()


def _told(name: str, problem: Exception) -> Exception:
    """A problem with the model itself ends the run, in words; a bug stays a bug."""
    if isinstance(problem, SuwenError):
        return EndpointProblem(f"endpoint {name!r}: {problem}")
    return problem


def _replies(asked: list[_Asked]) -> list[Written]:
    try:
        import torch

        from suwen.llm.local_model import held
    except ImportError:
        raise LLMError("a model in this process needs the train extra: pip install 'suwen[train]'") from None
    source, adapter = asked[0].model
    model = held(source, Path(adapter) if adapter else None)
    if asked[0].seed is not None:
        torch.manual_seed(asked[0].seed)
    return model.write([one.messages for one in asked], asked[0].settings)
