"""Two systems over the tasks they share: means, paired statistics, and the queries where they differ. Draws nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from statistics import fmean
from typing import Any, NamedTuple

from typing_extensions import override

from suwen.bench.paired_statistics import Interval, TTest, mean_bootstrap, paired_bootstrap, paired_t_test
from suwen.bench.result_files import Result
from suwen.bench.retrieval_metrics import parse
from suwen.errors import SuwenError

#: Values nearer than this are a tie: sums taken in another order differ in the last digits.
_SAME = 1e-9
#: Of these metrics less is better, so a win is a lower value.
_LESS_IS_BETTER = ("hole",)


class CompareError(SuwenError):
    """Systems or tasks that cannot be compared."""


class Hit(NamedTuple):
    """A passage as a reader sees it: its id, the beginning of its text, and its grade, None where nobody judged it."""

    id: str
    text: str
    grade: int | None


class QueryDifference(NamedTuple):
    """One query under both systems: its values, what each found first, and what it should have found."""

    query: str
    text: str
    a: float
    b: float
    hits_a: list[Hit]
    hits_b: list[Hit]
    relevant: list[Hit]

    @property
    def difference(self) -> float:
        """By how much the first system's value is the larger one."""
        return self.a - self.b


@dataclass(frozen=True)
class TaskComparison:
    """Two systems on one task by one metric; `a - b` throughout.

    ``test`` and ``interval`` are None where they cannot be had, and ``note`` says why: a correlation over pairs has no
    value per query, and one query is no sample. ``wins`` (of a over b) and ``losses`` come largest difference first.
    """

    suite: str
    task: str
    metric: str
    a: float
    b: float
    queries: int
    test: TTest | None
    interval: Interval | None
    wins: list[QueryDifference]
    losses: list[QueryDifference]
    ties: int
    note: str = ""
    pairs: Sequence[QueryDifference] = ()

    @property
    def difference(self) -> float:
        """The difference of the two means."""
        return self.a - self.b


@dataclass(frozen=True)
class Comparison:
    """Two systems over every task that both have a result of; ``left_out`` says why another was not compared."""

    a: str
    b: str
    tasks: list[TaskComparison]
    left_out: dict[str, str] = field(default_factory=dict)

    def mean(self, confidence: float = 0.95, samples: int = 10_000, seed: int = 0) -> Interval | None:
        """The difference of the means over tasks, queries drawn within each; None of one task or of pairs."""
        sides = [
            ([pair.a for pair in task.pairs], [pair.b for pair in task.pairs]) for task in self.tasks if task.interval
        ]
        if len(self.tasks) < 2 or len(sides) < len(self.tasks):
            return None
        return mean_bootstrap(sides, confidence=confidence, samples=samples, seed=seed)


@dataclass(frozen=True)
class _Averaged(Result):
    """Runs of one system with several seeds: each query has its mean values over them, and the first one's hits."""

    runs: Sequence[Result] = ()

    @override
    def per_query(self) -> list[dict[str, Any]]:
        first, *others = [{row["query"]: row for row in run.per_query()} for run in self.runs]
        return [
            row | {"metrics": _means([row["metrics"], *(other[query]["metrics"] for other in others)])}
            for query, row in first.items()
        ]


def _means(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(one[name] for one in metrics) for name in metrics[0] if all(name in one for one in metrics)}


def system_names(results: Iterable[Result]) -> list[str]:
    """The systems that have results, in the order in which they come."""
    return list(dict.fromkeys(result.system for result in results))


def compare(
    results: Sequence[Result],
    a: str,
    b: str,
    *,
    metric: str | None = None,
    tasks: Sequence[str] = (),
    confidence: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems, query by query, on each task that both were run on.

    Args:
        results: What :func:`suwen.bench.result_files.read_results` gives.
        a: The first system, as :func:`resolve` reads it; with a ``*`` all whose names fit, averaged query by query.
        b: The second.
        metric: The metric to compare by; each task's main metric when None.
        tasks: Only these; all when empty.
        confidence: Of the bootstrap interval.
        samples: Resamples of the bootstrap.
        seed: Of the bootstrap.

    Raises:
        CompareError: A system has no results, both are the same, or they share no task that can be compared.
    """
    if metric is not None:
        parse(metric)
    if unknown := sorted(set(tasks) - {result.task for result in results}):
        raise CompareError(
            f"no results of task {unknown[0]!r}; there are: {_listed(sorted({result.task for result in results}))}"
        )
    results = [result for result in results if not tasks or result.task in tasks]
    a, b = resolve(results, a), resolve(results, b)
    ours, theirs = _of(results, a), _of(results, b)
    if a == b:
        raise CompareError(f"{a} cannot be compared with itself; name two systems: {_listed(system_names(results))}")
    done = Comparison(a, b, [])
    for key, one in ours.items():
        other = theirs.get(key)
        why = f"{b} has no result" if other is None else _unfit(one, other, metric or one.main)
        if other is None or why:
            done.left_out[f"{one.suite}/{one.task}"] = why
        else:
            done.tasks.append(_task(one, other, metric or one.main, confidence, samples, seed))
    done.left_out.update({f"{r.suite}/{r.task}": f"{a} has no result" for key, r in theirs.items() if key not in ours})
    if not done.tasks:
        reasons = "; ".join(f"{task}: {why}" for task, why in done.left_out.items())
        raise CompareError(f"{a} and {b} share no task that can be compared ({reasons}); run both on the same suite")
    return done


def resolve(results: Sequence[Result], system: str) -> str:
    """The name of a system: as its results have it, or as it was asked for (``pair:models/mine``) if that is one.

    Raises:
        CompareError: No system is called that, or several are.
    """
    names = system_names(results)
    if not names:
        raise CompareError("There are no results there; name the folder that `suwen bench run --out FOLDER` wrote to")
    if system in names or any(fnmatchcase(name, system) for name in names):
        return system
    asked = system_names(result for result in results if result.about.get("spec") == system)
    if len(asked) == 1:
        return asked[0]
    said = f"{system!r} stands for several systems" if asked else f"No results of system {system!r}"
    raise CompareError(f"{said}; name one of: {_listed(asked or names)}")


def _of(results: Sequence[Result], system: str) -> dict[tuple[str, str], Result]:
    """The system's result of each task that all its runs have: of one alone as it is."""
    if any(result.system == system for result in results):
        return {(result.suite, result.task): result for result in results if result.system == system}
    runs: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if fnmatchcase(result.system, system):
            runs.setdefault((result.suite, result.task), []).append(result)
    most = max(map(len, runs.values()))
    return {key: _average(system, found) for key, found in runs.items() if len(found) == most}


def _average(system: str, runs: Sequence[Result]) -> Result:
    first = runs[0]
    if any(_unfit(first, other, first.main) for other in runs[1:]):
        raise CompareError(f"the runs of {system} on {first.task} were scored on different data; run them again")
    means = _means([run.metrics for run in runs])
    return _Averaged(first.suite, system, first.task, first.main, means, first.about, first.path, runs)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none; make some with `suwen bench run`"


def _unfit(one: Result, other: Result, metric: str) -> str:
    """Why two results cannot be compared; empty where they can."""
    if one.about.get("data_sha256") != other.about.get("data_sha256"):
        return "the two were scored on different data; run both again on the same files"
    lacking = [result.system for result in (one, other) if metric not in result.metrics]
    if lacking:
        return f"{' and '.join(lacking)} has no {metric}; there are: {', '.join(one.metrics)}"
    return ""


def _task(one: Result, other: Result, metric: str, confidence: float, samples: int, seed: int) -> TaskComparison:
    differences = _differences(one, other, metric)
    test, interval, note = None, None, ""
    if len(differences) > 1:
        left, right = [pair.a for pair in differences], [pair.b for pair in differences]
        test = paired_t_test(left, right)
        interval = paired_bootstrap(left, right, confidence=confidence, samples=samples, seed=seed)
    elif differences:
        note = "one query is too few for a test"
    else:
        note = f"{metric} is one number of all pairs: there is no value per query to test"
    ahead = [pair for pair in differences if pair.difference > _SAME]
    behind = [pair for pair in differences if pair.difference < -_SAME]
    wins, losses = (behind, ahead) if parse(metric)[0] in _LESS_IS_BETTER else (ahead, behind)
    return TaskComparison(
        suite=one.suite,
        task=one.task,
        metric=metric,
        a=one.metrics[metric],
        b=other.metrics[metric],
        queries=len(differences),
        test=test,
        interval=interval,
        wins=sorted(wins, key=lambda pair: -abs(pair.difference)),
        losses=sorted(losses, key=lambda pair: -abs(pair.difference)),
        ties=len(differences) - len(wins) - len(losses),
        note=note,
        pairs=differences,
    )


def _differences(one: Result, other: Result, metric: str) -> list[QueryDifference]:
    theirs = {row["query"]: row for row in other.per_query()}
    return [
        QueryDifference(
            query=row["query"],
            text=row["text"],
            a=row["metrics"][metric],
            b=theirs[row["query"]]["metrics"][metric],
            hits_a=_hits(row, "hits"),
            hits_b=_hits(theirs[row["query"]], "hits"),
            relevant=_hits(row, "relevant"),
        )
        for row in one.per_query()
        if metric in row["metrics"]
    ]


def _hits(row: Mapping[str, Any], key: str) -> list[Hit]:
    return [Hit(hit["id"], hit["text"], hit["grade"]) for hit in row.get(key, [])]


def as_json(comparison: Comparison, *, most: int | None = None) -> dict[str, Any]:
    """A comparison as plain data for a JSON document; at most ``most`` wins and losses of each task."""

    def plain(task: TaskComparison) -> dict[str, Any]:
        return {
            "suite": task.suite,
            "task": task.task,
            "metric": task.metric,
            "a": task.a,
            "b": task.b,
            "difference": task.difference,
            # A t of infinity is no JSON number; p is 0 then and says it.
            "p": None if task.test is None else task.test.p,
            "interval": None if task.interval is None else task.interval._asdict(),
            "queries": task.queries,
            "wins": len(task.wins),
            "losses": len(task.losses),
            "ties": task.ties,
            "note": task.note,
            "won": [_plain_query(pair) for pair in task.wins[:most]],
            "lost": [_plain_query(pair) for pair in task.losses[:most]],
        }

    mean = comparison.mean()
    return {
        "a": comparison.a,
        "b": comparison.b,
        "mean": None if mean is None else mean._asdict(),
        "tasks": [plain(task) for task in comparison.tasks],
        "left_out": comparison.left_out,
    }


def _plain_query(pair: QueryDifference) -> dict[str, Any]:
    nested = {key: [hit._asdict() for hit in getattr(pair, key)] for key in ("hits_a", "hits_b", "relevant")}
    return {**pair._asdict(), **nested, "difference": pair.difference}
