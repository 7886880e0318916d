"""Eight threads that search while one adds, deletes and compacts: every answer is of one moment."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from naive import encoded, unit

from suwen.index.embedded import EmbeddedEngine

Make = Callable[..., EmbeddedEngine]
GROUP = 3


def test_searches_beside_a_writer(made: Make) -> None:
    """Documents of one group come and go in one call, with one version: no search may see part of a group."""
    engine = made(documents=0, seal=8)
    problems: list[str] = []
    stop = threading.Event()
    looks = [0] * 8

    def look(number: int) -> None:
        rng = np.random.default_rng(number)
        while not stop.is_set() and not problems:
            try:
                with engine.snapshot() as view:
                    for ranking in (view.dense(unit(rng, 1, 16)[0], 999), view.lexical("分组", 999)):
                        seen = [
                            (item.passage.document_id, item.metadata["version"]) for item in view.fetch(ranking.rows)
                        ]
                        groups: dict[str, set[object]] = {}
                        for id_, version in seen:
                            groups.setdefault(id_.split("-")[0], set()).add((id_, version))
                        for group, members in groups.items():
                            if len(members) != GROUP or len({version for _, version in members}) != 1:
                                problems.append(f"{group}: {sorted(members, key=str)}")
            except Exception as problem:
                problems.append(f"{type(problem).__name__}: {problem}")
            looks[number] += 1

    threads = [threading.Thread(target=look, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(99)
    try:
        for version in range(45):
            group = f"g{rng.integers(0, 6)}"
            documents = [
                encoded(f"{group}-{n}", [f"分组 {group}"], unit(rng, 1, 16), {"version": version}) for n in range(GROUP)
            ]
            engine.add(documents)
            if version % 7 == 3:
                engine.delete([f"g{version % 6}-{n}" for n in range(GROUP)])
            if version % 15 == 9:
                engine.compact()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert min(looks) > 0
    assert engine.verify() == []


def opened_in(folder: Path) -> list[Path]:
    """Files of an index that this process has open; those of other threads, a server's say, are none of its."""
    links = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed by its own thread since
            links.append(one.readlink())
    return [link for link in links if link.is_relative_to(folder)]


def test_threads_that_come_and_go_leave_no_files_open(made: Make) -> None:
    engine = made(documents=2)

    def look() -> None:
        with engine.snapshot() as view:
            view.dense(np.ones(16, np.float32), 3)

    def run(count: int) -> int:
        for _ in range(count):
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        return len(opened_in(engine.folder))

    first = run(3)
    assert first > 0
    assert run(40) <= first + 6
