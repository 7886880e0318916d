"""Exact search in blocks: memory grows with queries x depth, never with corpus x queries. Arrays only, no files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.bench.retrieval_metrics import AnyFloats, Hits, Similarity
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

Rows = npt.NDArray[np.int64]
# 256 queries against a shard of 2,048 passages are 2 MB of scores.
_QUERIES = 256


class DimensionMismatch(SuwenError):
    """Queries and documents have vectors of different width."""


class Ranks(NamedTuple):
    """Rows of the corpus per query, best first, -1 where there is none; and the middle query's milliseconds."""

    rows: Rows
    scores: AnyFloats
    query_ms: float | None = None


class PairScores(NamedTuple):
    """Which query is compared with which row of the corpus, and (once a scan is over) how similar they are."""

    queries: Rows
    documents: Rows
    scores: Vectors

    @classmethod
    def of(cls, queries: Sequence[int] | Rows, documents: Sequence[int] | Rows) -> PairScores:
        """Pairs in the order of the corpus, so that each block finds its own at once."""
        one, other = np.asarray(queries, np.int64), np.asarray(documents, np.int64)
        order = np.argsort(other, kind="stable")
        return cls(one[order], other[order], np.zeros(len(one), np.float32))


def tie_order(ids: Sequence[str]) -> Rows:
    """The place of each id in string order: of two equal scores the later id ranks first, as in trec_eval."""
    places = np.empty(len(ids), np.int64)
    places[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return places


def without(
    ranks: Ranks, queries: Sequence[str], documents: Sequence[str], excluded: Mapping[str, Sequence[str]]
) -> Ranks:
    """Rankings without the documents that are not counted for a query: what stood below them moves up."""
    if not excluded:
        return ranks
    place = {document: row for row, document in enumerate(documents)}
    rows, scores = ranks.rows.copy(), ranks.scores.copy()
    for number, query in enumerate(queries):
        out = [place[document] for document in excluded.get(query, ()) if document in place]
        kept = np.flatnonzero(~np.isin(rows[number], out)) if out else np.arange(rows.shape[1])
        count = len(kept)
        rows[number, :count], scores[number, :count] = rows[number, kept], scores[number, kept]
        rows[number, count:], scores[number, count:] = -1, 0
    return ranks._replace(rows=rows, scores=scores)


def prepared(vectors: Vectors, similarity: Similarity) -> Vectors:
    """Vectors whose dot product is the similarity; a zero vector stays zero."""
    if similarity == "dot":
        return np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def scan(
    queries: Vectors,
    blocks: Iterable[Vectors],
    ties: Rows,
    *,
    similarity: Similarity,
    depth: int,
    pairs: Sequence[PairScores] = (),
) -> tuple[Rows, Vectors]:
    """Go over the corpus once: keep the best ``depth`` rows of each query, and score the pairs asked for.

    Args:
        queries: A vector per query.
        blocks: The corpus, in order, in blocks of any size.
        ties: :func:`tie_order` of the corpus.
        similarity: Cosine or dot product.
        depth: How many rows to keep; 0 keeps none.
        pairs: Pairs whose scores are filled in.

    Returns:
        Rows and scores per query, best first; -1 where the corpus is smaller than ``depth``.

    Raises:
        DimensionMismatch: A block is of another width than the queries.
    """
    asked = prepared(queries, similarity)
    rows = np.empty((len(asked), 0), np.int64)
    scores = np.empty((len(asked), 0), np.float32)
    start = 0
    for block in blocks:
        if block.shape[1] != asked.shape[1]:
            raise DimensionMismatch(
                f"the query side gives vectors of {asked.shape[1]} dimensions and the document side of "
                f"{block.shape[1]}: they are not of one space. Name two models of one space, or one pair"
            )
        passages = prepared(block, similarity)
        for group in pairs:
            _score(group, asked, passages, start)
        if depth:
            rows, scores = _merge(asked, passages, start, rows, scores, ties, depth)
        start += len(block)
    order = np.lexsort((-ties[rows], -scores), axis=1) if rows.size else np.empty(rows.shape, np.int64)
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)


def _score(pairs: PairScores, queries: Vectors, passages: Vectors, start: int) -> None:
    first, last = np.searchsorted(pairs.documents, [start, start + len(passages)])
    for low in range(int(first), int(last), _QUERIES):
        part = slice(low, min(low + _QUERIES, int(last)))
        wanted = passages[pairs.documents[part] - start]
        pairs.scores[part] = np.einsum("ij,ij->i", queries[pairs.queries[part]], wanted)


def _merge(
    queries: Vectors, passages: Vectors, start: int, rows: Rows, scores: Vectors, ties: Rows, depth: int
) -> tuple[Rows, Vectors]:
    fresh_rows = np.arange(start, start + len(passages))
    width = min(depth, rows.shape[1] + len(passages))
    merged_rows = np.empty((len(queries), width), np.int64)
    merged_scores = np.empty((len(queries), width), np.float32)
    for low in range(0, len(queries), _QUERIES):
        part = slice(low, low + _QUERIES)
        fresh = queries[part] @ passages.T
        columns = _best(fresh, np.broadcast_to(ties[fresh_rows], fresh.shape), depth)
        both_rows = np.concatenate([rows[part], fresh_rows[columns]], axis=1)
        both_scores = np.concatenate([scores[part], np.take_along_axis(fresh, columns, axis=1)], axis=1)
        kept = _best(both_scores, ties[both_rows], depth)
        merged_rows[part] = np.take_along_axis(both_rows, kept, axis=1)
        merged_scores[part] = np.take_along_axis(both_scores, kept, axis=1)
    return merged_rows, merged_scores


def _best(scores: Vectors, ties: Rows, depth: int) -> Rows:
    """The columns of the best scores of each row, unordered; where scores tie at the edge, by ``ties``."""
    width = scores.shape[1]
    if width <= depth:
        return np.broadcast_to(np.arange(width), scores.shape)
    chosen = np.argpartition(scores, width - depth, axis=1)[:, width - depth :]
    edge = np.take_along_axis(scores, chosen, axis=1).min(axis=1, keepdims=True)
    # argpartition takes any of the tied columns; sorting whole rows is left to the few that have such ties.
    for row in np.flatnonzero((scores >= edge).sum(axis=1) > depth):
        chosen[row] = np.lexsort((ties[row], scores[row]))[-depth:]
    return chosen


def ragged(lists: Sequence[tuple[Rows, AnyFloats]], ties: Rows, depth: int | None = None) -> tuple[Rows, AnyFloats]:
    """Rankings of different length as one array: each ordered by score and tie, cut to ``depth``, padded with -1."""
    width = max((len(rows) for rows, _ in lists), default=0)
    width = width if depth is None else min(width, depth)
    all_rows = np.full((len(lists), width), -1, np.int64)
    kind: Any = np.result_type(np.float32, *(scores.dtype for _, scores in lists))
    all_scores = np.full((len(lists), width), -np.inf, kind)
    for number, (rows, scores) in enumerate(lists):
        order = np.lexsort((-ties[rows], -scores))[:width]
        all_rows[number, : len(order)] = rows[order]
        all_scores[number, : len(order)] = scores[order]
    return all_rows, all_scores


class RunView(Mapping[str, Hits]):
    """A run as the metrics take it: the ids and scores of one query at a time, made when asked for."""

    def __init__(self, ranks: Ranks, query_ids: Sequence[str], document_ids: Sequence[str]) -> None:
        self._ranks, self._documents = ranks, document_ids
        self._places = {query: place for place, query in enumerate(query_ids)}

    def __getitem__(self, query: str) -> tuple[list[str], npt.NDArray[np.float64]]:
        place = self._places[query]
        rows = self._ranks.rows[place]
        there = rows >= 0
        scores: npt.NDArray[np.float64] = self._ranks.scores[place][there].astype(np.float64)
        return [self._documents[row] for row in rows[there].tolist()], scores

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def middle_ms(
    run: Callable[[str], object], texts: Sequence[str], clock: Callable[[], float], most: int = 32
) -> float | None:
    """The median milliseconds of running texts one at a time, after one that warms up; None where none is to run."""
    chosen = texts[:most]
    if not chosen:
        return None
    run(chosen[0])
    spent = []
    for text in chosen:
        before = clock()
        run(text)
        spent.append((clock() - before) * 1000)
    return float(np.median(spent))
