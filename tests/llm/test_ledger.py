"""Budgets, the meter and progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.llm.ledger import Budget, BudgetProblem, BudgetSpent, Meter, Progress, Spent, Tally


@pytest.mark.parametrize("limits", [{"calls": 0}, {"tokens": 0}, {"cost": 0.0}, {"cost": -1.0}, {"cost": float("nan")}])
def test_a_budget_of_nothing_is_an_error(limits: dict[str, float]) -> None:
    with pytest.raises(BudgetProblem, match="allows no call"):
        Budget(**limits)


calls = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=40)


@given(calls, st.integers(1, 200))
def test_a_budget_is_never_exceeded_while_calls_take_no_more_than_estimated(
    made: list[tuple[int, int, bool]], limit: int
) -> None:
    meter, flying = Meter(Budget(tokens=limit)), []
    for guess, actual, wait in made:
        try:
            ticket = meter.reserve(Spent(1, guess, 0))
        except BudgetSpent:
            continue
        if ticket is not None:
            flying.append((ticket, Spent(1, min(guess, actual), 0)))
        if wait:
            for one in flying:
                meter.settle(*one)
            flying.clear()
    for one in flying:
        meter.settle(*one)
    assert meter.spent.tokens <= limit


def test_a_call_waits_while_only_estimates_stand_in_its_way() -> None:
    meter = Meter(Budget(cost=1.0))
    first = meter.reserve(Spent(1, 0, 0, 0.7))
    assert first is not None
    assert meter.reserve(Spent(1, 0, 0, 0.7)) is None
    meter.settle(first, Spent(1, 5, 5, 0.2))
    second = meter.reserve(Spent(1, 0, 0, 0.7))
    assert second is not None
    meter.settle(second, Spent(1, 0, 0, 0.7))
    with pytest.raises(BudgetSpent, match=r"a cost of 1\.6 of 1; .* raise the budget"):
        meter.reserve(Spent(1, 0, 0, 0.7))


def test_progress_tells_the_time_to_go_from_the_calls_alone() -> None:
    now, told = [0.0], []
    tally = Tally(10, told.append, lambda: now[0])
    for _ in range(4):
        tally.count(cached=True, good=True, cost=9.0)
    assert told[-1] == Progress(4, 4, 0, 10, 0.0, 0.0, None)
    for _ in range(2):
        now[0] += 5.0
        tally.count(cached=False, good=False, cost=0.5)
    assert told[-1] == Progress(6, 4, 2, 10, 1.0, 10.0, 20.0)


def test_an_unsized_run_has_no_time_to_go() -> None:
    tally = Tally(None, None)
    tally.count(cached=False, good=True, cost=0.0)
    assert tally.progress.total is None and tally.progress.eta is None


def test_a_call_costs_the_meter_as_little_with_thousands_in_flight_as_with_one() -> None:
    class Counted(dict[int, object]):
        """Tells how often all calls in flight were gone through."""

        walks = 0

        def values(self) -> object:  # type: ignore[override]
            Counted.walks += 1
            return super().values()

    meter = Meter(Budget(calls=5000, cost=100.0))
    meter._flying = Counted()  # type: ignore[assignment]
    first = meter.reserve(Spent(1, 1, 1, 0.01), "m")
    assert first is not None
    meter.settle(first, Spent(1, 1, 1, 0.01))
    tickets = [meter.reserve(Spent(1, 1, 1, 0.01), "m") for _ in range(2)]
    assert None not in tickets and meter.reserve(Spent(1, 1, 1, 0.01), "m") is None, "more fly than there were bills"
    for ticket in tickets:
        meter.settle(int(ticket or 0), Spent(1, 1, 1, 0.01))
    assert Counted.walks == 0
    assert meter.reserve(Spent(1, 0, 0, 51.0), "m") is not None, "what has landed is still counted as in flight"


@pytest.mark.parametrize(("answered", "told"), [(0, True), (2, True), (3, False)])
def test_a_budget_spent_on_a_broken_endpoint_says_so(answered: int, told: bool) -> None:
    meter = Meter(Budget(calls=6))
    for number in range(6):
        ticket = meter.reserve(Spent(1, 5, 5))
        assert ticket is not None
        meter.settle(ticket, Spent(1, 5, 5), billed=number < answered)
    with pytest.raises(BudgetSpent, match="raise the budget") as spent:
        meter.reserve(Spent(1, 5, 5))
    assert (f"{6 - answered} of 6 calls came to no reply" in str(spent.value)) == told
