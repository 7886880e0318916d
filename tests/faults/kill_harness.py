"""Running a workload under the fault shim, cutting it short, and looking at what is left. No test lives here."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from power_loss import LOSSES, Change, Disk, changes, killed_at
from workload import State, plan, states

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"

_CLASSES = {
    r"truth\.db-(wal|journal)$": "log",
    r"truth\.db$": "truth",
    r"gen-[^/]+/(bits|codes|rows)$": "vectors",
    r"lexical/(meta|\.managed)\.json$": "lexical list",
    r"lexical/\.tmp": "lexical list",
    r"lexical/": "lexical",
    r"(gen-[^/]+|lexical|index)$": "folder",
    r"lock$": "lock",
}


class Point(NamedTuple):
    """Where to strike: the n-th change of a kind within calls of one verb; how; and what the power cut takes."""

    verb: str
    kind: str
    number: int
    how: str = "kill"
    loss: str = "none"

    @property
    def fault(self) -> str:
        """The shim's setting."""
        return f"{self.how}:{self.verb}:{self.kind}:{self.number}"


class Outcome(NamedTuple):
    """What came of one point: where the child died (None: it did not), and what is wrong with the index."""

    point: Point
    hit: Change | None
    problems: list[str]

    @property
    def stratum(self) -> tuple[str, str, str]:
        """The verb, the kind of change and the class of file that were hit."""
        return (self.hit.phase, self.hit.kind, file_class(self.hit.path)) if self.hit else ("", "", "")


class Bench(NamedTuple):
    """Everything one run needs: the shim and a folder of its own."""

    shim: Path
    folder: Path

    @property
    def root(self) -> Path:
        """The index folder."""
        return self.folder / "index"

    @property
    def trash(self) -> Path:
        """Where the shim keeps files that lost their last name."""
        return self.folder / "trash"

    def child(self, *command: object, fault: str = "") -> subprocess.CompletedProcess[str]:
        """Run the workload program under the shim."""
        self.trash.mkdir(parents=True, exist_ok=True)
        watch = {"SHIM_ROOT": self.root, "SHIM_LOG": self.folder / "journal", "SHIM_TRASH": self.trash}
        environment = _environment() | {key: str(value) for key, value in watch.items()}
        environment |= {"LD_PRELOAD": str(self.shim), "SHIM_FAULT": fault}
        return _program(command, environment)

    def check(self, allowed: Sequence[State]) -> list[str]:
        """What is wrong with the index, as a fresh process sees it."""
        done = _program(("check", self.root), _environment(), json.dumps(allowed))
        if done.returncode:
            return [f"the check itself died ({done.returncode}): {done.stderr[-800:]}"]
        return list(json.loads(done.stdout))


def _environment() -> dict[str, str]:
    # One thread each: two dozen children must not fight over a few cores.
    return os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _program(
    command: Iterable[object], environment: dict[str, str], text: str = ""
) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, str(HERE / "workload.py"), *map(str, command)]
    return subprocess.run(whole, env=environment, input=text, capture_output=True, text=True, timeout=300)


def file_class(path: str) -> str:
    """What a file of an index is for."""
    return next((name for pattern, name in _CLASSES.items() if re.search(pattern, path)), "other")


def dry_run(bench: Bench, seed: int, *build: str) -> list[Change]:
    """Every change the workload makes when nothing strikes."""
    done = bench.child("run", bench.root, seed, *build)
    if done.returncode:
        raise AssertionError(f"the workload fails without any fault: {done.stderr[-2000:]}")
    return changes(bench.folder / "journal")


def strata(made: Iterable[Change]) -> dict[tuple[str, str, str], list[int]]:
    """The numbers a point may take, by verb, kind of change and class of file."""
    counted: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str, str], list[int]] = {}
    for change in made:
        counted[change.phase, change.kind] += 1
        if change.phase != "close":
            stratum = (change.phase, change.kind, file_class(change.path))
            found.setdefault(stratum, []).append(counted[change.phase, change.kind])
    return found


def draw_points(made: Iterable[Change], count: int, seed: int) -> list[Point]:
    """Points spread over the strata: first each verb with each kind, then each class of file, then again."""
    draw = random.Random(seed)
    pools = {stratum: draw.sample(numbers, len(numbers)) for stratum, numbers in sorted(strata(made).items())}
    order = draw.sample(sorted(pools), len(pools))
    firsts = list({stratum[:2]: stratum for stratum in order}.values())
    queue = firsts + [stratum for stratum in order if stratum not in firsts]
    points: list[Point] = []
    rounds = 0
    while len(points) < count and any(pools.values()):
        for stratum in [stratum for stratum in queue if pools[stratum]][: count - len(points)]:
            how = draw.choice(("kill", "tear")) if stratum[1] == "write" else "kill"
            # Round by round the loss moves on, so that a stratum meets all four.
            loss = LOSSES[(queue.index(stratum) + rounds) % len(LOSSES)]
            points.append(Point(*stratum[:2], pools[stratum].pop(), how, loss))
        rounds += 1
    return points


def try_point(bench: Bench, seed: int, point: Point, *build: str) -> Outcome:
    """Strike once, cut the power, and look."""
    done = bench.child("run", bench.root, seed, *build, fault=point.fault)
    if done.returncode not in (0, -signal.SIGKILL):
        return Outcome(point, None, [f"the workload failed ({done.returncode}): {done.stderr[-2000:]}"])
    journal = bench.folder / "journal"
    if (hit := killed_at(journal)) is None and point.number > 1:
        # Merges run beside the calls, so no two runs make exactly the same changes: take one that comes sooner.
        sooner = point._replace(number=point.number * 3 // 4)
        return try_point(Bench(bench.shim, bench.folder / "sooner"), seed, sooner, *build)
    Disk(str(bench.root)).replay(journal).lose(point.loss, bench.trash)
    return Outcome(point, hit, bench.check(allowed_states(seed, done.stdout)))


def try_reopening(bench: Bench, wreck: Path, point: Point, allowed: Sequence[State]) -> Outcome:
    """Strike while an index that was cut short is opened again, cut the power, and look."""
    shutil.copytree(wreck, bench.root)
    disk = Disk.scan(bench.root)
    done = bench.child("reopen", bench.root, fault=point.fault)
    if done.returncode not in (0, -signal.SIGKILL):
        return Outcome(point, None, [f"opening failed ({done.returncode}): {done.stderr[-2000:]}"])
    disk.replay(bench.folder / "journal").lose(point.loss, bench.trash)
    return Outcome(point, killed_at(bench.folder / "journal"), bench.check(allowed))


def allowed_states(seed: int, told: str) -> list[State]:
    """The state after the last acknowledged call, and the one the call in flight may have reached."""
    sequence = list(states(plan(seed)))
    acknowledged, intended = told.count("ack"), told.count("intent")
    return sequence[acknowledged : intended + 1]


def summary(outcomes: Iterable[Outcome]) -> str:
    """How often each verb, kind and class of file was hit, and each loss."""
    outcomes = list(outcomes)
    lines = [f"{len(outcomes)} kill points"]
    by_verb: dict[tuple[str, str], Counter[str]] = {}
    for outcome in outcomes:
        by_verb.setdefault(outcome.stratum[:2], Counter())[outcome.stratum[2]] += 1
    for (verb, kind), classes in sorted(by_verb.items()):
        named = ", ".join(f"{name} {count}" for name, count in sorted(classes.items()))
        lines.append(f"  {verb:8}{kind:7}{classes.total():4}  ({named})")
    losses = Counter(outcome.point.loss for outcome in outcomes)
    torn = sum(outcome.point.how == "tear" for outcome in outcomes)
    lines.append("  losses: " + ", ".join(f"{loss} {losses[loss]}" for loss in LOSSES) + f"; torn writes: {torn}")
    return "\n".join(lines)
