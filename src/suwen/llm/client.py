"""Asking models: cache, budget, endpoints, repair, and many requests at once. What is asked is the caller's matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from suwen.llm.config import LLMConfig, ModelConfig
from suwen.llm.crew import Crew, complete, on_interrupt
from suwen.llm.endpoint import Endpoint, Settle, Steps
from suwen.llm.ledger import Budget, BudgetSpent, Meter, ModelPlan, Plan, Progress, Spent, Summary, Tally
from suwen.llm.local_endpoint import LocalEndpoint
from suwen.llm.replies import answered, judged
from suwen.llm.reply_cache import STARTED, Cache, Call, LedgerRow, Stored
from suwen.llm.requests import Reply, Request, cache_key, estimate, identity

Handle = Callable[[Request, Reply], None]
Tell = Callable[[Progress], None]
_T = TypeVar("_T")


class _Loop:
    """What lives as long as one event loop: connections, slots, and who is asking what."""

    def __init__(self, config: LLMConfig) -> None:
        self.loop = asyncio.get_running_loop()
        self._config = config
        self._endpoints: dict[str, Endpoint] = {}
        self.settled = asyncio.Event()
        self.asking: dict[str, asyncio.Lock] = {}
        self._life = self._alive()
        self._begun = False

    async def ready(self) -> None:
        """Begin. A loop that ends closes its generators first, and so the connections, if nobody else has."""
        if not self._begun:
            self._begun = True
            await anext(self._life)

    async def _alive(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            for endpoint in self._endpoints.values():
                await endpoint.close()

    def kind(self, name: str) -> type[Endpoint]:
        return LocalEndpoint if self._config.endpoints[name].is_local else Endpoint

    def endpoint(self, name: str) -> Endpoint:
        if name not in self._endpoints:
            self._endpoints[name] = self.kind(name)(name, self._config.endpoints[name])
        return self._endpoints[name]

    async def close(self) -> None:
        await self._life.aclose()


class LLM(AbstractContextManager["LLM"]):
    """Language models behind one cache. Open it with ``LLM.open``; close it, or use it in a ``with``."""

    def __init__(self, config: LLMConfig, cache: Cache, budget: Budget | None, progress: Tell | None) -> None:
        self.config = config
        self._cache, self._meter, self._progress = cache, Meter(budget), progress
        # One thread for the file: a wait for the disk, or for another process, must not hold up the calls.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="suwen-replies")
        self._here: _Loop | None = None

    @classmethod
    def open(
        cls, config: LLMConfig, cache: Path | str, *, budget: Budget | None = None, progress: Tell | None = None
    ) -> LLM:
        """Open the client.

        Args:
            config: The endpoints and models.
            cache: The file of replies; made where there is none. Processes may share it.
            budget: The most to spend until this client is closed.
            progress: Called after each reply of ``run`` and ``ask_many``.
        """
        return cls(config, Cache(Path(cache)), budget, progress)

    def close(self) -> None:
        """Let go of the file. Nothing is lost without it."""
        self._thread.shutdown()
        self._cache.close()

    async def aclose(self) -> None:
        """Let go of the connections of this event loop, and of the file."""
        if self._here is not None:
            await self._here.close()
        self.close()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def spent(self) -> Spent:
        """Spent since the client was opened."""
        return self._meter.spent

    def ledger(self) -> list[LedgerRow]:
        """What was spent on each model, over every run that used this cache."""
        return self._cache.ledger()

    def check(self, models: Iterable[str] | None = None) -> list[str]:
        """Raise unless all names and keys are there and every endpoint answers; spends nothing.

        Args:
            models: The models about to be used; all configured ones unless given.

        Returns:
            Remarks to show: models that an endpoint does not list.
        """
        names = list(self.config.models if models is None else dict.fromkeys(models))
        self.config.require(names)
        return complete(self._check(names))

    async def _check(self, names: list[str]) -> list[str]:
        by_endpoint: dict[str, list[str]] = {}
        for name in names:
            by_endpoint.setdefault(self.config.model(name).endpoint, []).append(self.config.model(name).model)
        here = _Loop(self.config)
        await here.ready()
        try:
            return [line for name, ids in by_endpoint.items() for line in await here.endpoint(name).check(ids)]
        finally:
            await here.close()

    def plan(self, requests: Iterable[Request]) -> Plan:
        """What these requests would take; makes no call."""
        models: dict[str, ModelPlan] = {}
        seen: set[str] = set()
        for request in requests:
            model = self.config.model(request.model)
            one = models.setdefault(request.model, ModelPlan())
            key = cache_key(identity(request, model, self.config.endpoint(request.model)))
            if key in seen or self._cache.get(key) is not None:
                one.cached += 1
                continue
            seen.add(key)
            tokens_in, tokens_out = estimate(request, model)
            one.calls += 1
            one.tokens_in += tokens_in
            one.tokens_out += tokens_out
            one.cost += model.cost(tokens_in, tokens_out)
            if tokens_in + tokens_out > model.context:
                one.too_long.append(request.key)
        return Plan(models)

    async def ready(self, model: str) -> None:
        """Load the libraries that asking a model takes, without asking: a time limit is then the request's alone."""
        here, about = self._loop(), self.config.model(model)
        await here.ready()
        await asyncio.to_thread(here.kind(about.endpoint).load)
        # Of a model of this process, the hash of its weights too.
        await asyncio.to_thread(identity, Request(model, ()), about, self.config.endpoint(model))
        here.endpoint(about.endpoint)

    async def ask(self, request: Request) -> Reply:
        """The reply to a request, from the cache or from the model; durable before it is handed out.

        A request that fails gives a reply with ``error``; what makes every request fail raises.

        Raises:
            ConfigProblem: The model or its key is not there.
            BudgetSpent: The call may exceed the budget.
            EndpointProblem: The endpoint rejects the key or the model, or has stopped answering.
        """
        return await self._ask(request, asyncio.Event())

    async def _ask(self, request: Request, stop: asyncio.Event) -> Reply:
        first, cached, attempts = await self._stored(request, stop)
        if isinstance(first, str):
            return Reply("", None, request.model, finish="error", error=first, attempts=attempts)
        first = answered(first, request)
        data, complaint = judged(first, request)
        reply = _reply(request, first, data, complaint, cached, attempts)
        # Of a refusal and of a cut reply there is nothing to correct.
        if complaint is None or request.schema is None or first.finish != "stop":
            return reply
        second, cached, attempts = await self._stored(request.repaired(first.text, complaint), stop)
        if isinstance(second, str):
            error = f"{complaint}; and the repair failed: {second}"
            return replace(reply, finish="error", error=error, attempts=reply.attempts + attempts, cached=False)
        second = answered(second, request)
        data, complaint = judged(second, request)
        both = second._replace(
            tokens_in=first.tokens_in + second.tokens_in,
            tokens_out=first.tokens_out + second.tokens_out,
            cost=first.cost + second.cost,
        )
        whole = _reply(request, both, data, complaint, cached and reply.cached, reply.attempts + attempts)
        return replace(whole, repaired=True)

    async def _stored(self, request: Request, stop: asyncio.Event) -> tuple[Stored | str, bool, int]:
        """One reply as it came, whether it was in the cache, and the calls made for it."""
        model = self.config.model(request.model)
        whole = identity(request, model, self.config.endpoint(request.model))
        key, here = cache_key(whole), self._loop()
        await here.ready()
        if (stored := await self._in_thread(self._cache.get, key)) is not None:
            return stored, True, 0
        # The same question twice at once is one call.
        lock = here.asking.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if (stored := await self._in_thread(self._cache.get, key)) is not None:
                    return stored, True, 0
                came, attempts = await self._call(request, model, key, whole, stop)
                return came, False, attempts
        finally:
            if not lock.locked():
                here.asking.pop(key, None)

    async def _call(
        self, request: Request, model: ModelConfig, key: str, whole: str, stop: asyncio.Event
    ) -> tuple[Stored | str, int]:
        lines: list[int] = []

        def call(outcome: str, spent: Spent, seconds: float) -> Call:
            counted = (spent.tokens_in, spent.tokens_out, spent.cost, seconds)
            return Call(request.model, request.key, key, outcome, *counted)

        async def start(guess: Spent) -> None:
            lines[:] = [await self._in_thread(self._cache.start, call(STARTED, guess, 0.0))]

        async def keep(reply: Stored, seconds: float) -> Stored:
            spent = Spent(1, reply.tokens_in, reply.tokens_out, reply.cost)
            ended = call("reply", spent, seconds)
            # A reply that has come is kept even when the run is being cancelled.
            return await asyncio.shield(self._in_thread(self._cache.put, key, whole, reply, ended, lines[0]))

        async def note(outcome: str, spent: Spent, seconds: float) -> None:
            await self._in_thread(self._cache.enter, call(outcome, spent, seconds), lines[0])

        endpoint = self._loop().endpoint(model.endpoint)
        reserve = partial(self._reserve, request.model)
        return await endpoint.call(request, model, Steps(reserve, start, keep, note), stop)

    async def _reserve(self, model: str, guess: Spent) -> Settle:
        here = self._loop()
        while (ticket := self._meter.reserve(guess, model)) is None:
            await here.settled.wait()
        taken = ticket

        def settle(actual: Spent, billed: bool) -> None:
            self._meter.settle(taken, actual, billed=billed)
            here.settled.set()
            here.settled = asyncio.Event()

        return settle

    async def ask_many(self, requests: Iterable[Request]) -> AsyncIterator[tuple[Request, Reply]]:
        """The replies to many requests, as they come; few are in memory at a time.

        Where the run must end early (budget, endpoint), calls in flight are completed and handed out first, then
        the reason is raised. Requests to several endpoints are best given in turns, so that all of them are busy.

        Raises:
            ConfigProblem: A model or key is not there; before any call where ``requests`` is a list or a tuple.
            BudgetSpent: The next call may exceed the budget.
            EndpointProblem: An endpoint cannot be used.
        """
        async for pair in self._many(requests, asyncio.Event()):
            yield pair

    async def _many(
        self, requests: Iterable[Request], stop: asyncio.Event, tally: Tally | None = None
    ) -> AsyncIterator[tuple[Request, Reply]]:
        if isinstance(requests, list | tuple):
            self.config.require(request.model for request in requests)
        tally = tally or self._tally(requests)
        # Twice the slots: whoever waits between tries, or for the disk, leaves no slot empty.
        width = 2 * sum(endpoint.concurrency for endpoint in self.config.endpoints.values())
        crew = Crew(self._ask, iter(requests), stop, width)
        try:
            async for request, reply in crew.results():
                tally.count(cached=reply.cached, good=reply.good, cost=reply.cost)
                yield request, reply
        finally:
            await crew.dismiss()

    def _tally(self, requests: Iterable[Request], total: int | None = None) -> Tally:
        return Tally(len(requests) if isinstance(requests, Sized) else total, self._progress)

    def run(self, requests: Iterable[Request], handle: Handle, total: int | None = None) -> Summary:
        """Ask all requests and hand each reply to ``handle``, in any order.

        Ctrl-C, and a budget that is spent, end it early and cleanly: calls in flight are completed and handed on, and
        the summary says why it stopped. A second Ctrl-C does not wait. Run again with the same requests to go on.

        Args:
            requests: What to ask.
            handle: Takes a request and its reply.
            total: How many requests a stream has, for the progress.
        """
        before, tally = self.spent, self._tally(requests, total)
        try:
            stopped = complete(self._run(requests, handle, tally))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        after = self.spent
        spent = Spent(
            after.calls - before.calls,
            after.tokens_in - before.tokens_in,
            after.tokens_out - before.tokens_out,
            after.cost - before.cost,
        )
        return Summary(**vars(tally.progress), spent=spent, stopped=stopped)

    async def _run(self, requests: Iterable[Request], handle: Handle, tally: Tally) -> str | None:
        stop = asyncio.Event()
        with on_interrupt(stop) as interrupted:
            try:
                async for request, reply in self._many(requests, stop, tally):
                    handle(request, reply)
            except BudgetSpent as problem:
                return str(problem)
            finally:
                await self._loop().close()
                self._here = None
        return "interrupted: every reply so far is kept; run again to go on" if interrupted() else None

    def _loop(self) -> _Loop:
        if self._here is None or self._here.loop is not asyncio.get_running_loop():
            self._here = _Loop(self.config)
        return self._here

    def _in_thread(self, work: Callable[..., _T], *values: Any) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *values)


def _reply(request: Request, came: Stored, data: Any, complaint: str | None, cached: bool, attempts: int) -> Reply:
    # A reply that stopped by itself and still cannot be used is an error, not a stop.
    finish = "error" if complaint is not None and came.finish == "stop" else came.finish
    spent = (came.tokens_in, came.tokens_out, came.cost)
    return Reply(came.text, data, request.model, *spent, cached, finish, complaint, attempts)
