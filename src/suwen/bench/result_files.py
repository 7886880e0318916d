"""Results on disk: MTEB's result JSON, TREC runs, per-query values; written whole, read back. No scoring here.

A system's folder is ``<out>/<suite>/<system>``. For each task it holds ``<task>.json`` (MTEB's form, plus what this
package knows under the key ``suwen``), which is written last, so its presence means that the others are whole:
``<task>.trec`` (the run), ``<task>.queries.jsonl`` (a line per query or pair) and ``<task>.similarities.json``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suwen.bench.exact_search import Ranks
from suwen.bench.suite_tasks import Task
from suwen.bench.task_data import Ranked
from suwen.durable import replacing
from suwen.errors import SuwenError

FORMAT = 1
LANGUAGES = {"zh": "cmn-Hans", "en": "eng-Latn"}
_QUERIES = ".queries.jsonl"
_UNSAFE = re.compile(r"[^A-Za-z0-9._#+-]+")


class ResultError(SuwenError):
    """A result file that cannot be read."""


@dataclass(frozen=True)
class Result:
    """One task of one system, as its result file holds it. Metrics go by this package's names, from 0 to 1."""

    suite: str
    system: str
    task: str
    main: str
    metrics: Mapping[str, float]
    about: Mapping[str, Any]
    path: Path

    def per_query(self) -> list[dict[str, Any]]:
        """A record per query: its id, text, metrics, first hits and relevant passages; per pair in an STS task."""
        with sidecar(self.path, _QUERIES).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def similarities(self) -> dict[str, Any] | None:
        """Similarities of positives and of negatives, for a histogram; None where the system has no vectors."""
        file = sidecar(self.path, ".similarities.json")
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def sidecar(path: Path, suffix: str) -> Path:
    """The file with another ending that belongs to a result file."""
    return path.with_name(path.name.removesuffix(".json") + suffix)


def system_folder(out: Path, suite: str, system: str) -> Path:
    """Where the results of a system lie; two names never share a folder."""
    return Path(out) / _safe(suite) / _safe(system)


def result_file(folder: Path, task: str) -> Path:
    """The result file of a task in a system's folder."""
    return folder / f"{_safe(task)}.json"


def _safe(name: str) -> str:
    plain = _UNSAFE.sub("_", name).strip("._") or "_"
    if plain == name and len(name) < 100:
        return name
    return f"{plain[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def mteb_name(metric: str) -> str:
    """A metric's name as MTEB writes it.

    >>> mteb_name("ndcg@10"), mteb_name("pearson")
    ('ndcg_at_10', 'pearson')
    """
    return metric.replace("@", "_at_")


def mteb_result(task: Task, metrics: Mapping[str, float], about: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """A result in MTEB's form; ``mteb_version`` is null, because mteb did not make it."""
    scores: dict[str, Any] = {mteb_name(name): value for name, value in metrics.items()}
    if about["similarity"] == "cosine":
        scores |= {f"cosine_{name}": metrics[name] for name in ("pearson", "spearman") if name in metrics}
    scores |= {"main_score": metrics[task.main], "hf_subset": "default", "languages": [LANGUAGES[task.language]]}
    return {
        "dataset_revision": about["data"]["revision"] or "local",
        "task_name": task.name,
        "mteb_version": None,
        "scores": {task.split: [scores]},
        "evaluation_time": seconds,
        "kg_co2_emissions": None,
        "suwen": dict(about),
    }


def write_run(file: Path, data: Ranked, ranks: Ranks, tag: str) -> None:
    """Write a TREC run: tabs between the columns, scores with all their digits."""
    tag = re.sub(r"\s+", "_", tag)

    with replacing(file) as stream:
        for number, query in enumerate(data.query_ids):
            pairs = zip(ranks.rows[number].tolist(), ranks.scores[number].tolist(), strict=True)
            hits = ((row, score) for row, score in pairs if row >= 0)
            for rank, (row, score) in enumerate(hits, 1):
                line = f"{query}\tQ0\t{data.document_ids[row]}\t{rank}\t{score!r}\t{tag}\n"
                stream.write(line.encode("utf-8", "replace"))


def read_result(path: Path) -> Result:
    """Read one result file.

    Raises:
        ResultError: It is not a result of this package.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        about = raw["suwen"]
        return Result(about["suite"], about["system"], raw["task_name"], about["main"], about["metrics"], about, path)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ResultError(f"{path} is not a result of `suwen bench run` ({problem!r}); run it again") from problem


def read_results(folder: Path | str) -> list[Result]:
    """Every finished result under a folder, by suite, system and task."""
    parts = (path.with_name(path.name.removesuffix(_QUERIES) + ".json") for path in Path(folder).rglob(f"*{_QUERIES}"))
    results = (read_result(path) for path in parts if path.is_file())
    return sorted(results, key=lambda result: (result.suite, result.system, result.task))
