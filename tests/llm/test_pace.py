"""Waiting between tries, and the gate before an endpoint."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_clock import VirtualClock

from suwen.llm.pace import Gate, back_off, retry_after


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_holds_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, now=100.0) == seconds


@given(st.text())
def test_any_header_gives_a_wait_or_none(value: str) -> None:
    wait = retry_after(value)
    assert wait is None or 0 <= wait < math.inf


@given(st.integers(1, 5000), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_within_the_upper_half_of_the_doubled_one(attempt: int, draw: float) -> None:
    whole = min(60.0, 0.5 * 2.0 ** min(attempt - 1, 60))
    assert whole / 2 <= back_off(attempt, 0.5, 60.0, lambda: draw) <= whole


def test_no_more_than_the_slots_at_once() -> None:
    async def scene() -> int:
        gate, inside, most = Gate(3, None), 0, 0

        async def call() -> None:
            nonlocal inside, most
            async with gate.slot():
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(call() for _ in range(50)))
        return most

    assert asyncio.run(scene()) == 3


def starts(gate: Gate, count: int, clock: VirtualClock) -> list[float]:
    async def call() -> float:
        async with gate.slot():
            return clock.now

    async def scene() -> list[float]:
        return sorted(await asyncio.gather(*(call() for _ in range(count))))

    return asyncio.run(scene())


def test_calls_start_at_the_pace_and_no_faster(clock: VirtualClock) -> None:
    # 480 a minute are an eighth of a second apart.
    assert starts(Gate(8, 480.0), 6, clock) == [0.0, 0.125, 0.25, 0.375, 0.5, 0.625]


def test_a_pause_holds_everyone_and_halves_the_slots_once(clock: VirtualClock) -> None:
    gate = Gate(8, None)
    gate.pause(0.5)
    gate.pause(0.25)
    assert gate.allowed == 4
    assert starts(gate, 5, clock) == [0.5] * 5


def test_good_calls_widen_the_gate_again_but_not_beyond_its_width() -> None:
    async def scene() -> list[int]:
        gate = Gate(4, None)
        gate.pause(0.0)
        seen = [gate.allowed]
        for _ in range(20):
            await gate.good()
            seen.append(gate.allowed)
        return seen

    assert asyncio.run(scene())[:6] == [2, 2, 3, 3, 3, 4]
    assert asyncio.run(scene())[-1] == 4


def test_one_slot_is_always_left(clock: VirtualClock) -> None:
    gate = Gate(4, None)
    for _ in range(9):
        gate.pause(0.0)
    assert gate.allowed == 1
    assert starts(gate, 3, clock) == [0.0] * 3


def test_a_call_cancelled_while_it_waits_leaves_its_slot() -> None:
    async def scene() -> None:
        gate = Gate(1, None)
        gate.pause(30.0)

        async def call() -> None:
            async with gate.slot():
                pass

        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert gate._active == 0

    asyncio.run(scene())


def test_a_slot_that_is_given_back_wakes_no_crowd() -> None:
    looks = 0

    class Counted(Gate):
        @property
        def allowed(self) -> int:
            nonlocal looks
            looks += 1
            return self._slots

        @allowed.setter
        def allowed(self, value: int) -> None:
            self._slots = value

    async def scene(calls: int) -> None:
        gate, inside = Counted(40, None), asyncio.Queue[asyncio.Future[None]]()

        async def call() -> None:
            async with gate.slot():
                inside.put_nowait(ended := asyncio.get_running_loop().create_future())
                await ended

        tasks = [asyncio.create_task(call()) for _ in range(calls)]
        for _ in range(calls):
            (await inside.get()).set_result(None)
            # One after the other, as replies leave that are written to a file; those woken have time to look.
            for _ in range(6):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(scene(1200))
    # Each looks when it comes, is woken and goes: 3,560 times in all. When all were woken, it was 674,580.
    assert looks < 20_000


def test_who_is_cancelled_as_it_is_woken_hands_the_slot_on() -> None:
    async def scene() -> bool:
        gate, got = Gate(1, None), False

        async def call() -> None:
            nonlocal got
            async with gate.slot():
                got = True

        held = gate.slot()
        await held.__aenter__()
        first = asyncio.create_task(call())
        await asyncio.sleep(0)
        second = asyncio.create_task(call())
        await asyncio.sleep(0)
        await held.__aexit__(None, None, None)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.wait_for(second, 30)
        return got

    assert asyncio.run(scene())
