"""What is spent and how much may be: budgets, the running meter, plans, progress, summaries. Stores nothing."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from suwen.llm.config import LLMError


class BudgetProblem(LLMError):
    """A budget allows nothing at all."""


class BudgetSpent(LLMError):
    """The next call may exceed the budget, so it was not made."""


@dataclass(frozen=True)
class Budget:
    """The most one run may spend; None is no limit.

    Attributes:
        calls: Calls made, failed ones counted.
        tokens: Tokens of prompts and replies together.
        cost: In the currency of the configured prices.
        until: When the last call may be made, by the monotonic clock.
    """

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("calls", self.calls), ("tokens", self.tokens), ("cost", self.cost)):
            if limit is not None and not limit > 0:
                raise BudgetProblem(
                    f"a budget of {limit} {name} allows no call: give more than 0, or none for no limit "
                    "(a dry run shows what is needed)"
                )


@dataclass(frozen=True)
class Spent:
    """Calls, tokens and cost: of a run, of a call, or of an estimate."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cost + other.cost,
        )

    def __neg__(self) -> Spent:
        return Spent(-self.calls, -self.tokens_in, -self.tokens_out, -self.cost)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.tokens_in + self.tokens_out


#: How much more than any bill so far the calls of one wave may come to before a budget is exceeded.
_MARGIN = 2


@dataclass
class _Bills:
    """How far a model's bills go beyond their estimates, at the most so far, and how many there were."""

    tokens: float = 1.0
    cost: float = 1.0
    count: int = 0

    def learn(self, estimate: Spent, actual: Spent) -> None:
        self.count += 1
        self.tokens = max(self.tokens, actual.tokens / max(estimate.tokens, 1))
        self.cost = max(self.cost, actual.cost / estimate.cost if estimate.cost else 1.0)

    def applied(self, estimate: Spent) -> Spent:
        tokens_in, tokens_out = (math.ceil(self.tokens * one) for one in (estimate.tokens_in, estimate.tokens_out))
        return Spent(estimate.calls, tokens_in, tokens_out, self.cost * estimate.cost)


class _Flight(NamedTuple):
    model: str
    estimate: Spent
    expected: Spent


class Meter:
    """What a run has spent, and what the calls in flight may yet spend, held against a budget.

    Servers bill more than was estimated: thoughts, a tokenizer of their own. So an estimate is scaled by the highest
    bill of its model so far, a model has no more calls in flight than bills and one, and calls share what is left of a
    budget only while twice of what they are expected to take would fit.
    """

    def __init__(self, budget: Budget | None) -> None:
        self.budget = budget or Budget()
        self.spent, self._unanswered = Spent(), 0
        self._flying: dict[int, _Flight] = {}
        # What those in flight are expected to take together, and how many are of each model: thousands may fly, and
        # counting them anew for every call would cost more than the calls.
        self._wave, self._beside = Spent(), Counter[str]()
        self._bills: dict[str, _Bills] = {}
        self._number = 0

    def reserve(self, estimate: Spent, model: str = "") -> int | None:
        """Set an estimate aside for a call about to be made.

        Returns:
            A ticket for ``settle``; None while only the estimates of calls in flight stand in the way: wait for one.

        Raises:
            BudgetSpent: It does not fit even when nothing else is in flight.
        """
        if self.budget.until is not None and time.monotonic() > self.budget.until:
            raise BudgetSpent("the time is spent; every reply so far is kept: run again to go on")
        expected = self._bills.get(model, _Bills()).applied(estimate)
        if over := self._over(self.spent + expected):
            bill = f"{expected.tokens / max(estimate.tokens, 1):.3g}"
            why = f" (bills were up to {bill} times their estimate)" if float(bill) > 1 else ""
            if 2 * self._unanswered > self.spent.calls:
                why += (
                    f", and {self._unanswered} of {self.spent.calls} calls came to no reply (does the endpoint work?)"
                )
            raise BudgetSpent(
                f"the budget is spent: the next call may bring it to {over}{why}; "
                "every reply so far is kept: raise the budget and run again to go on"
            )
        if self._flying and not self._room(expected, model):
            return None
        self._number += 1
        self._flying[self._number] = _Flight(model, estimate, expected)
        self._wave, self._beside[model] = self._wave + expected, self._beside[model] + 1
        return self._number

    def _room(self, expected: Spent, model: str) -> bool:
        """Whether a call may fly beside those that do."""
        counted = self.budget.tokens is not None or self.budget.cost is not None
        if counted and self._beside[model] > self._bills.get(model, _Bills()).count:
            return False
        wave = self._wave + expected
        doubled = Spent(wave.calls, _MARGIN * wave.tokens_in, _MARGIN * wave.tokens_out, _MARGIN * wave.cost)
        return self._over(self.spent + doubled) is None

    def settle(self, ticket: int, actual: Spent, *, billed: bool = True) -> None:
        """Put what a call really took in place of its estimate; ``billed`` where that is the server's own count."""
        flight = self._flying.pop(ticket)
        self._beside[flight.model] -= 1
        # Prices are no whole numbers: with nothing in flight, nothing of them is left.
        self._wave = self._wave + -flight.expected if self._flying else Spent()
        self.spent += actual
        self._unanswered += 0 if billed else actual.calls
        if billed:
            self._bills.setdefault(flight.model, _Bills()).learn(flight.estimate, actual)

    def _over(self, spent: Spent) -> str | None:
        limits = self.budget
        if limits.calls is not None and spent.calls > limits.calls:
            return f"{spent.calls} calls of {limits.calls}"
        if limits.tokens is not None and spent.tokens > limits.tokens:
            return f"{spent.tokens} tokens of {limits.tokens}"
        # A sum of many small prices is off by a few units in the last place.
        if limits.cost is not None and spent.cost > limits.cost * (1 + 1e-9):
            return f"a cost of {spent.cost:.6g} of {limits.cost:.6g}"
        return None


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        done: Requests that have their reply, good or not.
        cached: Those whose reply came from the cache.
        failed: Those whose reply is no good.
        total: All requests; None where the caller gave an endless or unsized stream.
        cost: Spent in this run.
        seconds: Since the run began.
        eta: Seconds to go at the pace of the calls so far; None where it is not known yet.
    """

    done: int = 0
    cached: int = 0
    failed: int = 0
    total: int | None = None
    cost: float = 0.0
    seconds: float = 0.0
    eta: float | None = None


@dataclass(frozen=True)
class Summary(Progress):
    """What a run came to.

    Attributes:
        spent: Calls, tokens and cost of this run.
        stopped: Why it ended before the last request; None where it did not.
    """

    spent: Spent = field(default_factory=Spent)
    stopped: str | None = None


@dataclass
class ModelPlan:
    """What a run would ask of one model.

    Attributes:
        calls: Calls to make, if none fails and no reply needs a repair.
        cached: Requests whose reply is there already, or is asked for earlier in the same run.
        tokens_in: Tokens of the prompts, estimated from their characters.
        tokens_out: Tokens of the replies, at most.
        cost: The cost of these, at most.
        too_long: The caller's keys of requests that seem not to fit the model's context.
    """

    calls: int = 0
    cached: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    too_long: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What a run would ask, by model."""

    models: dict[str, ModelPlan]

    @property
    def calls(self) -> int:
        """Calls to make."""
        return sum(one.calls for one in self.models.values())

    @property
    def cached(self) -> int:
        """Requests whose reply is there already."""
        return sum(one.cached for one in self.models.values())

    @property
    def tokens(self) -> int:
        """Tokens in and out, at most."""
        return sum(one.tokens_in + one.tokens_out for one in self.models.values())

    @property
    def cost(self) -> float:
        """The cost, at most."""
        return sum(one.cost for one in self.models.values())


class Tally:
    """Counts the replies of one run and reports how far it is."""

    def __init__(
        self, total: int | None, report: Callable[[Progress], None] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._clock, self._began = report, clock, clock()
        #: How far the run is, as of the last reply.
        self.progress = Progress(total=total)

    def count(self, *, cached: bool, good: bool, cost: float) -> None:
        """Take one reply into account and report."""
        before = self.progress
        done, fresh = before.done + 1, before.done + 1 - before.cached - cached
        seconds, eta = self._clock() - self._began, None
        if before.total is not None and (fresh or done >= before.total):
            # Cached replies take no time: the pace is that of the calls.
            eta = (before.total - done) * seconds / max(fresh, 1)
        spent = before.cost + (0.0 if cached else cost)
        self.progress = Progress(done, done - fresh, before.failed + (not good), before.total, spent, seconds, eta)
        if self._report is not None:
            self._report(self.progress)
