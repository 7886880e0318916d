"""What a benchmark asks: tasks and suites, read from TOML files. Loading their texts and scoring live elsewhere.

The shipped suites stand in ``suites/``; a suite of one's own is a file of the same form, and ``scaffold_local`` writes
a first version of it. Instructions are given as the papers' models take them, since scores depend on them.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from suwen.bench.retrieval_metrics import RANKING, MetricError, parse
from suwen.bench.shipped import FOLDER as FOLDER
from suwen.bench.shipped import suites as suites
from suwen.curate.suite_file import SuiteTask, suite_text
from suwen.errors import SuwenError
from suwen.toml_keys import explain_keys

#: The forms on disk in which a task's texts may come.
LAYOUTS = {
    "beir": "corpus.jsonl, queries.jsonl, qrels/<split>.tsv",
    "cmteb": "C-MTEB and MTEB parquet or jsonl files, as their hub repositories hold them",
    "cmirb": "query.jsonl, corpus.jsonl, qrels.jsonl {q_id, p_id, score}",
    "care": "jsonl {query, pos: [...], neg: [...]}",
    "cmedqa": "question.csv, answer.csv and a candidates file, as the cMedQA repositories hold them",
    "pairs": "jsonl {sentence1, sentence2, score}",
    "triplets": "jsonl {anchor, positive, negatives: [...]}",
}
Layout = Literal["beir", "cmteb", "cmirb", "care", "cmedqa", "pairs", "triplets"]
Kind = Literal["retrieval", "rerank", "sts", "paraphrase"]
#: The metrics beside those of a ranking that a kind of task can be measured by.
_PAIRED = {"sts": ("pearson", "spearman"), "paraphrase": ("positive_similarity", "positive_similarity_deviation")}


class SuiteError(SuwenError):
    """A suite file that cannot be used, or a task that cannot be fetched as it stands."""


# TOML has no null: a suite says "not known" with an empty string, so that nothing is left out by oversight.
Known = Annotated[str | None, BeforeValidator(lambda value: None if value == "" else value)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BySide(_Frozen):
    """One text for the queries and one for the documents."""

    query: str
    document: str


class Hub(_Frozen):
    """A data set on the hub; ``id`` is None where there is no public copy, ``revision`` where no commit is pinned."""

    id: Known
    revision: Known

    @field_validator("revision")
    @classmethod
    def _is_a_commit(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[0-9a-f]{40}", value):
            raise ValueError(f"{value!r} is no commit; write its 40 hexadecimal digits, or an empty string if unknown")
        return value


class Counts(_Frozen):
    """How much a task holds; a count that nobody states is None. ``approximate`` marks counts printed as 7.3K."""

    queries: int | None = Field(default=None, ge=1)
    documents: int | None = Field(default=None, ge=1)
    pairs: int | None = Field(default=None, ge=1)
    relevant_per_query: float | None = Field(default=None, gt=0)
    candidates_per_query: float | None = Field(default=None, gt=0)
    positive_share: float | None = Field(default=None, gt=0, lt=1)
    approximate: bool = False


class Column(_Frozen):
    """A column of a published table (see ``published_tables``) that holds one metric of a task or an average."""

    table: int = Field(ge=1)
    column: str = Field(min_length=1)
    metric: Known = None


class Task(_Frozen):
    """One measurement: the texts, how they are put to a model, and what is scored. The first metric is the main one."""

    name: str = Field(min_length=1)
    kind: Kind
    language: Literal["zh", "en"]
    metrics: tuple[str, ...] = Field(min_length=1)
    split: str = Field(min_length=1)
    licence: str = Field(min_length=1)
    layouts: tuple[Layout, ...] = Field(min_length=1)
    get: str = Field(min_length=1)
    #: What is put before the texts of each side; empty where the benchmark uses none.
    instruction: BySide
    hub: Hub
    counts: Counts
    similarity: Literal["contract", "cosine", "dot"] = "contract"
    hyde: Literal["q2p", "t2p", "p2p", "q2t"] | None = None
    path: Known = None
    published: tuple[Column, ...] = ()
    note: str = ""

    @property
    def main(self) -> str:
        """The metric the task is ranked by."""
        return self.metrics[0]

    @model_validator(mode="after")
    def _metrics_fit(self) -> Task:
        allowed = _PAIRED.get(self.kind, ())
        for name in self.metrics:
            try:
                base, _ = parse(name)
            except MetricError as problem:
                raise ValueError(str(problem)) from problem
            if base not in allowed and (self.kind == "sts" or base not in RANKING):
                choice = ", ".join((*allowed, *(() if self.kind == "sts" else RANKING)))
                raise ValueError(f"Metric {name!r} does not measure a {self.kind} task; choose from: {choice}")
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError("a metric is named twice in metrics; name each once")
        for column in self.published:
            if column.metric not in self.metrics:
                raise ValueError(f"published column {column.column!r} holds {column.metric!r}; add it to metrics")
        return self

    def source(self, revision: str | None = None) -> Hub:
        """The hub id and the commit to fetch.

        Args:
            revision: A commit, tag or branch that takes the place of the pinned one.

        Raises:
            SuiteError: If there is no public copy, or no commit is pinned and none is given.
        """
        if self.hub.id is None:
            raise SuiteError(
                f"Task {self.name}: no public copy is known. Give a local path in one of the layouts"
                f" {', '.join(self.layouts)}. To get it: {self.get}"
            )
        if revision is None and self.hub.revision is None:
            raise SuiteError(
                f"Task {self.name}: no revision of {self.hub.id} is pinned, so a score could not be reproduced."
                f" Pass --revision COMMIT, or a local path. To get it: {self.get}"
            )
        return self.hub if revision is None else Hub.model_construct(id=self.hub.id, revision=revision)


class Average(_Frozen):
    """A named mean over tasks, each by its main metric or by the one metric named."""

    name: str = Field(min_length=1)
    over: tuple[str, ...] = Field(min_length=1)
    metric: Known = None
    published: tuple[Column, ...] = ()


class Suite(_Frozen):
    """A benchmark: its tasks and the averages it reports."""

    name: str = Field(min_length=1)
    title: str
    paper: Known
    reference: str
    #: How the paper's own models join an instruction and a text; other models bring their own contract.
    templates: BySide
    tasks: tuple[Task, ...] = Field(min_length=1)
    averages: tuple[Average, ...] = ()

    @model_validator(mode="after")
    def _names_hold_together(self) -> Suite:
        for label, names in (("task", [t.name for t in self.tasks]), ("average", [a.name for a in self.averages])):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"two {label}s are called {twice[0]!r}; give each a name of its own")
        tasks = {task.name: task for task in self.tasks}
        for average in self.averages:
            for name in average.over:
                if name not in tasks:
                    raise ValueError(f"average {average.name!r} names no task {name!r}; there are: {', '.join(tasks)}")
                if average.metric is not None and average.metric not in tasks[name].metrics:
                    raise ValueError(f"average {average.name!r} needs {average.metric!r} in the metrics of {name!r}")
        return self

    def task(self, name: str) -> Task:
        """The task of that name, or a SuiteError that lists the names there are."""
        tasks = {task.name: task for task in self.tasks}
        if name not in tasks:
            close = difflib.get_close_matches(name, tasks, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise SuiteError(f"Suite {self.name} has no task {name!r}.{meant} Choose one of: {', '.join(tasks)}.")
        return tasks[name]


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a shipped suite by its name, or a suite file by its path.

    >>> [task.name for task in load_suite("cmedteb").tasks][:2]
    ['CMedTEB-Retrieval', 'CMedTEB-Rerank']
    """
    shipped = isinstance(name_or_path, str) and name_or_path in suites()
    path = FOLDER / f"{name_or_path}.toml" if shipped else Path(name_or_path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        there = [*suites(), *(str(file) for file in path.parent.glob("*.toml"))]
        close = difflib.get_close_matches(str(path), there, n=1)
        raise SuiteError(
            f"No suite {str(name_or_path)!r} ({problem.strerror})."
            + (f" Did you mean {close[0]!r}?" if close else "")
            + f" Give the path of a suite file, or one of: {', '.join(suites())}."
        ) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise SuiteError(f"{path}: not a TOML file in UTF-8 ({problem}). Correct that line.") from problem
    try:
        suite = Suite.model_validate(data)
    except ValidationError as problem:
        unknown = "Add it (an empty string says that it is not known)."
        raise SuiteError(explain_keys(path, data, problem, unknown)) from problem
    # A relative path in a suite file is meant from that file, not from wherever the command runs.
    paths = [task.path and str((path.parent / task.path).resolve()) for task in suite.tasks]
    tasks = (task.model_copy(update={"path": anchored}) for task, anchored in zip(suite.tasks, paths, strict=True))
    return suite.model_copy(update={"tasks": tuple(tasks)})


def scaffold_local(path: str | Path, collection: str | Path) -> Suite:
    """Write a suite file for a collection of one's own (a BEIR folder) and return the suite it makes.

    One task is written per qrels file, named after the folder and the split. An existing file is never overwritten.

    Raises:
        SuiteError: If ``collection`` is not a BEIR folder, or ``path`` exists.
    """
    path, collection = Path(path), Path(collection)
    missing = [name for name in ("corpus.jsonl", "queries.jsonl") if not (collection / name).is_file()]
    splits = sorted(file.stem for file in (collection / "qrels").glob("*.tsv"))
    if missing or not splits:
        lacks = " and ".join(missing or ["a qrels/<split>.tsv"])
        raise SuiteError(f"{collection} lacks {lacks}; a collection is a folder with {LAYOUTS['beir']}.")
    folder = collection.resolve()
    tasks = [SuiteTask("retrieval", str(folder), split=split, name=f"{folder.name}-{split}") for split in splits]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(suite_text(path.stem, tasks))
    except FileExistsError as problem:
        raise SuiteError(f"{path} exists; choose another name, or remove it first.") from problem
    except OSError as problem:
        raise SuiteError(f"{path} cannot be written ({problem.strerror}); choose a folder that exists.") from problem
    return load_suite(path)
