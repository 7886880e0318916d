"""Running a suite: each system on each task, resumed where it stopped. Reports and plots are made of what is stored.

A missing or broken data set, or a system that cannot do a task, costs that task alone and is reported with the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.bench.result_files import (
    FORMAT,
    Result,
    ResultError,
    mteb_result,
    read_result,
    result_file,
    sidecar,
    system_folder,
    write_run,
)
from suwen.bench.suite_tasks import Suite, Task, load_suite
from suwen.bench.system_specs import parse_systems
from suwen.bench.systems import NotApplicable, RankingContext, Setting, System, SystemProblem
from suwen.bench.task_data import Data, MissingData, Paired
from suwen.bench.task_loading import Places, load_data, unfetchable
from suwen.bench.task_scoring import Scored, default_depth, score_task
from suwen.bench.vector_cache import SHARD_SIZE, VectorCache, contract_hash
from suwen.durable import write_json, write_lines
from suwen.errors import SuwenError

#: Called with what is running and how much of it is done.
Progress = Callable[[str, int, int], None]


class Mean(NamedTuple):
    """An average of a suite; None where some of its tasks have no result, which are named."""

    value: float | None
    missing: tuple[str, ...]


@dataclass
class SystemRun:
    """What became of one system: results by task, and the suite's averages.

    ``failures`` says why a task that should have a result has none, ``left_out`` why one cannot have any.
    """

    system: str
    folder: Path
    results: dict[str, Result] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    averages: dict[str, Mean] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteRun:
    """What became of a run, system by system."""

    suite: Suite
    systems: list[SystemRun]

    @property
    def complete(self) -> bool:
        """Whether every task has a result for every system that can do it."""
        return not any(system.failures for system in self.systems)


def run_suite(
    suite: Suite | str | Path,
    systems: Sequence[System | str],
    *,
    out: Path | str,
    data: Places = None,
    tasks: Sequence[str] | None = None,
    cache: Path | str | None = None,
    depth: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    lenient: bool = False,
    again: bool = False,
    shard_size: int = SHARD_SIZE,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> SuiteRun:
    """Run systems on the tasks of a suite and store every result.

    Run it again after an interruption: finished tasks are read back (unless the data, the system or the task changed
    since) and finished shards of vectors are not encoded again.

    Args:
        suite: A suite, its name, or the path of its file.
        systems: Systems, or specs as :func:`~suwen.bench.systems.parse_systems` reads them.
        out: The folder of results; see :mod:`~suwen.bench.result_files`.
        data: Paths by task name, or a folder that holds the tasks; then the suite's own path, then the hub.
        tasks: Only these.
        cache: The folder of vectors; ``<out>/vectors`` by default.
        depth: How many hits of a query are kept; never fewer than the metrics need.
        revision: A commit of the hub in place of the pinned one.
        offline: Use the hub's cache only.
        lenient: Take data with unknown or repeated judgements, and make a note of it.
        again: Score finished tasks again.
        shard_size: Texts that an interruption can cost.
        progress: Called with what is running and how much of it is done.
        tell: Called before anything runs with what to fetch for tasks that will have no result.

    Raises:
        MissingData: No task has data, nor any that could be fetched as they are; the message says what to fetch.
        SuwenError: The suite, a task's name or a system's spec is not understood.
    """
    suite = suite if isinstance(suite, Suite) else load_suite(suite)
    chosen = [suite.task(name) for name in tasks] if tasks else list(suite.tasks)
    made = parse_systems(systems)
    _ask_for_data(suite, chosen, data, revision, tell)
    if not made:
        raise SystemProblem("no system to run: name at least one, such as bm25:words (`-s bm25:words`)")
    vectors = VectorCache(cache or Path(out) / "vectors", shard_size=shard_size)
    job = _Job(suite, Path(out), vectors, depth, again, progress)
    loader = _Loader(lambda task: load_data(job.suite, task, data, revision=revision, offline=offline, lenient=lenient))
    return SuiteRun(suite, [job.run(system, chosen, loader) for system in made])


def _ask_for_data(
    suite: Suite, tasks: Sequence[Task], data: Places, revision: str | None, tell: Callable[[str], None] | None
) -> None:
    """Say at once what to fetch, and not task by task once all the others have run."""
    missing = unfetchable(suite, tasks, data, revision)
    if not missing:
        return
    unpinned = any(task.hub.id is not None and task.hub.revision is None for task in missing)
    ask = " COMMIT is not pinned: take it from the data set's page, or have all fetched now with --revision main."
    few = f"{len(tasks)} task{'s' * (len(tasks) > 1)} of {suite.name} {'has' if len(missing) == 1 else 'have'}"
    said = (
        f"{len(missing)} of {few} no data here. Fetch them, then name the folder that holds them with --data."
        f"{ask if unpinned else ''}\n" + "\n".join(f"  {line}" for line in _ways(missing))
    )
    if len(missing) == len(tasks):
        raise MissingData(said)
    if tell is not None:
        tell(said)


def _ways(missing: Sequence[Task]) -> Iterator[str]:
    """How each task's data are got, a line for each way; a command that names its task can be copied as it is."""
    ways: dict[str, list[str]] = {}
    for task in missing:
        ways.setdefault(str(task.get), []).append(task.name)
    for way, names in ways.items():
        yield way if names[0] in way else f"{', '.join(names)}: {way}"


@dataclass
class _Loader:
    """Loads a task's data; the last task's are kept, and so is why one has none."""

    read: Callable[[Task], Data]
    _last: tuple[str, Data] | None = None
    _why: dict[str, SuwenError] = field(default_factory=dict)

    def load(self, task: Task) -> Data:
        if task.name in self._why:
            raise self._why[task.name]
        if self._last is None or self._last[0] != task.name:
            self._last = None  # two corpora are never held at once
            try:
                self._last = task.name, self.read(task)
            except SuwenError as problem:
                self._why[task.name] = problem
                raise
        return self._last[1]


@dataclass
class _Job:
    """The parts of a run that all systems share."""

    suite: Suite
    out: Path
    cache: VectorCache
    depth: int | None
    again: bool
    progress: Progress | None

    def run(self, system: System, tasks: Sequence[Task], loader: _Loader) -> SystemRun:
        done = SystemRun(system.name, system_folder(self.out, self.suite.name, system.name))
        for task in tasks:
            try:
                self._task(system, task, loader.load(task), done)
            except NotApplicable as problem:
                done.left_out[task.name] = str(problem)
            except SuwenError as problem:
                done.failures[task.name] = str(problem)
        system.release()
        done.averages = averages(self.suite, {name: result.metrics for name, result in done.results.items()})
        write_json(done.folder / "summary.json", _summary(self.suite, system, done))
        return done

    def _task(self, system: System, task: Task, data: Data, done: SystemRun) -> None:
        setting = Setting(task, self.suite.templates)
        depth = max(self.depth or 0, default_depth(task))
        fixed = {
            "format": FORMAT,
            "task": task.model_dump(mode="json", include={"name", "kind", "metrics", "split", "similarity"}),
            "contract": {side: system.contract(setting, side) for side in ("query", "document")},
            "data_sha256": data.fingerprint(),
            "depth": depth,
        }
        fingerprint = contract_hash(fixed)
        file = result_file(done.folder, task.name)
        if not self.again and (known := _finished(file, fingerprint)) is not None:
            done.results[task.name] = known
            done.reused.append(task.name)
            return
        started = time.perf_counter()
        scored = score_task(system, data, setting, RankingContext(self.cache, depth, self._progress(system, task)))
        seconds = round(time.perf_counter() - started, 3)
        about = {
            "format": FORMAT,
            "suite": self.suite.name,
            "system": system.name,
            "spec": system.spec,
            "main": task.main,
            "kind": task.kind,
            "metrics": scored.metrics,
            "similarity": scored.similarity,
            "query_ms": None if scored.ranks is None else scored.ranks.query_ms,
            "fingerprint": fingerprint,
            **{key: fixed[key] for key in ("contract", "data_sha256", "depth")},
            **_about_data(data, scored),
        }
        _store(file, task, system, data, scored, mteb_result(task, scored.metrics, about, seconds))
        done.results[task.name] = read_result(file)

    def _progress(self, system: System, task: Task) -> Callable[[int, int], None] | None:
        report = self.progress
        return None if report is None else lambda done, total: report(f"{system.name} on {task.name}", done, total)


def averages(suite: Suite, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Mean]:
    """The suite's averages over tasks that have results; one that lacks a task is None, and says which."""
    means = {}
    for average in suite.averages:
        wanted = {name: average.metric or suite.task(name).main for name in average.over}
        missing = tuple(name for name, metric in wanted.items() if metric not in metrics.get(name, {}))
        value = None if missing else float(np.mean([metrics[name][metric] for name, metric in wanted.items()]))
        means[average.name] = Mean(value, missing)
    return means


def _finished(file: Path, fingerprint: str) -> Result | None:
    try:
        known = read_result(file)
    except ResultError:
        return None
    return known if known.about.get("fingerprint") == fingerprint else None


def _about_data(data: Data, scored: Scored) -> dict[str, Any]:
    counts = (
        {"pairs": len(data.scores)}
        if isinstance(data, Paired)
        else {"queries": len(data.queries), "documents": len(data.documents)}
    )
    source = data.source
    return {
        "data": {"path": str(source.path), "hub": source.hub, "revision": source.revision},
        "counts": counts,
        "notes": [*data.notes, *scored.notes],
    }


def _store(file: Path, task: Task, system: System, data: Data, scored: Scored, result: dict[str, Any]) -> None:
    """Write the parts, then the result that says they are whole; an older result is gone before they change."""
    file.unlink(missing_ok=True)
    run, histogram = sidecar(file, ".trec"), sidecar(file, ".similarities.json")
    if scored.ranks is not None and not isinstance(data, Paired):
        write_run(run, data, scored.ranks, system.name)
    if scored.similarities is not None:
        write_json(histogram, scored.similarities)
    else:
        histogram.unlink(missing_ok=True)
    write_lines(sidecar(file, ".queries.jsonl"), scored.rows)
    write_json(file, result)


def _summary(suite: Suite, system: System, done: SystemRun) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "system": system.name,
        "spec": system.spec,
        "tasks": {name: dict(result.metrics) for name, result in done.results.items()},
        "main": {name: result.metrics[result.main] for name, result in done.results.items()},
        "averages": {name: mean.value for name, mean in done.averages.items()},
        "failures": done.failures,
        "left_out": done.left_out,
    }
