"""One endpoint on the wire: a call with its tries, waits and limits. Knows no cache and holds no reply to a schema."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from suwen.llm.config import EndpointConfig, ModelConfig
from suwen.llm.ledger import Spent
from suwen.llm.pace import Gate, back_off, retry_after
from suwen.llm.replies import NEXT_MODE, MalformedReply, WireMode, body, read
from suwen.llm.reply_cache import Stored
from suwen.llm.requests import Request, estimate
from suwen.llm.wire import EndpointProblem, make_client, proxy_of, secrets_of, shown

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

__all__ = ["Endpoint", "EndpointProblem", "Failure", "Settle", "Steps", "Stopped"]

_PASSING = frozenset({408, 409, 425, 429})
_FORMAT_WORDS = ("response_format", "json_schema", "json_object", "structured", "guided", "grammar", "schema")
# How Azure, Alibaba and others say with a 400 that a filter caught the prompt.
_FILTER_WORDS = ("content_filter", "content management policy", "data_inspection_failed", "datainspectionfailed")
_CHECK_SECONDS = 10.0
#: So many requests refused alike end a run; they are alike when this much of what is said is, numbers aside.
_REFUSALS, _ALIKE = 3, 200
_DIGITS = re.compile(r"\d+")


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


#: Takes note of how a call ended: what it took, and whether the server itself said so.
Settle = Callable[[Spent, bool], None]


class Steps(NamedTuple):
    """What a caller does around each call.

    Attributes:
        reserve: Sets aside what a call may cost; gives back what takes note of how it ended.
        start: Enters the call into the ledger before it is sent.
        keep: Makes a reply durable, given what the call took.
        note: Enters a call without a reply into the ledger.
    """

    reserve: Callable[[Spent], Awaitable[Settle]]
    start: Callable[[Spent], Awaitable[None]]
    keep: Callable[[Stored, float], Awaitable[Stored]]
    note: Callable[[str, Spent, float], Awaitable[None]]


class Endpoint:
    """One endpoint, for the length of one event loop."""

    def __init__(self, name: str, config: EndpointConfig) -> None:
        self.name, self.config = name, config
        self.gate = Gate(config.concurrency, config.requests_per_minute)
        self._client, self._secrets = self._connect(), secrets_of(name, config)
        self._address, self._proxy = shown(config.base_url), proxy_of(config)
        self._mode: WireMode = "schema" if config.json_mode == "auto" else config.json_mode
        self._failed_in_a_row = 0
        #: How often in a row each model's requests were refused in the same words.
        self._refused: dict[str, tuple[str, int]] = {}

    @staticmethod
    def load() -> None:
        """Import what a first call would import; where it is missing, that call says so."""
        with contextlib.suppress(ImportError):
            import openai.resources.chat.completions  # noqa: F401

    def _connect(self) -> AsyncOpenAI:
        return make_client(self.name, self.config)

    async def close(self) -> None:
        """Let go of its connections."""
        await self._client.close()

    async def call(
        self, request: Request, model: ModelConfig, steps: Steps, stop: asyncio.Event
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
                came = await self._once(request, model, steps, stop)
                if isinstance(came, Failure) and came.slow:
                    self.gate.pause(self._wait(came, attempt))
            if isinstance(came, Stored):
                self._failed_in_a_row = 0
                self._refused.pop(model.model, None)
                await self.gate.good()
                return came, attempt
            if came.outcome == "format":
                attempt -= 1
            elif not came.retry:
                self._stop_if_alike(came, model)
                return came.error, attempt
            elif attempt >= self.config.attempts:
                self._give_up(came)
                return f"{came.error} ({attempt} tries)", attempt
            else:
                await _pause(self._wait(came, attempt), stop)

    def _stop_if_alike(self, failure: Failure, model: ModelConfig) -> None:
        """End the run where requests are refused for what they have in common: each further one would be, too."""
        kind = _DIGITS.sub("0", failure.error)[:_ALIKE]
        before, times = self._refused.get(model.model, ("", 0))
        self._refused[model.model] = (kind, times + 1 if kind == before else 1)
        if self._refused[model.model][1] >= _REFUSALS:
            raise EndpointProblem(f"{_REFUSALS} requests in a row were refused alike, so the run ends. {failure.error}")

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

    async def _once(self, request: Request, model: ModelConfig, steps: Steps, stop: asyncio.Event) -> Stored | Failure:
        tokens_in, tokens_out = estimate(request, model)
        guess = Spent(1, tokens_in, tokens_out, model.cost(tokens_in, tokens_out))
        settle = await steps.reserve(guess)
        lost = Spent(1, tokens_in, 0, model.cost(tokens_in, 0))
        if stop.is_set():
            settle(Spent(), False)
            raise Stopped
        spent, billed = lost, False
        began = time.monotonic()
        try:
            await steps.start(guess)
            came = await self._send(request, model)
            if isinstance(came, Stored):
                spent, billed = Spent(1, came.tokens_in, came.tokens_out, came.cost), True
                return await steps.keep(came, time.monotonic() - began)
            spent = lost if came.lost else Spent(1)
            await steps.note(came.outcome, spent, time.monotonic() - began)
        except EndpointProblem:
            # It was turned away, not cut off: nothing is left unknown.
            spent = Spent(1)
            await steps.note("turned away", spent, time.monotonic() - began)
            raise
        finally:
            settle(spent, billed)
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
            return read(self._secrets.hide(answer.text), request, model)
        except APIStatusError as problem:
            if _is_filtered(problem):
                return Stored(self._said(problem), "refusal", model.model, 0, 0, 0.0)
            if request.schema is not None and self._other_format(problem, mode):
                return Failure("format", f"{self.name} takes no response_format of the kind {mode!r}")
            return self._status(problem, model)
        except (APITimeoutError, TimeoutError):
            error = f"{self._address} gave no reply in {self.config.timeout:g} s: raise timeout in "
            return Failure("timeout", f"{error}[llm.endpoints.{self.name}], or ask it less", retry=True, lost=True)
        except APIConnectionError as problem:
            return self._unreached(problem)
        except MalformedReply as problem:
            return Failure("malformed", f"{self._address}: {problem}", retry=True, lost=True)

    def _unreached(self, problem: Exception) -> Failure:
        cause = problem.__cause__ or problem
        through = f" through the proxy {shown(self._proxy)}" if self._proxy else ""
        if type(cause).__name__ == "ProxyError":
            raise EndpointProblem(
                f"{self._address} cannot be reached{through} ({self._secrets.hide(str(cause))[:200]}): correct "
                "HTTPS_PROXY or HTTP_PROXY, or put the endpoint's host into NO_PROXY"
            ) from None
        reached = type(cause).__name__ not in ("ConnectError", "ConnectTimeout")
        outcome = "cut" if reached else "unreachable"
        what = "broke the connection" if reached else "does not answer"
        return Failure(
            outcome,
            f"{self._address} {what}{through} ({type(cause).__name__}): is the server up, and base_url of "
            f"[llm.endpoints.{self.name}] right?",
            retry=True,
            lost=reached,
        )

    def _said(self, problem: APIStatusError) -> str:
        """What the server says of an error, without the key that some send back in it."""
        return self._secrets.hide(problem.message)[:300]

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
        code, message, at = problem.status_code, self._said(problem), f"[llm.endpoints.{self.name}]"
        if code in (401, 403):
            hint = f"check {self.config.key_env}, the key_env" if self.config.key_env else "set key_env"
            raise EndpointProblem(f"endpoint {self.name!r} rejected the key ({message}): {hint} of {at}") from None
        if code == 407:
            raise EndpointProblem(
                f"the proxy {shown(self._proxy or '')} wants a name and a password ({message}): write them into "
                "HTTPS_PROXY or HTTP_PROXY, or put the endpoint's host into NO_PROXY"
            ) from None
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
            return Failure(str(code), f"{self._address} answered {code}: {message}", True, wait, slow)
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
                raise EndpointProblem(f"endpoint {self.name!r} is down: it answered {self._said(problem)}") from None
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


def _is_filtered(problem: APIStatusError) -> bool:
    """Whether a server refused what the texts say: that is a refusal of this one request, as a model's is."""
    words = f"{problem.code} {problem.type} {problem.message}".lower()
    return problem.status_code == 400 and any(word in words for word in _FILTER_WORDS)


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
