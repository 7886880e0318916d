"""SIGKILL, with and without a power cut, in the middle of every call that changes an index."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from broken import BUILDS
from kill_harness import (
    Bench,
    Outcome,
    Point,
    allowed_states,
    draw_points,
    dry_run,
    strata,
    summary,
    try_point,
    try_reopening,
)
from power_loss import LOSSES, Change, changes
from workload import VERBS

#: Which calls, kinds of change, files and losses show what each wrong build does wrong.
TELLTALES: dict[str, tuple[str, str, str, str]] = {
    "truth_unsynced": ("add", "rename", "lexical list", "zeros"),
    "vectors_unsynced": ("add", "rename", "lexical list", "zeros"),
    "vectors_late": ("add", "write", "vectors", "none"),
    "lexical_late": ("add", "rename", "lexical list", "none"),
    "rename_late": ("rebuild", "rename", "folder", "none"),
    "tombstones_early": ("compact", "write", "vectors", "none"),
}


def _try_all(shim: Path, folder: Path, seed: int, points: list[Point]) -> list[Outcome]:
    with ThreadPoolExecutor(2) as pool:
        tried = [
            pool.submit(try_point, Bench(shim, folder / f"{seed}-{number}"), seed, point)
            for number, point in enumerate(points)
        ]
        return [one.result() for one in tried]


def _judge_each(outcomes: list[Outcome]) -> None:
    bad = [
        f"{outcome.point} at {outcome.hit}:\n    " + "\n    ".join(outcome.problems[:4])
        for outcome in outcomes
        if outcome.problems
    ]
    assert not bad, f"{len(bad)} of {len(outcomes)} kill points:\n" + "\n".join(bad)
    missed = [outcome.point for outcome in outcomes if outcome.hit is None]
    assert not missed, f"never reached: {missed}"


def _judge(outcomes: list[Outcome], made: list[Change]) -> None:
    _judge_each(outcomes)
    wanted = {stratum[:2] for stratum in strata(made)}
    assert {outcome.stratum[:2] for outcome in outcomes} == wanted
    assert {verb for verb, _ in wanted} == set(VERBS)
    assert {kind for verb, kind in wanted if verb != "delete"} >= {"write", "fsync", "rename"}
    assert {outcome.point.loss for outcome in outcomes} == set(LOSSES)


def test_nothing_acknowledged_is_lost_at_25_kill_points(
    shim: Path, tmp_path: Path, report: Callable[[str], None]
) -> None:
    made = dry_run(Bench(shim, tmp_path / "dry"), 0)
    outcomes = _try_all(shim, tmp_path, 0, draw_points(made, 25, seed=0))
    report(summary(outcomes))
    _judge(outcomes, made)


@pytest.mark.long
def test_nothing_acknowledged_is_lost_at_200_kill_points(
    shim: Path, tmp_path: Path, report: Callable[[str], None]
) -> None:
    outcomes: list[Outcome] = []
    made: list[Change] = []
    for seed in range(1, 5):
        made += (here := dry_run(Bench(shim, tmp_path / f"dry-{seed}"), seed))
        outcomes += _try_all(shim, tmp_path, seed, draw_points(here, 50, seed))
    report(summary(outcomes))
    _judge(outcomes, made)
    assert {outcome.stratum[2] for outcome in outcomes} >= {stratum[2] for stratum in strata(made)}


def test_a_kill_while_a_killed_index_is_opened_loses_nothing_either(shim: Path, tmp_path: Path) -> None:
    # Killed while tantivy commits, inside an add: opening replays SQLite's log and sweeps; nothing has to be derived.
    first = Bench(shim, tmp_path / "first")
    told = first.child("run", first.root, 0, fault="kill:add:rename:60").stdout
    allowed = allowed_states(0, told)
    dry = Bench(shim, tmp_path / "dry")
    assert try_reopening(dry, first.root, Point("open", "none", 1), allowed).problems == []
    made = changes(dry.folder / "journal")
    with ThreadPoolExecutor(2) as pool:
        tried = [
            pool.submit(try_reopening, Bench(shim, tmp_path / str(number)), first.root, point, allowed)
            for number, point in enumerate(draw_points(made, 8, seed=0))
        ]
        outcomes = [one.result() for one in tried]
    assert {kind for _, kind, _ in (outcome.stratum for outcome in outcomes)} >= {"write", "fsync"}
    _judge_each(outcomes)


@pytest.mark.parametrize("build", sorted(BUILDS))
def test_the_harness_catches_a_build_that_is(build: str, shim: Path, tmp_path: Path) -> None:
    verb, kind, file, loss = TELLTALES[build]
    made = dry_run(Bench(shim, tmp_path / "dry"), 0, build)
    numbers = strata(made)[verb, kind, file]
    # From the middle on, where there is something to lose, and no more than a dozen.
    for number in numbers[len(numbers) // 2 :: 1 + len(numbers) // 24]:
        point = Point(verb, kind, number, loss=loss)
        caught = try_point(Bench(shim, tmp_path / str(number)), 0, point, build)
        if caught.hit and caught.problems:
            # The build as it is gets over the same point.
            assert try_point(Bench(shim, tmp_path / "right"), 0, caught.point).problems == []
            return
    pytest.fail(f"no kill point of {verb} at {kind} of {file} shows that this build is wrong")
