"""SIGKILL while a jury votes: votes are complete, unique, those of an undisturbed run, and few calls are repeated."""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from jury_worker import BATCHES, JUDGES, PASSAGES, QUERIES, VOTES, prepare

from in_memory import folder_in_memory
from suwen.jury.judge_batches import draw
from suwen.jury.verdicts import Vote
from suwen.jury.votes import Votes

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from server import Body, Server

HERE = Path(__file__).parent
SLOTS = 4
_SHOWN = re.compile(r"【(P\d+)】\ntext (\S+)")


def judge(body: Body) -> str:
    """Grades by model and passage; leaves some out, for good or until they are asked for again, and refuses some."""
    text = next(message["content"] for message in body["messages"] if message["role"] == "user")
    shown = dict(_SHOWN.findall(text))
    said = {}
    for label, id_ in shown.items():
        mood = draw(body["model"], id_) % 20
        if mood == 0 or (mood == 1 and len(shown) > 2):
            continue
        said[label] = {"reason": f"{label} {id_}", "grade": "SABCD"[mood % 5]}
    return json.dumps(said)


@dataclass
class Worker:
    """The forking program, and one folder of work for it."""

    program: subprocess.Popen[str]
    server: Server
    folder: Path
    piecemeal: bool = False
    problems: list[str] = field(default_factory=list)

    def live(self, rng: random.Random | None) -> int:
        """One life: to its end, or killed at a moment drawn at random. Gives its exit status."""
        job = {"url": self.server.url, "concurrency": SLOTS, "folder": str(self.folder), "piecemeal": self.piecemeal}
        assert self.program.stdin is not None and self.program.stdout is not None
        before = self.server.total
        self.program.stdin.write(json.dumps(job) + "\n")
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

    def look(self, expected: dict[tuple[object, ...], Vote]) -> None:
        """Note what a fresh process finds that an undisturbed run does not have, and batches that are there in part."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for file in self.folder.glob("votes.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy)
        if not (copy / "votes.db").exists() or not (copy / "votes.db").stat().st_size:
            return
        found = keyed(copy / "votes.db")
        if any(expected.get(key) != vote for key, vote in found.items()):
            self.problems.append("a vote is not that of an undisturbed run")
        if any(not names <= found.keys() for names in together(expected) if names & found.keys()):
            self.problems.append("a batch was stored in part")


def keyed(path: Path) -> dict[tuple[object, ...], Vote]:
    """Every vote by what makes it unique, without the time."""
    with Votes(path) as votes:
        every = [vote._replace(at=0.0) for vote in votes]
    found = {tuple(vote[:4]): vote for vote in every}
    assert len(found) == len(every)
    return found


def together(votes: dict[tuple[object, ...], Vote]) -> list[set[tuple[object, ...]]]:
    """The keys of votes that came in one reply, and so belong together."""
    groups: dict[tuple[object, ...], list[tuple[object, ...]]] = {}
    for key, vote in votes.items():
        groups.setdefault((vote.query_id, vote.judge, vote.round, vote.reply_key), []).append(key)
    return [set(keys) for keys in groups.values()]


@pytest.fixture(scope="module")
def program() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src")}
    command = [sys.executable, str(HERE / "jury_worker.py")]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running
        assert running.stdin is not None
        running.stdin.close()


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture(scope="module")
def undisturbed(program: subprocess.Popen[str], room: Path) -> tuple[dict[tuple[object, ...], Vote], int]:
    """The votes of a run nobody strikes, and the calls it makes."""
    with Server(judge, models=None) as server:
        prepare(room / "undisturbed")
        assert Worker(program, server, room / "undisturbed").live(None) == 0
        assert server.repeated == 0 and server.most_at_once <= SLOTS
        return keyed(room / "undisturbed" / "votes.db"), server.total


Undisturbed = tuple[dict[tuple[object, ...], Vote], int]


def strike(worker: Worker, expected: Undisturbed, kills: int, seed: int) -> list[str]:
    """Kill so often, then let it finish; gives what is wrong."""
    votes, calls = expected
    rng = random.Random(seed)
    ends = []
    prepare(worker.folder)
    for number in range(1, kills + 1):
        ends.append(worker.live(rng))
        worker.look(votes)
        if worker.server.repeated > number * SLOTS:
            worker.problems.append(f"{worker.server.repeated} calls repeated after {number} kills")
    if worker.live(None) != 0:
        worker.problems.append("it does not finish")
    if (missed := sum(end != -signal.SIGKILL for end in ends)) > kills // 4:
        worker.problems.append(f"{missed} of {kills} lives ended before the kill")
    if keyed(worker.folder / "votes.db") != votes:
        worker.problems.append("the votes are not those of an undisturbed run")
    if len(worker.server.calls) != calls:
        worker.problems.append(f"{len(worker.server.calls)} distinct calls, {calls} in an undisturbed run")
    return worker.problems


def test_an_undisturbed_run_is_complete(undisturbed: Undisturbed) -> None:
    votes, calls = undisturbed
    assert len(votes) == VOTES and {key[2] for key in votes} == {one.name for one in JUDGES}
    first = [vote for vote in votes.values() if vote.round == 0]
    assert len(first) == QUERIES * PASSAGES * len(JUDGES)
    # Some batches are asked for again, and some passages never get a grade.
    assert calls > BATCHES and 0 < sum(vote.grade is None for vote in first) < len(first) // 10


def run(program: subprocess.Popen[str], room: Path, expected: Undisturbed, kills: int, seed: int) -> str:
    with Server(judge, models=None, delay=0.01) as server:
        worker = Worker(program, server, room / f"run-{kills}-{seed}")
        assert strike(worker, expected, kills, seed) == []
        return (
            f"a jury voting: {kills} kills, {server.repeated} of {expected[1]} calls repeated, {kills * SLOTS} allowed"
        )


def test_votes_are_those_of_an_undisturbed_run_after_25_kills(
    program: subprocess.Popen[str], room: Path, undisturbed: Undisturbed, report: Callable[[str], None]
) -> None:
    report(run(program, room, undisturbed, 25, 0))


@pytest.mark.long
def test_votes_are_those_of_an_undisturbed_run_after_200_kills(
    program: subprocess.Popen[str], room: Path, undisturbed: Undisturbed, report: Callable[[str], None]
) -> None:
    for seed in range(1, 9):
        report(run(program, room, undisturbed, 25, seed))


def test_a_store_that_writes_piecemeal_is_caught(
    program: subprocess.Popen[str], room: Path, undisturbed: Undisturbed
) -> None:
    with Server(judge, models=None) as server:
        worker = Worker(program, server, room / "piecemeal", piecemeal=True)
        prepare(worker.folder)
        assert worker.live(None) == -signal.SIGKILL
        worker.look(undisturbed[0])
        assert worker.problems == ["a batch was stored in part"]
