"""Finding and loading a task's data: a local path in any published layout, or a pinned revision from the hub.

What the loaded data are, and the checks they pass, is in ``task_data``; rows are read by ``row_layouts``.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from suwen.bench.row_layouts import (
    cmedqa_files,
    has_fields,
    is_grouped,
    read_cmedqa,
    read_grouped,
    read_pairs,
    rows_of,
    split_names,
    tables,
)
from suwen.bench.suite_tasks import LAYOUTS, Suite, SuiteError, Task
from suwen.bench.task_data import Data, DataError, Judgements, MissingData, Paired, Ranked, Source, make_ranked
from suwen.corpora.collection import Collection
from suwen.corpora.collection_layouts import find_layout
from suwen.corpora.files import CorpusError
from suwen.corpora.readers import read_documents
from suwen.corpora.record_fields import to_qrel
from suwen.corpora.tabular import records

#: Paths by task, or one folder that holds the tasks.
Places = Mapping[str, Path | str] | Path | str | None
_SUFFIXES = ("", ".jsonl", ".jsonl.gz", ".parquet", ".csv", ".tsv", ".json")


def load_data(
    suite: Suite,
    task: Task,
    places: Places = None,
    *,
    revision: str | None = None,
    offline: bool = False,
    lenient: bool = False,
) -> Data:
    """Find a task's data and load them.

    Args:
        suite: The suite the task belongs to.
        task: The task.
        places: Where to look: paths by task name, or a folder with ``<suite>/<task>`` or ``<task>`` in it. Then the
            path the suite states, then the hub.
        revision: A commit of the hub that takes the place of the pinned one.
        offline: Use the hub's cache only.
        lenient: Leave out judgements of unknown ids, repeated ones and empty documents, and make a note of it.

    Raises:
        MissingData: The data are not here; the message says how to get them.
        DataError: They are, and cannot be scored.
    """
    return load_task(task, locate(suite, task, places, revision=revision, offline=offline), lenient=lenient)


def locate(
    suite: Suite, task: Task, places: Places = None, *, revision: str | None = None, offline: bool = False
) -> Source:
    """Where the data of a task are; they are fetched from the hub where nothing local has them."""
    path = _local(suite, task, places)
    if path is None and task.path is not None:
        path = Path(task.path)
    if path is not None:
        if not path.exists():
            raise MissingData(f"Task {task.name}: there is nothing at {path}. To get it: {task.get}")
        return Source(path, task.hub.id, _downloaded_revision(path))
    return _from_hub(task, revision, offline)


def unfetchable(suite: Suite, tasks: Sequence[Task], places: Places, revision: str | None) -> list[Task]:
    """The tasks whose data are not here and cannot be fetched as they are: no copy is public, or no commit pinned."""
    found = []
    for task in tasks:
        path = _local(suite, task, places) or (None if task.path is None else Path(task.path))
        fetched = task.hub.id is not None and (revision or task.hub.revision) is not None
        if not (fetched if path is None else path.exists()):
            found.append(task)
    return found


def _local(suite: Suite, task: Task, places: Places) -> Path | None:
    if places is None:
        return None
    if isinstance(places, Mapping):
        named = places.get(task.name)
        return None if named is None else Path(named)
    root = Path(places)
    if not root.exists():
        raise MissingData(f"Task {task.name}: the data folder {root} does not exist; check --data")
    for below in (f"{suite.name}/{task.name}", task.name):
        for suffix in _SUFFIXES:
            if (path := root / f"{below}{suffix}").exists():
                return path
    holds_it = root.is_file() or find_layout(root).corpus
    return root if len(suite.tasks) == 1 and task.path is None and holds_it else None


def _downloaded_revision(path: Path) -> str | None:
    """The commit that ``hf download --local-dir`` notes beside each file it fetched."""
    notes = sorted((path / ".cache" / "huggingface" / "download").rglob("*.metadata"))
    lines = notes[0].read_text(encoding="utf-8", errors="replace").splitlines() if notes else []
    return lines[0].strip() if lines else None


def _from_hub(task: Task, revision: str | None, offline: bool) -> Source:
    try:
        hub = task.source(revision)
    except SuiteError as problem:
        raise MissingData(str(problem)) from problem
    try:
        from huggingface_hub import snapshot_download
    except ImportError as problem:
        raise MissingData(
            f"Task {task.name}: its data are not here, and fetching them needs pip install 'suwen[eval]'. "
            f"To get it by hand: {task.get}"
        ) from problem
    why = "offline"
    # The hub first, where it can be asked: its client takes a half-fetched snapshot in the cache for a whole one.
    for local in (True,) if offline or not _hub_answers() else (False, True):
        try:
            path = snapshot_download(str(hub.id), repo_type="dataset", revision=hub.revision, local_files_only=local)
            return Source(Path(path), hub.id, hub.revision)
        except Exception as problem:  # the hub client raises many kinds; each means that the data are not here
            why = type(problem).__name__
    raise MissingData(
        f"Task {task.name}: {hub.id} at {hub.revision} is neither on the disk nor could the hub give it ({why}). "
        f"To get it: {task.get}, then pass --data {task.name}=PATH"
    )


def _hub_answers() -> bool:
    """Whether the hub's name is known here; its client would try for half a minute, task after task."""
    from huggingface_hub import constants

    if getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


def load_task(task: Task, source: Source, *, lenient: bool = False) -> Data:
    """Load a task's data from a path, whichever of the published layouts it has."""
    try:
        data = _read(task, source, lenient)
        if data is not None:
            return replace(data, notes=(*data.notes, *_unlike_stated(task, data)))
    except CorpusError as problem:
        raise DataError(f"Task {task.name}: {problem}") from problem
    expected = "; or ".join(f"{name}: {LAYOUTS[name]}" for name in task.layouts)
    raise DataError(
        f"Task {task.name}: {source.path} has none of the layouts a {task.kind} task takes ({expected}). "
        f"To get it: {task.get}"
    )


def _unlike_stated(task: Task, data: Data) -> Iterator[str]:
    """Where the data are not as many as the suite states: another version, or a part of them."""
    counts = {"pairs": len(data.scores)} if isinstance(data, Paired) else {"queries": len(data.queries)}
    if isinstance(data, Ranked) and data.candidates is None:
        counts["documents"] = len(data.documents)
    for what, count in counts.items():
        stated = getattr(task.counts, what)
        if stated is not None and stated != count and not task.counts.approximate:
            yield f"the suite states {stated} {what}, these are {count}: a score may not compare with the published one"


def _read(task: Task, source: Source, lenient: bool) -> Data | None:
    """The data by the first layout that fits; None where none does."""
    path = source.path
    if task.kind != "sts":
        if path.is_dir() and find_layout(path).corpus:
            return _read_collection(task, source, lenient)
        if parts := cmedqa_files(path, task.split):
            return read_cmedqa(task, source, parts, lenient)
    files = tables(path, task.split)
    if files and task.kind == "sts":
        return read_pairs(task, source, files)
    return read_grouped(task, source, files, lenient) if files and is_grouped(files) else None


def _read_collection(task: Task, source: Source, lenient: bool) -> Ranked:
    """BEIR's layout, CMIRB's, and MTEB's parquet: whatever a collection opens."""
    collection = Collection.open(source.path)
    judgements = Judgements(lenient)
    for file in _qrels_files(collection, task.split):
        for place, record in records(file):
            judgements.add(to_qrel(record, place), place)
    left_out: list[str] = []
    documents = read_documents(source.path, format="collection", on_skip=left_out.append if lenient else None)
    # A space, as BEIR and MTEB join them: published scores were made so.
    texts = [(one.id, f"{one.title} {one.text}" if one.title else one.text) for one in documents]
    notes = [f"{len(left_out)} records of the corpus could not be used, the first: {left_out[0]}"] if left_out else []
    queries = ((query.id, query.text) for query in collection.queries())
    ranked = make_ranked(
        task.name,
        source,
        texts,
        queries,
        judgements,
        candidates=_by_query(task, source.path, "top_ranked") if task.kind == "rerank" else None,
        rerank=task.kind == "rerank",
        notes=notes,
    )
    excluded = _by_query(task, source.path, "excluded")
    return replace(ranked, excluded=excluded) if excluded else ranked


def _qrels_files(collection: Collection, split: str) -> list[Path]:
    for name in split_names(split):
        if name in collection.layout.qrels:
            return collection.layout.qrels[name]
    every = [path for paths in collection.layout.qrels.values() for path in paths]
    if every and all(path.name.split(".")[0] == "qrels" for path in every):
        return every  # CMIRB has one file and names no split
    there = ", ".join(collection.splits()) or "none"
    raise DataError(f"{collection.path}: no judgements for the split {split!r}; the splits here are: {there}")


def _by_query(task: Task, path: Path, name: str) -> dict[str, list[str]] | None:
    """Documents by query: MTEB's candidates of a reranking (``top_ranked``), or what is not counted (``excluded``)."""
    files = tables(path / name, task.split) if (path / name).is_dir() else []
    files = files or [file for file in chain(path.glob(f"{name}*"), path.glob(f"data/{name}*")) if file.is_file()]
    if not files:
        return None
    if not has_fields(files, ("query-id", "query_id"), ("corpus-ids", "corpus_ids")):
        raise DataError(f"{files[0]}: {name} needs the fields query-id and corpus-ids")
    return {
        str(record.get("query-id", record.get("query_id"))): [
            str(document) for document in record.get("corpus-ids", record.get("corpus_ids")) or []
        ]
        for _, record in rows_of(files)
    }
