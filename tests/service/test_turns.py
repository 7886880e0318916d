"""Turns: short work runs a piece at a time, and nobody waits for a piece that takes long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from suwen.service import turns as turns_module
from suwen.service.turns import Turns

_SECONDS = 300.0


@pytest.fixture
def readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(work())


@pytest.fixture
def nobody_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a thread may stand still for a tenth of a second, at a piece of no length at all."""
    monkeypatch.setattr(turns_module, "_LONG", _SECONDS)


def nothing() -> None:
    """What is to be done when a piece is over, where that does not matter."""


@pytest.mark.usefixtures("nobody_takes_long")
def test_pieces_run_one_at_a_time_and_in_order(readers: ThreadPoolExecutor) -> None:
    turns, alone, order, over = Turns(readers), threading.Lock(), list[int](), list[int]()

    def piece(number: int) -> int:
        assert alone.acquire(blocking=False), "two pieces at once"
        order.append(number)
        alone.release()
        return -number

    async def work() -> list[int]:
        many = (turns.do(lambda n=n: piece(n), _SECONDS, lambda n=n: over.append(n)) for n in range(60))
        return await asyncio.gather(*many)

    assert run(work) == [-number for number in range(60)]
    assert order == over == list(range(60))


def test_a_piece_that_takes_long_keeps_nobody(readers: ThreadPoolExecutor) -> None:
    turns, go, at_once = Turns(readers), threading.Event(), threading.Lock()

    def short() -> str:
        with at_once:
            return "short"

    async def work() -> None:
        long = asyncio.create_task(turns.do(lambda: go.wait(300), _SECONDS, nothing))
        await asyncio.sleep(0)
        assert await asyncio.gather(*(turns.do(short, _SECONDS, nothing) for _ in range(5))) == ["short"] * 5
        assert not long.done()
        # The first of these is kept waiting by nobody, the next by what is still under way: not for long either.
        assert await turns.do(short, _SECONDS, nothing) == "short"
        go.set()
        assert await long
        assert await asyncio.gather(*(turns.do(short, _SECONDS, nothing) for _ in range(40))) == ["short"] * 40

    run(work)


def test_who_took_long_does_not_go_on_beside_the_other(
    readers: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, go, begun, alone = Turns(readers), threading.Event(), threading.Event(), threading.Lock()

    def piece() -> bool:
        if not alone.acquire(blocking=False):
            return False
        try:
            return not threading.Event().wait(0.001)
        finally:
            alone.release()

    def other() -> None:
        # From here on nobody takes long, however long a busy machine lets a thread stand still.
        monkeypatch.setattr(turns_module, "_LONG", _SECONDS)
        begun.set()
        # While this has the turn, the one that took long ends: it must leave the rest to this thread.
        go.set()

    async def work() -> list[bool]:
        long = asyncio.create_task(turns.do(lambda: go.wait(300), _SECONDS, nothing))
        await asyncio.sleep(0)
        many = [turns.do(other, _SECONDS, nothing), *(turns.do(piece, _SECONDS, nothing) for _ in range(50))]
        _, *found = await asyncio.gather(*many)
        await long
        return found

    assert all(run(work))
    assert begun.is_set()


def test_what_has_not_begun_in_time_never_begins(readers: ThreadPoolExecutor) -> None:
    alone = ThreadPoolExecutor(1)
    turns, go, begun, over = Turns(alone), threading.Event(), threading.Event(), threading.Event()

    async def work() -> None:
        long = asyncio.create_task(turns.do(lambda: go.wait(300), _SECONDS, nothing))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await turns.do(begun.set, 0.02, over.set)
        go.set()
        await long

    run(work)
    alone.shutdown(wait=True)
    assert over.is_set() and not begun.is_set()


@pytest.mark.usefixtures("nobody_takes_long")
def test_longer_work_gets_its_thread_between_pieces() -> None:
    order: list[str] = []
    with ThreadPoolExecutor(1) as alone:
        turns, go = Turns(alone), threading.Event()

        async def work() -> None:
            first = turns.do(lambda: go.wait(300), _SECONDS, nothing)
            many = [first, *(turns.do(lambda: order.append("short"), _SECONDS, nothing) for _ in range(40))]
            waiting = [asyncio.create_task(one) for one in many]
            await asyncio.sleep(0)
            alone.submit(order.append, "long")
            go.set()
            await asyncio.gather(*waiting)

        run(work)
    assert order.count("short") == 40
    assert 0 < order.index("long") < 40


def test_problems_are_raised_where_they_are_waited_for(readers: ThreadPoolExecutor) -> None:
    turns, over = Turns(readers), list[str]()

    async def work() -> None:
        with pytest.raises(ZeroDivisionError):
            await turns.do(lambda: 1 / 0, _SECONDS, lambda: over.append("failed"))
        readers.shutdown()
        with pytest.raises(RuntimeError, match="shutdown"):
            await turns.do(lambda: 1, _SECONDS, lambda: over.append("refused"))

    run(work)
    assert over == ["failed", "refused"]
