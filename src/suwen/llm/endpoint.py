"""One endpoint on the wire: a call with its tries, waits and limits. Knows no cache and holds no reply to a schema."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suwen.llm.config import EndpointConfig, LLMError, ModelConfig
from suwen.llm.ledger import Spent
from suwen.llm.pace import Gate, back_off, retry_after
from suwen.llm.replies import NEXT_MODE, MalformedReply, WireMode, body, read
from suwen.llm.reply_cache import Stored
from suwen.llm.requests import Request, estimate

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_PASSING = frozenset({408, 409, 425, 429})
_FORMAT_WORDS = ("response_format", "json_schema", "json_object", "structured", "guided", "grammar", "schema")
_CHECK_SECONDS = 10.0


class EndpointProblem(LLMError):
    """An endpoint cannot be used at all, so a run ends: every further call would fail too."""


class Stopped(Exception):
    """The run is ending: this request is not to be sent (any more)."""


@dataclass(frozen=True)
class Failure:
    """A call that brought no reply.

    Attributes:
        outcome: What it is called in the ledger.
        error: What went wrong and what to do.
        retry: Whether another try may bring one.
        wait: The seconds the endpoint asks to wait, if it does.
        slow: Whether the endpoint is to be asked more slowly.
        lost: Whether it may have been worked on, and be billed.
    """

    outcome: str
    error: str
    retry: bool = False
    wait: float | None = None
    slow: bool = False
    lost: bool = False


#: Sets aside what a call may cost; gives back what takes note of how it ended.
Reserve = Callable[[Spent], Awaitable[Callable[[Spent], None]]]
#: Makes a reply durable, given what the call took.
Keep = Callable[[Stored, float], Awaitable[Stored]]
#: Enters a call without a reply into the ledger.
Note = Callable[[str, Spent, float], Awaitable[None]]


class Endpoint:
    """One endpoint, for the length of one event loop."""

    def __init__(self, name: str, config: EndpointConfig) -> None:
        self.name, self.config = name, config
        self.gate = Gate(config.concurrency, config.requests_per_minute)
        self._client = self._connect()
        self._mode: WireMode = "schema" if config.json_mode == "auto" else config.json_mode
        self._failed_in_a_row = 0

    def _connect(self) -> AsyncOpenAI:
        return _client(self.name, self.config)

    async def close(self) -> None:
        """Let go of its connections."""
        await self._client.close()

    async def call(
        self, request: Request, model: ModelConfig, *, reserve: Reserve, keep: Keep, note: Note, stop: asyncio.Event
    ) -> tuple[Stored | str, int]:
        """Ask until a reply comes or there is no use in asking.

        The slot is held until the reply is durable: what is not durable yet is never more than the slots.

        Returns:
            The reply as kept, or what went wrong; and the calls made.
        """
        attempt = 0
        while True:
            attempt += 1
            async with self.gate.slot():
                came = await self._once(request, model, reserve, keep, note, stop)
                if isinstance(came, Failure) and came.slow:
                    self.gate.pause(self._wait(came, attempt))
            if isinstance(came, Stored):
                self._failed_in_a_row = 0
                await self.gate.good()
                return came, attempt
            if came.outcome == "format":
                attempt -= 1
            elif not came.retry:
                return came.error, attempt
            elif attempt >= self.config.attempts:
                self._give_up(came)
                return f"{came.error} ({attempt} tries)", attempt
            else:
                await _pause(self._wait(came, attempt), stop)

    def _give_up(self, failure: Failure) -> None:
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= max(5, 2 * self.config.concurrency):
            raise EndpointProblem(
                f"endpoint {self.name!r} has failed {self._failed_in_a_row} requests in a row, each after "
                f"{self.config.attempts} tries; the last: {failure.error}. Every reply so far is kept: check the "
                "endpoint and run again"
            )

    def _wait(self, failure: Failure, attempt: int) -> float:
        wait = back_off(attempt, self.config.backoff, self.config.longest_wait)
        if failure.wait is None:
            return wait
        if failure.wait > self.config.longest_wait:
            raise EndpointProblem(
                f"endpoint {self.name!r} asks to wait {failure.wait:.0f} s, more than longest_wait = "
                f"{self.config.longest_wait:.0f}: run again after that, or raise longest_wait in "
                f"[llm.endpoints.{self.name}]"
            )
        # Never sooner than asked, and not all at the same moment.
        return failure.wait + min(wait, 0.1 * failure.wait + 0.05)

    async def _once(
        self, request: Request, model: ModelConfig, reserve: Reserve, keep: Keep, note: Note, stop: asyncio.Event
    ) -> Stored | Failure:
        tokens_in, tokens_out = estimate(request, model)
        settle = await reserve(Spent(1, tokens_in, tokens_out, model.cost(tokens_in, tokens_out)))
        lost = Spent(1, tokens_in, 0, model.cost(tokens_in, 0))
        if stop.is_set():
            settle(Spent())
            raise Stopped
        spent = lost
        began = time.monotonic()
        try:
            came = await self._send(request, model)
            if isinstance(came, Stored):
                spent = Spent(1, came.tokens_in, came.tokens_out, came.cost)
                return await keep(came, time.monotonic() - began)
            spent = lost if came.lost else Spent(1)
            await note(came.outcome, spent, time.monotonic() - began)
        finally:
            settle(spent)
        return came

    async def _send(self, request: Request, model: ModelConfig) -> Stored | Failure:
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        mode = self._mode
        sent = body(request, model, mode)
        try:
            async with asyncio.timeout(self.config.timeout):
                answer = await self._client.chat.completions.with_raw_response.create(
                    model=sent.pop("model"), messages=sent.pop("messages"), extra_body=sent
                )
            return read(answer.text, request, model)
        except APIStatusError as problem:
            if request.schema is not None and self._other_format(problem, mode):
                return Failure("format", f"{self.name} takes no response_format of the kind {mode!r}")
            return self._status(problem, model)
        except (APITimeoutError, TimeoutError):
            error = f"{self.config.base_url} gave no reply in {self.config.timeout:g} s: raise timeout in "
            return Failure("timeout", f"{error}[llm.endpoints.{self.name}], or ask it less", retry=True, lost=True)
        except APIConnectionError as problem:
            return self._unreached(problem)
        except MalformedReply as problem:
            return Failure("malformed", f"{self.config.base_url}: {problem}", retry=True, lost=True)

    def _unreached(self, problem: Exception) -> Failure:
        cause = problem.__cause__ or problem
        reached = type(cause).__name__ not in ("ConnectError", "ConnectTimeout")
        outcome = "cut" if reached else "unreachable"
        what = "broke the connection" if reached else "does not answer"
        return Failure(
            outcome,
            f"{self.config.base_url} {what} ({type(cause).__name__}): is the server up, and base_url of "
            f"[llm.endpoints.{self.name}] right?",
            retry=True,
            lost=reached,
        )

    def _other_format(self, problem: APIStatusError, mode: WireMode) -> bool:
        """Whether the endpoint rejected the form of the reply; if so the next form is taken from now on."""
        message = problem.message.lower()
        if problem.status_code not in (400, 422, 501) or not any(word in message for word in _FORMAT_WORDS):
            return False
        if self.config.json_mode != "auto" or mode not in NEXT_MODE:
            return False
        if self._mode == mode:
            self._mode = NEXT_MODE[mode]
        return True

    def _status(self, problem: APIStatusError, model: ModelConfig) -> Failure:
        code, message, at = problem.status_code, problem.message[:300], f"[llm.endpoints.{self.name}]"
        if code in (401, 403):
            hint = f"check {self.config.key_env}, the key_env" if self.config.key_env else "set key_env"
            raise EndpointProblem(f"endpoint {self.name!r} rejected the key ({message}): {hint} of {at}") from None
        if code == 404:
            raise EndpointProblem(
                f"endpoint {self.name!r} knows no model {model.model!r} or no such address ({message}): correct model, "
                f"or base_url of {at} (it usually ends in /v1)"
            ) from None
        if code == 402 or (code == 429 and "insufficient_quota" in f"{problem.code} {problem.type} {message}"):
            raise EndpointProblem(
                f"the account at endpoint {self.name!r} is out of funds ({message}): top it up"
            ) from None
        if code in _PASSING or code >= 500:
            wait = retry_after(problem.response.headers.get("retry-after"))
            # 503 with a date is how some gateways say 429.
            slow = code == 429 or wait is not None
            return Failure(str(code), f"{self.config.base_url} answered {code}: {message}", True, wait, slow)
        return Failure(
            str(code), f"endpoint {self.name!r} rejected the request with {code}: {message}. {_hint(message)}"
        )

    async def check(self, models: list[str]) -> list[str]:
        """Raise ``EndpointProblem`` unless it answers; a free call.

        Args:
            models: What the endpoint is expected to call its models.

        Returns:
            Remarks: models it does not list (some servers answer for any name).
        """
        from openai import APIConnectionError, APIStatusError

        try:
            async with asyncio.timeout(min(_CHECK_SECONDS, self.config.timeout)):
                answer = await self._client.models.with_raw_response.list()
            listed = _listed(answer.http_response)
        except (APIConnectionError, TimeoutError) as problem:
            failure = self._unreached(problem)
            raise EndpointProblem(f"endpoint {self.name!r} is down: {failure.error}") from None
        except APIStatusError as problem:
            if problem.status_code in (401, 403):
                self._status(problem, ModelConfig(endpoint=self.name, model=""))
            if problem.status_code >= 500:
                raise EndpointProblem(f"endpoint {self.name!r} is down: it answered {problem.message[:300]}") from None
            # Not every server lists its models; that it answered is enough.
            return []
        unlisted = [model for model in models if listed and model not in listed]
        near = [(difflib.get_close_matches(model, listed, n=1, cutoff=0.0) or listed)[0] for model in unlisted]
        return [
            f"endpoint {self.name!r} does not list the model {model!r}; the nearest it lists is {other!r}"
            for model, other in zip(unlisted, near, strict=True)
        ]


def _listed(answer: Any) -> list[str]:
    try:
        return [str(one["id"]) for one in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _hint(message: str) -> str:
    if "context" in message.lower() or "too long" in message.lower():
        return "The prompt and max_tokens exceed the model's context: cut the texts, or ask about fewer at once"
    return "Check the model's settings in [llm.models.…], such as temperature, max_tokens, token_field and extra"


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
    raise Stopped


def _client(name: str, config: EndpointConfig) -> AsyncOpenAI:
    try:
        from openai import AsyncOpenAI
    except ImportError:
        raise LLMError("asking language models needs the openai package: pip install 'suwen[curate]'") from None
    # The retries are ours: the package's own would not slow the whole endpoint, nor be counted.
    return AsyncOpenAI(base_url=config.base_url, api_key=config.key(name), max_retries=0, timeout=config.timeout)
