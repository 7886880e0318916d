"""A disk that gets full in the middle of every call that changes an index, and has room again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kill_harness import Bench, strata
from power_loss import changes
from workload import VERBS


def _fill(bench: Bench, verb: str, number: int) -> dict[str, Any]:
    """Make the calls with the disk full from the n-th write of a verb on, until the call has failed."""
    done = bench.child("fill", bench.root, 0, fault=f"full:{verb}:write:{number}")
    if done.returncode:
        return {"refused": "", "problems": [f"the workload failed: {done.stderr[-2000:]}"]}
    told: dict[str, Any] = json.loads(done.stdout)
    told["problems"] += [f"reopened: {line}" for line in bench.check([told["state"]])]
    return told


def test_a_full_disk_is_told_of_loses_nothing_and_is_forgotten_once_there_is_room(
    shim: Path, tmp_path: Path, report: Callable[[str], None]
) -> None:
    dry = _fill(bench := Bench(shim, tmp_path / "dry"), "no verb", 1)
    assert dry["problems"] == []
    # One write of every verb to every class of file.
    made = strata(changes(bench.folder / "journal"))
    cases = [(verb, found[len(found) // 2]) for (verb, kind, _), found in sorted(made.items()) if kind == "write"]
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda case: _fill(Bench(shim, tmp_path / f"{case[0]}-{case[1]}"), *case), cases))
    problems = [f"{case}: {line}" for case, one in zip(cases, told, strict=True) for line in one["problems"]]
    assert not problems, "\n".join(problems)
    refused = Counter(one["refused"] for one in told)
    report(f"full disk: {len(cases)} points, calls refused: {', '.join(f'{verb} {refused[verb]}' for verb in VERBS)}")
    assert set(refused) >= set(VERBS)
