"""Sides and negatives of paraphrase triplets (CardioEmbed section 2), as pure functions. Asking is ``paraphrase``'s.

A split goes by source sentence, near-duplicates together, stratified by book: the paper splits pairs, so that one
sentence may stand on two sides.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from suwen.choices import SHARES
from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.mine import Found, Search, Window, mine_negatives
from suwen.curate.near_duplicates import Near, groups, shingles, similarity
from suwen.curate.shelf_sentences import ShelfSentence

#: Sides by name.
SIDES = ("train", "validation", "test")
#: How a negative is found: far away in the corpus (the paper), by its length (the published code), or by a search.
Way = Literal["far", "length", "mined"]
#: Sentences of one book that are this near to each other are not far.
FAR = 100
#: The code's negatives differ in length by at most this part.
_LENGTH = 0.3
_TRIES = 64
#: Two texts this alike by their letters are one text.
_ALIKE = 0.7


class Triplet(NamedTuple):
    """A sentence of a book, the same in other words by a model, and sentences that say something else."""

    sentence: ShelfSentence
    positive: str
    model: str
    negatives: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As CardioEmbed's own rows are written; training and the benchmark's ``triplets`` read it."""
        own = self.sentence
        return {
            "anchor": own.text,
            "positive": self.positive,
            "negatives": list(self.negatives),
            "source": own.book,
            "page": own.page,
            "position": own.position,
            "model": self.model,
        }


def read_shares(said: str) -> tuple[float, ...]:
    """Shares as they are typed.

    >>> read_shares("0.9,0.1")
    (0.9, 0.1)
    """
    try:
        return tuple(float(part) for part in said.split(","))
    except ValueError:
        raise CurateError(f"shares {said!r}: give numbers separated by commas, such as 0.85,0.10,0.05") from None


def split_sentences(
    sentences: Sequence[ShelfSentence], shares: Sequence[float] = SHARES, *, seed: int = 0, near: float = _ALIKE
) -> dict[str, list[ShelfSentence]]:
    """Put sentences on sides: each book has its share on each, near-duplicates of all books share a side.

    Args:
        sentences: Each once.
        shares: Of training, validation and test; two are training and validation (the paper's 90/10).
        seed: Of the draw.
        near: See :class:`~suwen.curate.near_duplicates.Near`.

    Raises:
        CurateError: The shares do not make a whole.
    """
    if not 2 <= len(shares) <= 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6 or shares[0] <= 0:
        raise CurateError(f"shares {', '.join(map(str, shares))}: give two or three parts that make 1, training first")
    sides: dict[str, list[ShelfSentence]] = {side: [] for side in SIDES}
    together = groups({str(at): one.text for at, one in enumerate(sentences)}, near)
    by_book: dict[str, list[list[ShelfSentence]]] = {}
    for group in together:
        members = [sentences[int(key)] for key in group]
        by_book.setdefault(members[0].book, []).append(members)
    for book, own in sorted(by_book.items()):
        random.Random(f"{seed}:{book}").shuffle(own)
        _fill(sides, own, shares)
    return {side: sorted(members, key=lambda one: one[:3]) for side, members in sides.items()}


def _fill(sides: dict[str, list[ShelfSentence]], own: list[list[ShelfSentence]], shares: Sequence[float]) -> None:
    """A book's groups, each to the side that is furthest below its share of the book."""
    total = sum(map(len, own))
    missing = {side: share * total for side, share in zip(SIDES, shares, strict=False)}
    # Large groups first, where there is still room for them on the large side.
    for group in sorted(own, key=len, reverse=True):
        side = max(missing, key=lambda name: missing[name])
        sides[side] += group
        missing[side] -= len(group)


def with_negatives(
    triplets: Sequence[Triplet], way: Way = "far", count: int = 1, *, seed: int = 0, search: Search | None = None
) -> Iterator[Triplet]:
    """Give triplets of one side their negatives, from the sentences of that side alone: no test text is trained on.

    Args:
        triplets: Of one side.
        way: See :data:`Way`; ``mined`` needs a search.
        count: How many; the paper has one, its code three.
        seed: Of the draw.
        search: Finds sentences of this side, see :func:`search_texts`.
    """
    if way == "mined":
        if search is None:
            raise CurateError("mined negatives need a search of the sentences: name a pair to encode them with")
        rows = (TrainingRow(one.sentence.text, (one.positive,), pos_scores=(1.0,)) for one in triplets)
        mined = mine_negatives(rows, search, Window(2, 50, None, count), seed=seed)
        for one, row in zip(triplets, mined, strict=True):
            yield one._replace(negatives=row.neg)
        return
    pool = [one.sentence for one in triplets]
    for number, one in enumerate(triplets):
        dice = random.Random(f"{seed}:{way}:{number}")
        yield one._replace(negatives=tuple(_drawn(one, pool, _FITS[way], count, dice)))


def _drawn(
    one: Triplet, pool: Sequence[ShelfSentence], fits: Callable[..., bool], count: int, dice: random.Random
) -> Iterator[str]:
    """Random sentences of the pool that fit, and are not nearly the sentence or its paraphrase."""
    own, taken = [shingles(one.sentence.text), shingles(one.positive)], set[int]()
    for _ in range(_TRIES):
        if len(taken) == count:
            return
        at = dice.randrange(len(pool))
        other = pool[at]
        if at in taken or not fits(one.sentence, other):
            continue
        if max(similarity(shingles(other.text), text) for text in own) < _ALIKE:
            taken.add(at)
            yield other.text


def _is_far(own: ShelfSentence, other: ShelfSentence) -> bool:
    return own.book != other.book or abs(own.position - other.position) >= FAR


def _is_as_long(own: ShelfSentence, other: ShelfSentence) -> bool:
    return abs(len(other.text) - len(own.text)) <= _LENGTH * len(own.text)


_FITS: dict[str, Callable[[ShelfSentence, ShelfSentence], bool]] = {"far": _is_far, "length": _is_as_long}


def search_texts(
    texts: Sequence[str], encode_queries: Callable[..., Any], encode_documents: Callable[..., Any]
) -> Search:
    """An exact search of texts in memory, by vectors of some encoder."""
    matrix = np.asarray(encode_documents(list(texts)), np.float32)

    def search(rows: list[TrainingRow], depth: int) -> list[list[Found]]:
        scores = np.asarray(encode_queries([row.query for row in rows]), np.float32) @ matrix.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        return [[Found(texts[at], float(line[at])) for at in own] for line, own in zip(scores, best, strict=True)]

    return search


class Leaks:
    """Knows the texts of validation and test, and finds what would carry one into training."""

    def __init__(self, kept_apart: Iterable[Triplet]) -> None:
        """Hold out the sentences and the paraphrases of triplets."""
        self._near = Near(_ALIKE)
        self.texts = HeldOut()
        for number, one in enumerate(kept_apart):
            for place, text in enumerate((one.sentence.text, one.positive)):
                self.texts.add(text)
                self._near.add(f"{number}:{place}", text)

    def found(self, one: Triplet) -> str | None:
        """Why a triplet must not be trained on, as the counts call it; None where it may."""
        if self.texts.hits((one.sentence.text, one.positive, *one.negatives)):
            return "holds_a_test_text"
        # Negatives are sentences of their own side, each looked at as one.
        return "nearly_a_test_text" if any(map(self._near.find, (one.sentence.text, one.positive))) else None


def drop_leaks(train: Iterable[Triplet], kept_apart: Iterable[Triplet], counts: Counter[str]) -> list[Triplet]:
    """The triplets of training that carry no text of the other sides; those that do are counted."""
    leaks, kept = Leaks(kept_apart), list[Triplet]()
    for one in train:
        reason = leaks.found(one)
        if reason is None:
            kept.append(one)
        else:
            counts[reason] += 1
    return kept


def by_book(sides: Mapping[str, Sequence[Triplet]]) -> dict[str, dict[str, int]]:
    """How many triplets each book has on each side."""
    books = dict.fromkeys(sorted({one.sentence.book for members in sides.values() for one in members}))
    counted = {side: Counter(one.sentence.book for one in members) for side, members in sides.items()}
    return {book: {side: counted[side][book] for side in sides} for book in books}


def distinct(triplets: Iterable[Triplet]) -> Iterator[Triplet]:
    """Triplets whose paraphrase is new: two sentences of one paraphrase would be each other's negatives."""
    seen: set[str] = set()
    for one in triplets:
        if (compared := comparable(one.positive)) not in seen:
            seen.add(compared)
            yield one
