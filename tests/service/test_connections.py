"""Who may be connected: so many in all, so many of one address, and nobody shut out by a crowd from elsewhere."""

from __future__ import annotations

from typing import Any

from suwen.service.connections import Crowd


class Connection:
    """A connection that may be busy, and knows whether it was cut."""

    def __init__(self, *, idle: bool = True) -> None:
        self.idle, self.cut = idle, False
        self.transport: Any = self

    def abort(self) -> None:
        self.cut = True


def come(crowd: Crowd, address: str, count: int, *, idle: bool = True) -> list[Connection]:
    there = [Connection(idle=idle) for _ in range(count)]
    return [one for one in there if crowd.come(one, address)]  # type: ignore[arg-type]


def test_one_address_has_its_share() -> None:
    crowd = Crowd(10, 4)
    assert [len(come(crowd, address, 6)) for address in "ab"] == [4, 4]
    assert len(come(crowd, "c", 6)) == 3, "two places were free, and one was made of those who had most"


def test_the_largest_crowd_makes_room_with_its_oldest_idle_connection() -> None:
    crowd = Crowd(5, 5)
    there = come(crowd, "crowd", 5)
    there[0].idle = False
    assert len(come(crowd, "guest", 1)) == 1
    assert [one.cut for one in there] == [False, True, False, False, False]
    assert come(crowd, "crowd", 1) == [], "it does not push out the guest, nor itself"


def test_who_is_being_answered_is_not_cut() -> None:
    crowd = Crowd(3, 3)
    there = come(crowd, "busy", 3, idle=False)
    assert come(crowd, "guest", 1) == []
    assert not any(one.cut for one in there)
    crowd.go(there[0])  # type: ignore[arg-type]
    assert len(come(crowd, "guest", 1)) == 1
    crowd.go(there[0])  # type: ignore[arg-type]
