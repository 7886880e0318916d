"""The pool: the union of what several retrievers find for each query, with who found it where. Judges nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from suwen.corpora.collection import Collection
from suwen.corpora.records import Query
from suwen.corpora.run_files import named_run, read_ranking
from suwen.corpora.tabular import records
from suwen.durable import replacing
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.texts import Texts
from suwen.jury.verdicts import JuryProblem
from suwen.retrieve.ingest import IngestProgress
from suwen.retrieve.ranking import Mode, SearchError
from suwen.retrieve.retriever import Index
from suwen.text.fold import fold

Duplicates = Literal["error", "keep"]
_SHOWN = 3


class PoolProblem(JuryProblem):
    """A pool cannot be made, or cannot be read."""


class Found(NamedTuple):
    """Where one retriever put a passage; ranks count from 1."""

    retriever: str
    rank: int
    score: float


class Candidate(NamedTuple):
    """A pooled passage, by its id in the collection, and who found it."""

    passage_id: str
    found: tuple[Found, ...]


class PooledQuery(NamedTuple):
    """A query with its candidates."""

    id: str
    text: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Retriever:
    """Something that finds passages.

    Attributes:
        name: What the pool calls it.
        search: Given a query's text and a depth: ids of passages and scores, best first.
        by_id: Whether it is given the query's id in place of its text: it has its findings already.
    """

    name: str
    search: Callable[[str, int], Sequence[tuple[str, float]]]
    by_id: bool = False


@dataclass
class PoolReport:
    """What a pool holds, counted as queries go into it.

    Attributes:
        queries: Queries in it.
        pairs: Pairs of a query and a passage.
        passages: Distinct passages.
        alone: Of each retriever, the pairs that it alone found.
        empty: Queries nothing was found for; they are not in the pool.
    """

    queries: int = 0
    pairs: int = 0
    passages: int = 0
    alone: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)

    def take(self, pooled: PooledQuery) -> None:
        """Count a query in."""
        if not pooled.candidates:
            self.empty.append(pooled.id)
            return
        self.queries += 1
        self.pairs += len(pooled.candidates)
        for candidate in pooled.candidates:
            for one in candidate.found:
                self.alone[one.retriever] = self.alone.get(one.retriever, 0) + (len(candidate.found) == 1)


def index_retriever(index: Index, mode: Mode = "dense", tier: str | None = None, name: str | None = None) -> Retriever:
    """A retriever over an index: words, meaning or both. A document counts once, by its best passage."""
    label = name or (mode if mode == "lexical" else f"{mode}:{tier or index.pair.default_tier}")

    def search(query: str, depth: int) -> list[tuple[str, float]]:
        hits = index.search(query, depth, mode=mode, tier=tier, per_document=True)
        return [(hit.document_id, hit.score) for hit in hits]

    return Retriever(label, search)


def run_retriever(spec: str) -> Retriever:
    """A retriever that found its passages elsewhere, from ``NAME=FILE`` or ``FILE``: see ``corpora.run_files``."""
    name, path = named_run(spec)
    ranking = read_ranking(path)
    return Retriever(name, lambda query, depth: ranking.get(query, [])[:depth], by_id=True)


def open_retrievers(specs: Sequence[str], index: Path | None, stack: ExitStack) -> list[Retriever]:
    """Retrievers from ``MODE[:TIER][@INDEX]``, such as ``lexical``, ``dense:static`` or ``dense@other-index``.

    Args:
        specs: The retrievers.
        index: The index of those that name none.
        stack: Closes the indexes.
    """
    opened: dict[Path, Index] = {}
    made: list[Retriever] = []
    for spec in specs:
        what, _, where = spec.partition("@")
        mode, _, tier = what.partition(":")
        folder = Path(where) if where else index
        if mode not in get_args(Mode) or folder is None:
            raise PoolProblem(
                f"{spec!r} is no retriever: write MODE, MODE:TIER or MODE:TIER@INDEX, where MODE is one of "
                f"{', '.join(get_args(Mode))}; without @INDEX an index must be given"
            )
        if folder not in opened:
            opened[folder] = stack.enter_context(Index.open(folder))
        made.append(index_retriever(opened[folder], mode, tier or None, spec))  # type: ignore[arg-type]
    return made


def index_collection(
    collection: Collection, folder: Path, *, pair: Path | None = None, progress: IngestProgress | None = None
) -> None:
    """Bring a collection into an index, made where there is none; what is there already is not encoded again."""
    with Index.open_or_create(folder, pair=pair) as index:
        # The folder is the pool's own: what another collection left there would be graded for this one's queries.
        index.add(collection.documents(), mirror=True, prune=True, progress=progress)


def pool_queries(
    queries: Iterable[Query],
    retrievers: Sequence[Retriever],
    depth: int,
    also: Mapping[str, Iterable[str]] | None = None,
) -> Iterator[PooledQuery]:
    """The pool of each query, one at a time.

    Args:
        queries: The queries.
        retrievers: Who finds candidates.
        depth: How many of each retriever's.
        also: More candidates by query, such as the original positives of a benchmark, found by ``qrels``.
    """
    if not retrievers or depth < 1:
        raise PoolProblem("a pool needs at least one retriever and a depth of at least 1: name them")
    names = [retriever.name for retriever in retrievers]
    if len(set(names)) < len(names):
        raise PoolProblem(f"a retriever is named twice in {', '.join(names)}: name each once")
    for query in queries:
        places: dict[str, list[Found]] = {}
        for retriever in retrievers:
            for rank, (passage, score) in enumerate(_searched(retriever, query, depth), 1):
                places.setdefault(passage, []).append(Found(retriever.name, rank, round(float(score), 6)))
        for passage in (also or {}).get(query.id, ()):
            places.setdefault(passage, []).append(Found("qrels", 0, 0.0))
        yield PooledQuery(query.id, query.text, tuple(Candidate(id_, tuple(by)) for id_, by in places.items()))


def _searched(retriever: Retriever, query: Query, depth: int) -> Sequence[tuple[str, float]]:
    try:
        hits = retriever.search(query.id if retriever.by_id else query.text, depth)
    except SearchError as problem:
        raise PoolProblem(f"query {query.id!r} cannot be searched: {problem}") from None
    if twice := _twice((passage, passage) for passage, _ in hits):
        raise PoolProblem(f"{retriever.name} finds passages twice for query {query.id!r}: {_named(twice)}; correct it")
    return hits


def check_queries(queries: Sequence[Query], duplicates: Duplicates = "error") -> None:
    """Raise ``PoolProblem`` where there is no query, an id comes twice, or (unless kept) a text does."""
    if not queries:
        raise PoolProblem("there are no queries to pool for: add queries.jsonl to the collection, or change the split")
    if twice := _twice((query.id, query.id) for query in queries):
        raise PoolProblem(f"query ids come more than once: {_named(twice)}; make them unique")
    if duplicates == "error" and (twice := _twice((fold(query.text).strip(), query.id) for query in queries)):
        raise PoolProblem(
            f"queries ask what an earlier one asks, word for word: {_named(twice)}; remove them, or keep them on "
            "purpose (--duplicates keep)"
        )


def _twice(keyed: Iterable[tuple[str, str]]) -> list[str]:
    seen: set[str] = set()
    again = []
    for key, id_ in keyed:
        if key in seen:
            again.append(id_)
        seen.add(key)
    return again


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_SHOWN]) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")


def write_pool(
    path: Path,
    texts: Path,
    collection: Collection,
    retrievers: Sequence[Retriever],
    *,
    depth: int,
    split: str | None = None,
    queries: int | None = None,
    duplicates: Duplicates = "error",
    originals: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PoolReport:
    """Pool a collection's queries into a file of JSON lines, and keep the texts beside it; whole or not at all.

    Args:
        path: The pool, one line a query.
        texts: The file of the texts.
        collection: Queries and documents.
        retrievers: Who finds candidates.
        depth: How many of each retriever's.
        split: Only the queries that this split judges.
        queries: Only so many, the first.
        duplicates: Whether two queries of one text are an error.
        originals: Add the passages the collection's own qrels call positive.
        progress: Called with how many queries are done, of how many.
    """
    asked = collection.queries(split)[:queries]
    check_queries(asked, duplicates)
    judged = collection.qrels(split) if originals else {}
    also = {query: [id_ for id_, grade in grades.items() if grade > 0] for query, grades in judged.items()}
    report, unfilled = PoolReport(), texts.with_name(f".{texts.name}.unfinished")
    unfilled.unlink(missing_ok=True)
    with replacing(path) as file:
        with Texts(unfilled, create=True) as store:
            for number, pooled in enumerate(pool_queries(asked, retrievers, depth, also), 1):
                report.take(pooled)
                if pooled.candidates:
                    store.want(candidate.passage_id for candidate in pooled.candidates)
                    found = [
                        {"passage_id": c.passage_id, "found": [f._asdict() for f in c.found]} for c in pooled.candidates
                    ]
                    line = {"query_id": pooled.id, "query": pooled.text, "candidates": found}
                    file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
                if progress is not None:
                    progress(number, len(asked))
            if not report.pairs:
                raise PoolProblem(
                    "the pool is empty: no retriever found anything for any query; is the index filled, and are the "
                    "runs of these queries?"
                )
            store.fill(collection.documents())
            report.passages = len(store)
        unfilled.replace(texts)
    return report


def pool_collection(
    folder: JuryFolder,
    collection: Collection,
    retrievers: Sequence[str],
    *,
    runs: Sequence[str] = (),
    index: Path | None = None,
    pair: Path | None = None,
    indexing: IngestProgress | None = None,
    **more: Any,
) -> PoolReport:
    """Pool a collection into a jury's folder.

    Args:
        folder: Where the pool and its texts go.
        collection: Queries and documents.
        retrievers: See :func:`open_retrievers`.
        runs: See :func:`run_retriever`.
        index: An index of the collection; one is made in the folder unless given, where a retriever needs it.
        pair: The pair to make it with.
        indexing: Called with the documents read and the passages encoded.
        **more: See :func:`write_pool`.
    """
    found = [run_retriever(spec) for spec in runs]
    if index is None and any("@" not in spec for spec in retrievers):
        index = folder.index
        index_collection(collection, index, pair=pair, progress=indexing)
    with ExitStack() as stack:
        opened = [*open_retrievers(retrievers, index, stack), *found]
        return write_pool(folder.pool, folder.texts, collection, opened, **more)


def read_pool(path: Path | str) -> Iterator[PooledQuery]:
    """Read a pool one query at a time; an empty one, a query or a passage that comes twice is an error."""
    path = Path(path)
    if not path.is_file() or not path.stat().st_size:
        raise PoolProblem(f"{path}: there is no pool here, or an empty one; make it with `suwen jury pool`")
    seen: set[str] = set()
    for place, record in records(path, "jsonl"):
        pooled = _pooled(record, place)
        if pooled.id in seen:
            raise PoolProblem(f"{place}: the query {pooled.id!r} was pooled before; keep it once")
        seen.add(pooled.id)
        yield pooled
    if not seen:
        raise PoolProblem(f"{path}: the pool is empty; make it with `suwen jury pool`")


def _pooled(record: Mapping[str, Any], place: str) -> PooledQuery:
    try:
        candidates = tuple(
            Candidate(str(one["passage_id"]), tuple(Found(**where) for where in one.get("found", ())))
            for one in record["candidates"]
        )
        pooled = PooledQuery(str(record["query_id"]), str(record["query"]), candidates)
    except (AttributeError, KeyError, TypeError) as problem:
        raise PoolProblem(f"{place}: this is no pooled query ({problem!r}); make it with `suwen jury pool`") from None
    if twice := _twice((candidate.passage_id,) * 2 for candidate in candidates):
        raise PoolProblem(f"{place}: passages are pooled twice: {_named(twice)}; keep each once")
    if not candidates or not pooled.text.strip():
        raise PoolProblem(f"{place}: the query {pooled.id!r} has no text or no candidates; leave it out")
    return pooled
