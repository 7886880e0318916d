"""Whether benchmark queries stand in training rows: exact copies, and near ones by character 8-grams.

Only strings are compared; a paraphrase is not found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from suwen.bench.suite_tasks import Suite
from suwen.bench.task_data import Data, Paired
from suwen.bench.task_loading import Places, load_data
from suwen.choices import LEAST_SHARED
from suwen.corpora.files import CorpusError
from suwen.corpora.tabular import format_of, records
from suwen.curate.leakage import comparable
from suwen.errors import SuwenError

#: Characters of a gram.
SIZE = 8


class ContaminationError(SuwenError):
    """Training rows that cannot be read, or nothing to compare."""


class TrainingText(NamedTuple):
    """One text of a training row: the place and the field it stands in."""

    place: str
    field: str
    text: str


class Overlap(NamedTuple):
    """A query that training rows hold; ``share`` is the part of its grams found in that one text, 1 if exact."""

    query: str
    text: str
    kind: Literal["exact", "near"]
    share: float
    place: str
    field: str
    found: str


class Contamination(NamedTuple):
    """All overlaps, one per query at most, and what was compared."""

    overlaps: list[Overlap]
    queries: int
    texts: int

    @property
    def share(self) -> float:
        """The part of the queries that training rows hold."""
        return len(self.overlaps) / self.queries if self.queries else 0.0


def training_texts(
    paths: Iterable[Path | str], on_unread: Callable[[str], None] | None = None
) -> Iterator[TrainingText]:
    """The texts of training rows in jsonl, json, csv, tsv or parquet files, packed or not.

    Whatever its fields are called, every text of a row is one, in lists and objects too. What a row has in common with
    the row before it, such as an instruction, is not given again.

    Args:
        paths: The files.
        on_unread: Called with what is said of every row that holds no text; unless given, such a row is an error.

    Raises:
        ContaminationError: A file cannot be read, or none of its rows has a text.
    """
    for path in map(Path, paths):
        if format_of(path) in (None, "text"):
            raise ContaminationError(f"{path}: training rows come as .jsonl, .json, .csv, .tsv or .parquet (.gz too)")
        try:
            yield from _texts_of_file(path, on_unread)
        except CorpusError as problem:
            raise ContaminationError(str(problem)) from problem


def _texts_of_file(path: Path, on_unread: Callable[[str], None] | None) -> Iterator[TrainingText]:
    before, unread, read = set[tuple[str, str]](), "", 0
    for place, record in records(path):
        texts = dict.fromkeys(pair for name, value in record.items() for pair in _strings(str(name), value))
        yield from (TrainingText(place, *pair) for pair in texts if pair not in before)
        before, read = set(texts), read + bool(texts)
        if not texts:
            told = f"{place}: the row holds no text; its fields are {', '.join(map(str, record)) or 'none'}"
            if on_unread is None:
                raise ContaminationError(told)
            unread = unread or told
            on_unread(told)
    if not read:
        raise ContaminationError(f"{path}: nothing in it can be compared. {unread or 'It has no rows'}")


def _strings(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """The texts in a value with their fields; not by recursion, for a row may be nested as deep as it likes."""
    waiting = [(field, value)]
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, str):
            if value.strip():
                yield field, value
        elif isinstance(value, Mapping):
            waiting.extend((f"{field}.{key}", value[key]) for key in reversed(list(value)))
        elif isinstance(value, list | tuple):
            waiting.extend((field, item) for item in reversed(value))


def suite_queries(
    suite: Suite,
    tasks: Sequence[str] | None = None,
    places: Places = None,
    *,
    revision: str | None = None,
    offline: bool = False,
    lenient: bool = False,
    on_missing: Callable[[str, SuwenError], None],
) -> dict[str, str]:
    """What the tasks of a suite ask, by ``<task>/<id>``; one whose data cannot be loaded is reported and left out.

    Args:
        suite: The suite.
        tasks: Only these.
        places: As for :func:`~suwen.bench.task_loading.load_data`, and so are the options.
        revision: A commit of the hub in place of the pinned one.
        offline: Use the hub's cache only.
        lenient: Take data with unknown or repeated judgements.
        on_missing: Called with a task's name and why it is left out.
    """
    queries: dict[str, str] = {}
    for task in [suite.task(name) for name in tasks] if tasks else suite.tasks:
        try:
            data = load_data(suite, task, places, revision=revision, offline=offline, lenient=lenient)
        except SuwenError as problem:
            on_missing(task.name, problem)
            continue
        queries |= {f"{task.name}/{id_}": text for id_, text in queries_of(data).items()}
    return queries


def queries_of(data: Data) -> dict[str, str]:
    """What a task asks, by id; both sentences of each pair."""
    if isinstance(data, Paired):
        left = {f"{number}:1": text for number, text in enumerate(data.left)}
        return left | {f"{number}:2": text for number, text in enumerate(data.right)}
    return dict(zip(data.query_ids, data.queries, strict=True))


def find_overlap(
    queries: Mapping[str, str],
    texts: Iterable[TrainingText],
    *,
    size: int = SIZE,
    least: float = LEAST_SHARED,
    progress: Callable[[int, int], None] | None = None,
) -> Contamination:
    """Look for queries in training texts. Memory grows with the queries; the texts stream by.

    Args:
        queries: Texts by id.
        texts: Training texts, see :func:`training_texts`.
        size: Characters of a gram; a shorter query is compared as a whole only.
        least: The share of a query's grams that makes a text near it.
        progress: Called with the texts read and 0 (their number is not known), every thousand.

    Returns:
        For each query that is found its best overlap, exact before near.
    """
    if size < 1 or not 0 < least <= 1:
        raise ContaminationError(f"grams of {size} characters, share {least}: give at least 1, and a share up to 1")
    whole: defaultdict[str, list[str]] = defaultdict(list)
    holders: defaultdict[str, list[str]] = defaultdict(list)
    grams: dict[str, int] = {}
    for query, text in queries.items():
        compared = comparable(text)
        if compared:
            whole[compared].append(query)
        pieces = _grams(compared, size)
        grams[query] = len(pieces)
        for piece in pieces:
            holders[piece].append(query)
    best: dict[str, Overlap] = {}
    count = 0
    for count, item in enumerate(texts, 1):
        _compare(item, queries, whole, holders, grams, size, least, best)
        if progress is not None and count % 1000 == 0:
            progress(count, 0)
    order = {query: number for number, query in enumerate(queries)}
    return Contamination(sorted(best.values(), key=lambda overlap: order[overlap.query]), len(queries), count)


def _compare(
    item: TrainingText,
    queries: Mapping[str, str],
    whole: Mapping[str, list[str]],
    holders: Mapping[str, list[str]],
    grams: Mapping[str, int],
    size: int,
    least: float,
    best: dict[str, Overlap],
) -> None:
    compared = comparable(item.text)
    same = whole.get(compared, [])
    for query in same:
        _keep(best, Overlap(query, queries[query], "exact", 1.0, item.place, item.field, item.text))
    hits = Counter(query for piece in _grams(compared, size) for query in holders.get(piece, ()))
    for query, shared in hits.items():
        share = shared / grams[query]
        if share >= least and query not in same:
            _keep(best, Overlap(query, queries[query], "near", share, item.place, item.field, item.text))


def _keep(best: dict[str, Overlap], overlap: Overlap) -> None:
    known = best.get(overlap.query)
    if known is None or (overlap.kind == "exact", overlap.share) > (known.kind == "exact", known.share):
        best[overlap.query] = overlap


def _grams(text: str, size: int) -> set[str]:
    return {text[start : start + size] for start in range(len(text) - size + 1)}
