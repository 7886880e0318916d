"""SIGKILL while models are being asked: nothing used is lost, and no more is repeated than was in flight."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from llm_worker import REQUESTS, config, requests

from suwen.llm.reply_cache import Cache
from suwen.llm.requests import cache_key, identity

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from server import Body, Server

HERE = Path(__file__).parent
SLOTS = 4
# Every sixth first reply is no good and is repaired: 200 calls in all.
CALLS = REQUESTS + len(range(0, REQUESTS, 6))


class Judge:
    """Grades by the number in the question, and numbers its draws: the same question twice is told apart."""

    def __init__(self) -> None:
        self._draws, self._lock = 0, threading.Lock()

    def __call__(self, body: Body) -> str:
        number = int(body["messages"][0]["content"].split()[-1])
        if number % 6 == 0 and len(body["messages"]) == 1:
            return "let me think"
        with self._lock:
            self._draws += 1
            return json.dumps({"grade": number * 7 % 5, "draw": self._draws})


@dataclass
class Worker:
    """The forking program, and one folder of work for it."""

    program: subprocess.Popen[str]
    server: Server
    folder: Path
    slots: int = SLOTS
    late: bool = False
    problems: list[str] = field(default_factory=list)

    def live(self, rng: random.Random | None) -> int:
        """One life: to its end, or killed at a moment drawn at random. Gives its exit status."""
        self.folder.mkdir(parents=True, exist_ok=True)
        job = {"url": self.server.url, "concurrency": self.slots, "late": self.late}
        files = {name: str(self.folder / name) for name in ("cache", "used", "out")}
        assert self.program.stdin is not None and self.program.stdout is not None
        before = self.server.total
        self.program.stdin.write(json.dumps(job | files) + "\n")
        self.program.stdin.flush()
        child = int(self.program.stdout.readline())
        if rng is not None:
            # After so many calls of this life (0: before any), and up to a call's length later.
            target, more = before + rng.randint(0, 9), rng.random() * 0.03
            while self.server.total < target and not select.select([self.program.stdout], [], [], 0.0005)[0]:
                pass
            time.sleep(more)
            os.kill(child, signal.SIGKILL)
        return int(self.program.stdout.readline())

    def look(self) -> None:
        """Note what was used and is not in the file, as a fresh process would find it."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in self.folder.glob("cache*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy)
        cache, keys = Cache(copy / "cache"), self.keys()
        # A repaired reply is kept under the key of its repair: the first, bad one must be there in any case.
        lost = {key for key, _ in self.used() if cache.get(keys[key]) is None}
        if lost:
            self.problems.append(f"{len(lost)} replies were used and are not in the file")
        cache.close()

    def keys(self) -> dict[str, str]:
        """The cache key of each request."""
        given = config(self.server.url, self.slots)
        return {one.key: cache_key(identity(one, given.model("m"), given.endpoint("m"))) for one in requests()}

    def used(self) -> list[tuple[str, Any]]:
        """Everything that was handed out, in all lives; a line cut by a kill is none."""
        file = self.folder / "used"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return [tuple(json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture(scope="module")
def program() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src")}
    command = [sys.executable, str(HERE / "llm_worker.py")]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running
        assert running.stdin is not None
        running.stdin.close()


def strike(worker: Worker, kills: int, seed: int) -> list[str]:
    """Kill so often, then let it finish; gives what is wrong, at the first kill that shows anything."""
    rng = random.Random(seed)
    ends = []
    for number in range(1, kills + 1):
        ends.append(worker.live(rng))
        worker.look()
        if worker.server.repeated > number * SLOTS:
            worker.problems.append(f"{worker.server.repeated} calls repeated after {number} kills")
        if worker.problems:
            return worker.problems
    if worker.live(None) != 0:
        worker.problems.append("it does not finish")
    if (missed := sum(end != -signal.SIGKILL for end in ends)) > kills // 5:
        worker.problems.append(f"{missed} of {kills} lives ended before the kill")
    done = json.loads((worker.folder / "out").read_text(encoding="utf-8"))
    if {key: data["grade"] for key, data in done.items()} != {str(n): n * 7 % 5 for n in range(REQUESTS)}:
        worker.problems.append("the replies are not those of an undisturbed run")
    if any(done[key] != data for key, data in worker.used()):
        worker.problems.append("a reply that was used is not the one that is kept")
    return worker.problems


def test_an_undisturbed_run_makes_each_call_once(program: subprocess.Popen[str], tmp_path: Path) -> None:
    with Server(Judge(), models=None) as server:
        worker = Worker(program, server, tmp_path / "a")
        assert worker.live(None) == 0
        assert server.total == CALLS == 200 and server.repeated == 0
        assert server.most_at_once <= SLOTS
        assert strike(worker, 0, 0) == []
        assert server.total == CALLS


def run(program: subprocess.Popen[str], folder: Path, kills: int, seed: int) -> str:
    with Server(Judge(), models=None, delay=0.01) as server:
        worker = Worker(program, server, folder)
        assert strike(worker, kills, seed) == []
        assert len(server.calls) == CALLS
        cache = Cache(folder / "cache")
        (row,) = cache.ledger()
        assert len(cache) == row.replies == CALLS
        cache.close()
        return f"asking models: {kills} kills, {server.repeated} of {CALLS} calls repeated, {kills * SLOTS} allowed"


def test_nothing_used_is_lost_at_25_kills(
    program: subprocess.Popen[str], tmp_path: Path, report: Callable[[str], None]
) -> None:
    report(run(program, tmp_path / "a", 25, 0))


@pytest.mark.long
def test_nothing_used_is_lost_at_200_kills(
    program: subprocess.Popen[str], tmp_path: Path, report: Callable[[str], None]
) -> None:
    for seed in range(1, 9):
        report(run(program, tmp_path / str(seed), 25, seed))


def test_a_client_that_writes_late_is_caught(program: subprocess.Popen[str], tmp_path: Path) -> None:
    with Server(Judge(), models=None, delay=0.01) as server:
        problems = strike(Worker(program, server, tmp_path / "a", late=True), 8, 0)
        assert any("not in the file" in problem for problem in problems)


def test_a_client_that_has_more_in_flight_than_it_says_is_caught(
    program: subprocess.Popen[str], tmp_path: Path
) -> None:
    with Server(Judge(), models=None, delay=0.01) as server:
        problems = strike(Worker(program, server, tmp_path / "a", slots=32), 4, 0)
        assert any("calls repeated" in problem for problem in problems)
