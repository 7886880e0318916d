"""Hard negatives from a search: what ranks high for a query and is not its answer. The search is brought by the caller.

A candidate that scores nearly as high as the positive is more often an unmarked answer than a wrong one (CARE section
4.1; NV-Retriever's "percentage of the positive"), so it is left out, as are copies of the positive worded alike. Rows
stream through; what is kept in memory is one batch of them and their hits.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.corpora.training_rows import TrainingRow, read_training_rows, write_training_rows
from suwen.curate.leakage import comparable
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.retrieve.ranking import Mode
    from suwen.retrieve.retriever import Index

_SHINGLE = 3


class MiningError(SuwenError):
    """Settings that can find no negative, or vectors that do not fit their texts."""


class Found(NamedTuple):
    """A text that a search found, and how well it matches."""

    text: str
    score: float


#: Finds for each query up to so many texts, best first.
Search = Callable[[list[str], int], list[list[Found]]]
#: Turns texts into vectors, one row each.
Encode = Callable[[list[str]], npt.NDArray[Any]]


@dataclass(frozen=True)
class _Window:
    """Which candidates may be negatives: the arguments of :func:`mine_negatives`, checked."""

    first_rank: int
    last_rank: int
    margin: float | None
    count: int
    near_duplicate: float

    def __post_init__(self) -> None:
        if not 1 <= self.first_rank <= self.last_rank:
            raise MiningError(f"ranks {self.first_rank} to {self.last_rank}: give 1 <= first_rank <= last_rank")
        if self.count < 1:
            raise MiningError(f"count {self.count}: ask for at least one negative")
        if self.margin is not None and not 0 < self.margin <= 1:
            raise MiningError(f"margin {self.margin}: give a part of the positive's score, above 0 up to 1, or None")
        if not 0 < self.near_duplicate <= 1:
            raise MiningError(f"near_duplicate {self.near_duplicate}: give a similarity above 0 and up to 1")


def mine_negatives(
    rows: Iterable[TrainingRow],
    search: Search,
    *,
    first_rank: int = 5,
    last_rank: int = 100,
    margin: float | None = 0.95,
    count: int = 8,
    near_duplicate: float = 0.8,
    seed: int = 0,
    batch: int = 256,
    progress: Callable[[int], None] | None = None,
) -> Iterator[TrainingRow]:
    """Add negatives to rows, one row out for each row in, in order.

    The positive's score is that of the hit with its text, or else the row's own ``pos_scores``. Where neither is there
    and a margin is asked for, nothing can be told from the positive and the row passes unchanged: a row whose positive
    is not found down to ``last_rank`` is noise as often as it is hard. The row's own negatives stay, in front.

    Args:
        rows: Training rows.
        search: See :func:`search_index` and :class:`VectorSearch`.
        first_rank: The first rank that is looked at, 1 being the best hit.
        last_rank: The last rank that is looked at.
        margin: The highest score a negative may have, as a part of the lowest-scoring positive's; None for any.
        count: How many negatives are drawn for a row, where there are as many.
        near_duplicate: Jaccard similarity of character shingles from which two texts count as one.
        seed: For the draw. A row draws by its number, so that batches of any size draw the same.
        batch: Rows searched at once.
        progress: Called with the rows done.

    Yields:
        The rows with ``neg`` filled, and ``pos_scores`` and ``neg_scores`` where every text of the part has a score.
    """
    window = _Window(first_rank, last_rank, margin, count, near_duplicate)
    stream, done = iter(rows), 0
    while part := list(islice(stream, batch)):
        hits = search([row.query for row in part], last_rank)
        for number, (row, found) in enumerate(zip(part, hits, strict=True), done):
            yield _mined(row, found[:last_rank], window, random.Random(f"{seed}:{number}"))
        done += len(part)
        if progress is not None:
            progress(done)


def mine_file(source: Path, to: Path, search: Search, **window: Any) -> dict[str, int]:
    """Add negatives to a file of training rows, as :func:`mine_negatives` does; what there was and is, counted."""
    counts = {"rows": 0, "negatives": 0, "rows_without_a_negative": 0}

    def counted() -> Iterator[TrainingRow]:
        for row in mine_negatives(read_training_rows(source), search, **window):
            counts["rows"] += 1
            counts["negatives"] += len(row.neg)
            counts["rows_without_a_negative"] += not row.neg
            yield row

    write_training_rows(to, counted())
    return counts


def _mined(row: TrainingRow, hits: Sequence[Found], window: _Window, draw: random.Random) -> TrainingRow:
    scores = {comparable(hit.text): hit.score for hit in reversed(hits)}
    pos_scores = row.pos_scores or _known(row.pos, scores)
    marks = [scores[text] for text in map(comparable, row.pos) if text in scores] or list(pos_scores)
    if window.margin is not None and not marks:
        return row
    limit = _limit(min(marks), window.margin) if window.margin is not None else None
    candidates = [hit for hit in hits[window.first_rank - 1 :] if limit is None or hit.score <= limit]
    draw.shuffle(candidates)
    fresh = sorted(_distinct(candidates, row, window), key=lambda hit: -hit.score)
    own = row.neg_scores or _known(row.neg, scores)
    complete = len(own) == len(row.neg)
    return row._replace(
        neg=(*row.neg, *(hit.text for hit in fresh)),
        pos_scores=pos_scores,
        neg_scores=(*own, *(hit.score for hit in fresh)) if complete else (),
    )


def _limit(positive: float, margin: float) -> float:
    """The margin's part of a score; of one below zero (a bad match by cosine) it must lie lower, not higher."""
    return positive - (1 - margin) * abs(positive)


def _known(texts: Sequence[str], scores: dict[str, float]) -> tuple[float, ...]:
    """The scores of texts, where all of them were found; else none."""
    found = [scores.get(comparable(text)) for text in texts]
    return tuple(score for score in found if score is not None) if None not in found else ()


def _distinct(candidates: Iterable[Found], row: TrainingRow, window: _Window) -> Iterator[Found]:
    """Candidates that are neither copies nor near copies of the row's texts, nor of each other."""
    taken = [shingles(text) for text in (row.query, *row.pos, *row.neg)]
    count = 0
    for hit in candidates:
        if count == window.count:
            return
        own = shingles(hit.text)
        if own and all(similarity(own, other) < window.near_duplicate for other in taken):
            taken.append(own)
            count += 1
            yield hit


def shingles(text: str) -> frozenset[str]:
    """The runs of three letters or digits in a text, folded; a shorter text is its own only one.

    >>> sorted(shingles("高血压 患者"))
    ['压患者', '血压患', '高血压']
    """
    compared = comparable(text)
    if len(compared) <= _SHINGLE:
        return frozenset([compared] if compared else [])
    return frozenset(compared[at : at + _SHINGLE] for at in range(len(compared) - _SHINGLE + 1))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard similarity: what two sets share, as a part of what either has.

    >>> similarity(frozenset("abc"), frozenset("bcd"))
    0.5
    """
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def look_alikes(names: Sequence[str], count: int) -> Callable[[str], list[str]]:
    """A search for names by their letters: those that share the largest part of their character pairs with a text.

    For terms, where the wrong answer to learn from is the name that differs in one word.

    >>> look_alikes(["左肺切除术", "右肺切除术", "心脏移植术"], 2)("左肺切除")
    ['左肺切除术', '右肺切除术']
    """
    pieces = [_pairs(name) for name in names]
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for number, piece in enumerate(pieces):
        for pair in piece:
            holders[pair].append(number)

    def search(text: str) -> list[str]:
        own = _pairs(text)
        shared = Counter(number for pair in own for number in holders.get(pair, ()))
        ranked = sorted(shared, key=lambda number: (-shared[number] / len(own | pieces[number]), number))
        return [names[number] for number in ranked[:count]]

    return search


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text) - 1)}


def search_index(index: Index, tier: str | None = None, *, mode: Mode = "dense") -> Search:
    """Search an index of passages.

    Args:
        index: Open, over the texts that negatives may come from.
        tier: The query encoder; the pair's default when not given.
        mode: ``dense`` gives similarities, which a margin is meant for. ``lexical`` scores have a margin of their own
            kind; the scores of ``hybrid`` are relative to each query, so mine with ``margin=None`` there.
    """

    def search(queries: list[str], k: int) -> list[list[Found]]:
        return [
            [Found(hit.text, hit.score) for hit in index.search(query, k, mode=mode, tier=tier)] for query in queries
        ]

    return search


class VectorSearch:
    """Exact search in a matrix of vectors, a chunk at a time; the matrix may be memory-mapped, of any dtype."""

    def __init__(
        self,
        texts: Sequence[str],
        vectors: npt.NDArray[Any],
        encode: Encode,
        *,
        chunk: int = 16384,
        device: str | None = None,
    ) -> None:
        """Search ``texts``, whose vectors are the rows of ``vectors``.

        Args:
            texts: What is found.
            vectors: One row for each text; scores are dot products.
            encode: The query encoder.
            chunk: Rows multiplied at once.
            device: A torch device to multiply on; numpy does it when not given.
        """
        if len(texts) != len(vectors) or vectors.ndim != 2 or chunk < 1:
            raise MiningError(
                f"{len(texts)} texts for vectors of shape {vectors.shape} in chunks of {chunk}: give one row per text "
                "and chunks of at least one"
            )
        self.texts, self.vectors, self.encode, self.chunk, self.device = texts, vectors, encode, chunk, device

    def __call__(self, queries: list[str], k: int) -> list[list[Found]]:
        """The best ``k`` texts for each query; equal scores come in the order of the texts."""
        asked = np.asarray(self.encode(queries), np.float32)
        best = np.full((len(queries), 0), 0.0, np.float32)
        rows = np.full((len(queries), 0), 0, np.int64)
        for start in range(0, len(self.vectors), self.chunk):
            scores = self._scores(asked, self.vectors[start : start + self.chunk])
            own = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
            best, rows = np.concatenate([best, scores], 1), np.concatenate([rows, own], 1)
            if best.shape[1] > k:
                places = np.argpartition(-best, k - 1, axis=1)[:, :k]
                best, rows = np.take_along_axis(best, places, 1), np.take_along_axis(rows, places, 1)
        order = np.lexsort((rows, -best), axis=1)
        best, rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
        return [
            [Found(self.texts[row], score) for row, score in zip(*pair, strict=True)]
            for pair in zip(rows.tolist(), best.tolist(), strict=True)
        ]

    def _scores(self, asked: npt.NDArray[np.float32], chunk: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        part = np.ascontiguousarray(chunk, np.float32)
        if self.device is None:
            return asked @ part.T
        import torch

        there = torch.from_numpy(part).to(self.device)
        product: npt.NDArray[np.float32] = (torch.from_numpy(asked).to(self.device) @ there.T).cpu().numpy()
        return product
