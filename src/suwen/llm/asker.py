"""Asking one model about many items: prompts, requests cut to its context, steps that are run or only planned.

What a step asks is its caller's matter. Every reply is durable in the client's cache before it is used, so a pipeline
that was stopped is run again from its beginning: what was answered is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig, LLMError
from suwen.llm.prompts import Prompt, load_prompt
from suwen.llm.requests import Reply, Request, cache_key, estimate, identity
from suwen.llm.token_estimate import estimate_tokens, fit

#: Less than this of a long text cannot be read fairly.
LEAST_TOKENS = 64
MARKS = {"zh": "〔下文从略〕", "en": " [rest left out]"}
_T = TypeVar("_T")


class Unfinished(LLMError):
    """A run was stopped before its end; every reply so far is kept, and the same command goes on."""


@dataclass
class Step:
    """What one step asks of the model.

    Attributes:
        name: The step's name.
        calls: Calls to make; in a real run, calls made.
        cached: Requests that were answered already.
        failed: Requests that got no reply that could be used.
        repaired: Replies that were of use only when the model was told what was wrong and asked again.
        tokens: Tokens, in a plan at the most.
        cost: What they cost, in a plan at the most.
    """

    name: str
    calls: int = 0
    cached: int = 0
    failed: int = 0
    tokens: int = 0
    cost: float = 0.0
    repaired: int = 0

    def add(self, calls: int, cached: int, tokens: int, cost: float) -> None:
        """Take a run, or the plan of one, into account."""
        self.calls += calls
        self.cached += cached
        self.tokens += tokens
        self.cost += cost


class Drafter:
    """Makes requests to one model in one language, cut to its context."""

    def __init__(self, config: LLMConfig, model: str, language: str = "zh", prompts: Path | None = None) -> None:
        """Get ready.

        Args:
            config: The endpoints and models.
            model: The configured name of the model.
            language: The language of the prompts.
            prompts: A folder of prompts in place of the package's own.
        """
        self.model, self.language = model, language
        self.config, self._endpoint = config.model(model), config.endpoint(model)
        #: Texts that were cut to fit the model's context.
        self.cut = 0
        self._folder = prompts
        self._prompts: dict[tuple[str, str], Prompt] = {}

    def prompt(self, name: str, language: str | None = None) -> Prompt:
        """A prompt in this language, or in another one."""
        key = (name, language or self.language)
        if key not in self._prompts:
            self._prompts[key] = load_prompt(*key, self._folder)
        return self._prompts[key]

    def request(
        self,
        prompt: str,
        values: Mapping[str, str | int | float],
        *,
        key: str,
        long: tuple[str, ...] = (),
        language: str | None = None,
        **more: Any,
    ) -> Request:
        """A request; the values called ``long`` are cut and marked where they do not fit the context together.

        Args:
            prompt: The prompt's name.
            values: What stands in its places.
            key: Which item this is about; must be unique within a step.
            long: The names of the values that may be cut.
            language: Of the prompt, where it is not the drafter's own.
            **more: Other fields of the request.
        """
        said = self.prompt(prompt, language)
        if long:
            bare = Request.of(said, self.model, {**values, **dict.fromkeys(long, "")}, key=key, **more)
            texts = self.fitted([str(values[name]) for name in long], bare)
            values = {**values, **dict(zip(long, texts, strict=True))}
        return Request.of(said, self.model, values, key=key, **more)

    def batch(
        self,
        prompt: str,
        values: Mapping[str, str | int | float],
        passages: Sequence[str],
        *,
        key: str,
        **more: Any,
    ) -> Request:
        """A request about several passages, put in as P1, P2 and so on; long ones are cut to share the context."""

        def made(texts: Sequence[str]) -> Request:
            shown = {**values, "passages": labelled(texts)}
            return Request.of(self.prompt(prompt), self.model, shown, key=key, **more)

        return made(self.fitted(passages, made([""] * len(passages))))

    def fitted(self, texts: Sequence[str], bare: Request) -> list[str]:
        """The texts, cut and marked as far as they must be to fit beside what a request says without them."""
        room = self.config.context - sum(estimate(bare, self.config))
        lengths = [estimate_tokens(text) for text in texts]
        most = share(sorted(lengths), room)
        if most < min(LEAST_TOKENS, max(lengths, default=0)):
            raise LLMError(
                f"{bare.key}: {len(texts)} texts do not fit the {self.config.context} tokens of {self.model!r} (about "
                f"{max(most, 0)} would be left for each): ask about fewer at once, lower its max_tokens, or take a "
                "model with a larger context"
            )
        self.cut += sum(length > most for length in lengths)
        return [fit(text, most, MARKS.get(self.language, MARKS["en"])) for text in texts]

    def reply_key(self, request: Request) -> str:
        """Where the reply to a request is kept in the cache of replies."""
        return cache_key(identity(request, self.config, self._endpoint))


class Asker(Drafter):
    """Asks one model in one language; in a dry run it makes no call and goes on with stand-ins for the replies."""

    def __init__(self, llm: LLM, model: str, language: str = "zh", *, dry_run: bool = False) -> None:
        """Get ready; names and keys are checked before anything is asked.

        Args:
            llm: The client.
            model: The configured name of the model.
            language: The language of the prompts.
            dry_run: Whether to plan only. What later steps would ask depends on replies that are not there, so their
                plan supposes that everything passes the earlier ones: it is the most a run takes, repairs aside.
        """
        super().__init__(llm.config, model, language)
        self.llm, self.dry_run = llm, dry_run
        if not dry_run:
            llm.config.require([model])
        self.steps: dict[str, Step] = {}
        #: The first thing that went wrong with a request.
        self.problem: str | None = None

    @property
    def failed(self) -> int:
        """Requests of all steps that got no reply that could be used."""
        return sum(step.failed for step in self.steps.values())

    def ask(
        self, step: str, requests: Iterable[Request], read: Callable[[Any], _T], stand_in: Callable[[Request], _T]
    ) -> dict[str, _T]:
        """The replies of a step by the requests' keys, in the requests' order; those of no use are left out.

        Args:
            step: Its name, for the account.
            requests: What to ask, streamed.
            read: Takes from a reply's data what is kept in memory.
            stand_in: What a dry run goes on with in place of a reply.

        Raises:
            Unfinished: The budget is spent, or someone interrupted.
        """
        account = self.steps.setdefault(step, Step(step))
        order: list[str] = []
        kept: dict[str, _T] = {}

        def noted() -> Iterator[Request]:
            for request in requests:
                order.append(request.key)
                if self.dry_run:
                    kept[request.key] = stand_in(request)
                yield request

        def take(request: Request, reply: Reply) -> None:
            if reply.good:
                account.repaired += reply.repaired
                kept[request.key] = read(reply.data)
            else:
                account.failed += 1
                self.problem = self.problem or reply.error

        if self.dry_run:
            plan = self.llm.plan(noted())
            account.add(plan.calls, plan.cached, plan.tokens, plan.cost)
        else:
            total = len(requests) if isinstance(requests, Sized) else None
            summary = self.llm.run(noted(), take, total)
            account.add(summary.spent.calls, summary.cached, summary.spent.tokens, summary.spent.cost)
            if summary.stopped is not None:
                raise Unfinished(f"{step}: {summary.stopped}")
        return {key: kept[key] for key in order if key in kept}


def labelled(passages: Sequence[str]) -> str:
    """Passages as a prompt shows them, each under its label."""
    return "\n\n".join(f"【P{number}】\n{text}" for number, text in enumerate(passages, 1))


def label_schema(count: int, item: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a reply that says something of each of P1 to Pn, and of nothing else."""
    labels = [f"P{number}" for number in range(1, count + 1)]
    return {
        "type": "object",
        "properties": dict.fromkeys(labels, item),
        "required": labels,
        "additionalProperties": False,
    }


def share(lengths: Sequence[int], room: int) -> int:
    """The most tokens a text may have so that all fit, given sorted lengths: what short ones leave, long ones take."""
    left = room
    for number, length in enumerate(lengths):
        share = left // (len(lengths) - number)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)
