"""Leases: never the same document to two workers, never for longer than it was leased."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from suwen.index.engine import Waiting
from suwen.service.leases import Leases


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Queue:
    """What waits, oldest first."""

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)

    def find(self, most: int) -> object:
        def found(held: Collection[str]) -> list[Waiting]:
            return [Waiting(id_, "1", "static", None, []) for id_ in self.ids if id_ not in held][:most]

        return found


def ids(found: object) -> list[str]:
    return [one.id for one in found]  # type: ignore[attr-defined]


def test_two_workers_get_different_documents() -> None:
    leases, queue = Leases(10, Clock()), Queue("a", "b", "c")
    first, one = leases.grant("one", queue.find(2))
    second, two = leases.grant("two", queue.find(2))
    third, none = leases.grant("three", queue.find(2))
    assert (ids(one), ids(two), ids(none)) == (["a", "b"], ["c"], [])
    assert first is not None and second is not None and third is None
    assert first.id != second.id and leases.held() == 3


def test_a_lease_that_ends_is_given_to_another() -> None:
    clock, queue = Clock(), Queue("a", "b")
    leases = Leases(10, clock)
    lost, _ = leases.grant("killed", queue.find(1))
    clock.now = 9.9
    assert ids(leases.grant("next", queue.find(9))[1]) == ["b"]
    clock.now = 10.1
    assert ids(leases.grant("next", queue.find(9))[1]) == ["a"]
    assert lost is not None
    assert leases.release(lost.id) is None
    assert not leases.settle(lost.id, ["a"])


def test_what_comes_back_gives_the_rest_more_time() -> None:
    clock, queue = Clock(), Queue("a", "b")
    leases = Leases(10, clock)
    lease, _ = leases.grant("one", queue.find(2))
    assert lease is not None
    clock.now = 8
    assert leases.settle(lease.id, ["a"])
    clock.now = 17
    assert leases.held() == 1
    assert leases.settle(lease.id, ["b"])
    assert leases.held() == 0
    assert leases.release(lease.id) is None, "worked off"


def test_what_is_released_waits_again_at_once() -> None:
    leases, queue = Leases(10, Clock()), Queue("a", "b")
    lease, _ = leases.grant("one", queue.find(2))
    assert lease is not None and leases.release(lease.id) == 2
    assert ids(leases.grant("two", queue.find(2))[1]) == ["a", "b"]


def test_a_worker_is_there_while_it_asks() -> None:
    clock = Clock()
    leases = Leases(10, clock)
    assert not leases.asked_lately()
    leases.grant("one", Queue().find(1))
    clock.now = 59
    assert leases.asked_lately()
    clock.now = 61
    assert not leases.asked_lately()


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("grant"), st.integers(1, 3)),
            st.tuples(st.just("pass"), st.integers(1, 12)),
            st.tuples(st.just("settle"), st.integers(0, 3)),
            st.tuples(st.just("release"), st.integers(0, 3)),
        ),
        max_size=20,
    )
)
def test_no_document_is_ever_leased_twice_at_once(steps: list[tuple[str, int]]) -> None:
    clock, queue = Clock(), Queue(*"abcdef")
    leases, held = Leases(10, clock), {}
    for step, number in steps:
        if step == "pass":
            clock.now += number
        elif step == "grant":
            lease, found = leases.grant("w", queue.find(number))
            now = {id_ for until, own in held.values() if until > clock.now for id_ in own}
            assert not now & set(ids(found))
            if lease is not None:
                held[lease.id] = (clock.now + 10, set(ids(found)))
        elif held:
            chosen = list(held)[number % len(held)]
            alive = held[chosen][0] > clock.now
            if step == "release":
                assert leases.release(chosen) == (len(held[chosen][1]) if alive else None)
                del held[chosen]
            else:
                first = sorted(held[chosen][1])[:1]
                assert leases.settle(chosen, first) is alive
                rest = held.pop(chosen)[1] - set(first)
                if alive and rest:
                    held[chosen] = (clock.now + 10, rest)
    assert leases.held() == sum(len(own) for until, own in held.values() if until > clock.now)
