"""The holder: several threads read, one writes, the rest is turned away, and a stop finishes what was accepted."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from suwen.retrieve.retriever import Index
from suwen.service.holder import Holder
from suwen.service.places import Shed
from suwen.service.problems import Problem
from suwen.service.serve_settings import ServeSettings


@pytest.fixture
def folder(tmp_path: Path, static_pair: Path) -> Path:
    Index.create(tmp_path / "notes", pair=static_pair).close()
    return tmp_path / "notes"


def run(holder: Holder, work: Callable[[Holder], Coroutine[Any, Any, Any]]) -> Any:
    """Start the holder, wait until it is ready, work with it, stop it."""

    async def whole() -> Any:
        await holder.start()
        try:
            while not holder.ready and holder.failure is None:
                await asyncio.sleep(0.005)
            return await work(holder)
        finally:
            await holder.stop()

    return asyncio.run(whole())


async def hold_a_reader(holder: Holder, go: threading.Event) -> Problem:
    """Have a reader thread wait for ``go``; what the caller hears, whose time is up meanwhile."""
    begun = threading.Event()
    while not begun.is_set():
        with pytest.raises(Problem) as caught:
            await holder.read(lambda _: (begun.set(), go.wait(300)))
        # On a busy machine it may not have begun in its time: it never will, gives its place back, and is sent again.
        while holder.places["read"].taken and not begun.is_set():
            await asyncio.sleep(0.005)
    return caught.value


def test_writes_run_one_at_a_time_and_in_order(folder: Path) -> None:
    at_once: list[int] = []
    order: list[int] = []
    lock = threading.Lock()

    def write(number: int) -> None:
        assert lock.acquire(blocking=False), "two writes at once"
        order.append(number)
        at_once.append(threading.get_ident())
        time.sleep(0.002)
        lock.release()

    async def work(holder: Holder) -> None:
        await asyncio.gather(*(holder.write(lambda _, n=n: write(n)) for n in range(10)))

    run(Holder(ServeSettings(index=folder)), work)
    assert order == list(range(10))
    assert len(set(at_once)) == 1


def test_reads_run_beside_one_another_and_beside_a_write(folder: Path) -> None:
    together = threading.Barrier(3)

    async def work(holder: Holder) -> None:
        meet = [holder.read(lambda _: together.wait(300)), holder.read(lambda _: together.wait(300))]
        await asyncio.gather(*meet, holder.write(lambda _: together.wait(300)))

    run(Holder(ServeSettings(index=folder, readers=2, seconds=300)), work)


def test_what_is_too_much_is_turned_away_and_the_rest_is_answered(folder: Path) -> None:
    go = threading.Event()

    async def work(holder: Holder) -> tuple[list[Any], int]:
        tasks = [asyncio.create_task(holder.read(lambda _, n=n: (go.wait(300), n)[1])) for n in range(12)]
        await asyncio.sleep(0.01)
        shed = sum(task.done() for task in tasks)
        go.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert await holder.read(lambda _: "again") == "again"
        assert holder.places["read"].taken == 0
        return answers, shed

    answers, shed = run(Holder(ServeSettings(index=folder, readers=2, concurrency=5)), work)
    assert shed == 7
    assert answers[:5] == [0, 1, 2, 3, 4]
    assert all(isinstance(answer, Shed) for answer in answers[5:])


def test_a_read_that_takes_too_long_keeps_its_place_until_it_ends(folder: Path) -> None:
    go = threading.Event()

    async def work(holder: Holder) -> None:
        problem = await hold_a_reader(holder, go)
        assert (problem.code, problem.status) == ("timeout", 503) and "longer than 0.5 seconds" in str(problem)
        assert holder.places["read"].taken == 1
        with pytest.raises(Shed):
            await holder.read(lambda _: 1)
        go.set()
        while holder.places["read"].taken:
            await asyncio.sleep(0.005)

    run(Holder(ServeSettings(index=folder, readers=1, concurrency=1, seconds=0.5)), work)


def test_a_read_that_has_not_begun_in_time_never_begins(folder: Path) -> None:
    go, begun = threading.Event(), threading.Event()

    async def work(holder: Holder) -> None:
        await hold_a_reader(holder, go)
        with pytest.raises(Problem):
            await holder.read(lambda _: begun.set())
        go.set()

    run(Holder(ServeSettings(index=folder, readers=1, seconds=0.5)), work)
    assert not begun.is_set()


def test_a_write_that_takes_too_long_is_done_all_the_same(folder: Path) -> None:
    done: list[str] = []
    go = threading.Event()

    async def work(holder: Holder) -> None:
        with pytest.raises(Problem, match="still being done"):
            await holder.write(lambda _: (go.wait(300), done.append("slow")))
        with pytest.raises(Problem, match="still being done"):
            await holder.write(lambda _: done.append("queued"))
        assert done == []
        go.set()

    run(Holder(ServeSettings(index=folder, seconds=0.05)), work)
    assert done == ["slow", "queued"]


def test_a_write_that_nobody_waits_for_fails_with_one_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    go, said = threading.Event(), list[dict[str, Any]]()

    def write(_: Index) -> None:
        go.wait(300)
        raise ZeroDivisionError

    async def work(holder: Holder) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        with pytest.raises(Problem, match="still being done"):
            await holder.write(write)
        go.set()
        while holder.places["write"].taken:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)
        gc.collect()

    run(Holder(ServeSettings(index=folder, seconds=0.05)), work)
    assert said == []
    # Servers that other tests of this process share may have errors of their own.
    (line,) = [record for record in caplog.records if "ZeroDivisionError" in f"{record.getMessage()}{record.exc_info}"]
    assert line.levelname == "ERROR" and "answered with a timeout has failed" in line.getMessage()


def test_a_stop_finishes_what_was_accepted(folder: Path) -> None:
    done: list[int] = []

    async def work(holder: Holder) -> list[asyncio.Task[Any]]:
        def write(number: int) -> None:
            time.sleep(0.02)
            done.append(number)

        tasks = [asyncio.create_task(holder.write(lambda _, n=n: write(n))) for n in range(8)]
        await asyncio.sleep(0)
        return tasks

    holder = Holder(ServeSettings(index=folder))
    run(holder, work)
    assert done == list(range(8))
    assert not holder.ready
    Index.open(folder, write=True).close()


def test_before_during_and_after(folder: Path) -> None:
    holder = Holder(ServeSettings(index=folder))
    with pytest.raises(Problem) as caught:
        holder.index.close()
    assert (caught.value.code, caught.value.headers) == ("loading", {"Retry-After": "1"})

    async def work(holder: Holder) -> None:
        assert holder.index.engine.stats().documents == 0

    run(holder, work)
    with pytest.raises(Problem) as caught:
        holder.index.close()
    assert caught.value.code == "stopping"


def test_an_index_that_another_has_locked(folder: Path) -> None:
    told: list[str] = []
    with Index.open(folder, write=True):
        holder = Holder(ServeSettings(index=folder))
        holder.on_failure.append(lambda: told.append("failed"))

        async def work(holder: Holder) -> str:
            with pytest.raises(Problem) as caught:
                await holder.read(lambda _: 1)
            return caught.value.code

        assert run(holder, work) == "index_locked"
        assert "is being written by process" in str(holder.failure)
        assert told == ["failed"]


def test_read_only_needs_no_lock_and_takes_no_writes(folder: Path) -> None:
    async def work(holder: Holder) -> None:
        assert await holder.read(lambda index: index.engine.stats().documents) == 0
        with pytest.raises(Problem) as caught:
            await holder.write(lambda _: 1)
        assert (caught.value.code, caught.value.status) == ("read_only", 403)

    with Index.open(folder, write=True):
        run(Holder(ServeSettings(index=folder, read_only=True)), work)


def test_a_stop_gives_up_what_does_not_fit_into_its_time(folder: Path) -> None:
    done: list[int] = []
    begun = threading.Event()

    async def work(holder: Holder) -> list[Any]:
        def write(number: int) -> None:
            begun.set()
            while not holder._writer.give_up.is_set():
                time.sleep(0.005)
            done.append(number)

        tasks = [asyncio.create_task(holder.write(lambda _, n=n: write(n))) for n in range(3)]
        while not begun.is_set():
            await asyncio.sleep(0.005)
        holder.end()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = run(Holder(ServeSettings(index=folder, stop_seconds=0.4)), work)
    assert done == [0], "what was begun went on, the rest was never begun"
    assert [one.code for one in found[1:]] == ["stopping", "stopping"]
    assert all("nothing of this was stored" in str(one) for one in found[1:])


def test_damage_is_noted_and_told_without_the_place(folder: Path) -> None:
    from suwen.index.engine import DamagedIndex

    def broken(index: Index) -> None:
        raise DamagedIndex(f"{folder}/truth.db cannot be read (malformed): run 'suwen verify {folder}'")

    async def work(holder: Holder) -> Problem | None:
        assert holder.trouble() is None
        with pytest.raises(DamagedIndex):
            await holder.read(broken)
        return holder.trouble()

    told = run(Holder(ServeSettings(index=folder)), work)
    assert (told.code, told.message) == (
        "damaged_index",
        "notes/truth.db cannot be read (malformed): run 'suwen verify notes'",
    )


def test_reads_and_writes_have_places_of_their_own(folder: Path) -> None:
    go = threading.Event()

    async def work(holder: Holder) -> None:
        writes = [asyncio.create_task(holder.write(lambda _: go.wait(300))) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert isinstance(writes[2].exception(), Shed)
        assert await holder.read(lambda _: "read") == "read"
        go.set()
        assert await asyncio.gather(*writes[:2]) == [True, True]

    run(Holder(ServeSettings(index=folder, concurrency=1, write_concurrency=2)), work)
