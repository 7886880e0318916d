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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError
from suwen.curate.leakage import comparable
from suwen.curate.near_duplicates import shingles, similarity

if TYPE_CHECKING:
    from suwen.retrieve.ranking import Mode
    from suwen.retrieve.retriever import Index


class Found(NamedTuple):
    """A text that a search found, how well it matches, and its title."""

    text: str
    score: float
    title: str = ""

    @property
    def content(self) -> str:
        """What it says in all: the title (when there is one) on a line of its own, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


#: Finds for each query up to so many texts, best first.
Search = Callable[[list[TrainingRow], int], list[list[Found]]]


@dataclass(frozen=True)
class Window:
    """Which of the ranked candidates may be negatives: the one rule of every miner.

    Attributes:
        first_rank: The first rank that is looked at, 1 being the best candidate.
        last_rank: The last rank that is looked at.
        margin: The highest score a negative may have, as a part of the positive's; None for any.
        count: How many negatives are drawn for a row, where there are as many.
        near_duplicate: The similarity from which two texts count as one, by letters or by vectors as the miner has it.
    """

    first_rank: int = 5
    last_rank: int = 100
    margin: float | None = 0.95
    count: int = 8
    near_duplicate: float = 0.8

    def __post_init__(self) -> None:
        if not 1 <= self.first_rank <= self.last_rank:
            raise CurateError(f"ranks {self.first_rank} to {self.last_rank}: give 1 <= first_rank <= last_rank")
        if self.count < 1:
            raise CurateError(f"count {self.count}: ask for at least one negative")
        if self.margin is not None and not 0 < self.margin <= 1:
            raise CurateError(f"margin {self.margin}: give a part of the positive's score, above 0 up to 1, or None")
        if not 0 < self.near_duplicate <= 1:
            raise CurateError(f"near_duplicate {self.near_duplicate}: give a similarity above 0 and up to 1")

    def allows(self, scores: npt.ArrayLike, positive: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each candidate, ranked best first along the last axis, is within the ranks and below the margin."""
        given, limit = np.asarray(scores), np.asarray(positive)
        ranks = np.arange(1, given.shape[-1] + 1)
        within = (self.first_rank <= ranks) & (ranks <= self.last_rank)
        if self.margin is None:
            return np.broadcast_to(within, given.shape)
        # Of a positive below zero (a bad match by cosine) the limit must lie lower, not higher.
        return within & (given <= limit * np.where(limit < 0, 2 - self.margin, self.margin))

    def is_copy(self, similarities: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether texts as similar as this to one of the row's count as that text worded again."""
        return np.asarray(similarities) >= self.near_duplicate


#: What the papers that mine do, more or less.
USUAL = Window()


def mine_negatives(
    rows: Iterable[TrainingRow], search: Search, window: Window = USUAL, *, seed: int = 0, batch: int = 256
) -> Iterator[TrainingRow]:
    """Add negatives to rows, one row out for each row in, in order.

    The positive's score is that of the hit with its text, or else the row's own ``pos_scores``; of several the lowest
    counts. Where there is none and a margin is asked for, there is no limit to compare with and the row passes
    unchanged: a row whose positive is not found down to ``last_rank`` is noise as often as it is hard. The row's own
    negatives stay, in front.

    Args:
        rows: Training rows.
        search: See :func:`search_index`.
        window: Which candidates may be negatives; copies are known by their letters, see ``near_duplicates``.
        seed: For the draw. A row draws by its number, so that batches of any size draw the same.
        batch: Rows searched at once.

    Yields:
        The rows with ``neg`` filled, and ``pos_scores`` and ``neg_scores`` where every text of the part has a score.
    """
    stream, done = iter(rows), 0
    while part := list(islice(stream, batch)):
        hits = search(part, window.last_rank)
        for number, (row, ranked) in enumerate(zip(part, hits, strict=True), done):
            yield _mined(row, ranked, window, random.Random(f"{seed}:{number}"))
        done += len(part)


def _mined(row: TrainingRow, hits: Sequence[Found], window: Window, draw: random.Random) -> TrainingRow:
    # A row may have its texts with their titles or without.
    scores = {comparable(form): hit.score for hit in reversed(hits) for form in (hit.text, hit.content)}
    pos_scores = row.pos_scores or _known(row.pos, scores)
    marks = [scores[text] for text in map(comparable, row.pos) if text in scores] or list(pos_scores)
    if window.margin is not None and not marks:
        return row
    allowed = window.allows([hit.score for hit in hits], min(marks, default=0.0))
    candidates = [hit for hit, may in zip(hits, allowed, strict=True) if may]
    # Titles on one side alone would tell a negative from a positive.
    if _is_untitled(row, hits):
        candidates = [hit._replace(title="") for hit in candidates]
    draw.shuffle(candidates)
    fresh = sorted(_distinct(candidates, row, window), key=lambda hit: -hit.score)
    own = row.neg_scores or _known(row.neg, scores)
    complete = len(own) == len(row.neg)
    return row._replace(
        neg=(*row.neg, *(hit.content for hit in fresh)),
        pos_scores=pos_scores,
        neg_scores=(*own, *(hit.score for hit in fresh)) if complete else (),
    )


def _is_untitled(row: TrainingRow, hits: Sequence[Found]) -> bool:
    """Whether the row's positives are there as hits, and without their titles."""
    pos = set(map(comparable, row.pos))
    whole = {comparable(hit.content) for hit in hits}
    return not pos & whole and any(hit.title and comparable(hit.text) in pos for hit in hits)


def _known(texts: Sequence[str], scores: dict[str, float]) -> tuple[float, ...]:
    """The scores of texts, where all of them were found; else none."""
    known = [scores[text] for text in map(comparable, texts) if text in scores]
    return tuple(known) if len(known) == len(texts) else ()


def _distinct(candidates: Iterable[Found], row: TrainingRow, window: Window) -> Iterator[Found]:
    """Candidates that are neither copies nor near copies of the row's texts, nor of each other."""
    taken = [shingles(text) for text in (row.query, *row.pos, *row.neg)]
    fresh = 0
    for hit in candidates:
        if fresh == window.count:
            return
        own, bare = shingles(hit.content), shingles(hit.text)
        # An index cuts a long positive into passages; such a piece of it is no negative, whatever its title.
        alike = [
            1.0 if 0 < at <= len(row.pos) and bare <= other else max(similarity(own, other), similarity(bare, other))
            for at, other in enumerate(taken)
        ]
        if own and not window.is_copy(alike).any():
            taken.append(own)
            fresh += 1
            yield hit


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
    """Search an index of passages for the queries of rows, each with its own instruction where the pair takes one.

    Args:
        index: Open, over the texts that negatives may come from.
        tier: The query encoder; the pair's default when not given.
        mode: ``dense`` gives similarities, which a margin is meant for. ``lexical`` scores have a margin of their own
            kind; the scores of ``hybrid`` are relative to each query, so mine with ``margin=None`` there.
    """
    name = tier or index.pair.default_tier
    index.pair.need_tier(name)
    takes = index.pair.manifest.tiers[name].prompts.instruction is not None

    def found(row: TrainingRow, k: int) -> list[Found]:
        hits = index.search(row.query, k, mode=mode, tier=tier, instruction=row.prompt if takes else None)
        return [Found(hit.text, hit.score, hit.title) for hit in hits]

    def search(rows: list[TrainingRow], k: int) -> list[list[Found]]:
        return [found(row, k) for row in rows]

    return search
