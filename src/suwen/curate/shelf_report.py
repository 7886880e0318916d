"""What a shelf of books holds: sentences, repeated ones, sources, and whom it speaks of. Trains on nothing.

The counts are those of CardioEmbed's section 3.1; the shares of sources and the terms of age and sex are for its third
limitation, that nobody looked at the biases of the books.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from suwen.corpora.files import CorpusError
from suwen.curate.near_duplicates import groups
from suwen.curate.shelf_sentences import ShelfSentence, once_each
from suwen.text.segment import words

#: Words for people, in sentences.
_PEOPLE = {
    "female": r"\b(?:wom[ae]n|females?|girls?|mothers?|pregnan\w+)\b|女性|女人|妇女|女孩|孕妇|妊娠|产妇|女童",
    "male": r"\b(?:m[ae]n|males?|boys?|fathers?)\b|男性|男人|男子|男孩|男童",
    "children": r"\b(?:child(?:ren)?|infants?|newborns?|neonat\w+|pa?ediatric\w*|adolescents?)\b"
    "|儿童|婴儿|幼儿|新生儿|小儿|青少年",
    "older people": r"\b(?:elderly|older (?:adults?|people|patients?|persons?)|geriatric\w*|aged over \d\d)\b"
    "|老年|高龄|老人",
    "adults": r"\badults?\b|成人|成年",
}
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _PEOPLE.items()}
#: A source with more than this share of the sentences, and a sex named so many times as often as the other, are told.
_MOST, _TIMES = 0.5, 2.0
_SHOWN = 20


@dataclass(frozen=True)
class ShelfReport:
    """What a shelf holds.

    Attributes:
        sentences: All that were found.
        unique: Those that stay when each is taken once.
        repeated: Exact repetitions, ``within`` a book and ``across`` books.
        near: Unique sentences that are nearly one before them, within a book and across books.
        groups: Groups of near-duplicates: each must stay on one side of a split.
        words: Words of the unique sentences; ``distinct_words`` of them are different.
        tokens: Their tokens; ``mean_tokens`` and ``sd_tokens`` of a sentence.
        books: Unique sentences of each book, by its name, largest first.
        people: Unique sentences that name women, men, children, older people, adults.
        remarks: What is one-sided.
        examples: Near-duplicates with their places.
    """

    sentences: int
    unique: int
    repeated: dict[str, int]
    near: dict[str, int]
    groups: int
    words: int
    distinct_words: int
    tokens: int
    mean_tokens: float
    sd_tokens: float
    books: dict[str, int]
    people: dict[str, int]
    remarks: list[str]
    examples: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def shelf_report(
    sentences: Iterable[ShelfSentence], count_tokens: Callable[[str], int], near: float = 0.7
) -> ShelfReport:
    """Count what a shelf holds.

    Args:
        sentences: In the order of the books.
        count_tokens: The tokens of a text.
        near: See :class:`suwen.curate.near_duplicates.Near`.

    Raises:
        CorpusError: There is no sentence.
    """
    found: Counter[str] = Counter()
    kept = once_each(sentences, found)
    repeated = {"within": found["repeated_in_the_book"], "across": found["repeated_in_another_book"]}
    if not kept:
        raise CorpusError("the books hold no sentence of 20 characters (8 in Chinese) or more: are they scans?")
    together = [[kept[int(key)] for key in group] for group in _together(kept, near)]
    said = Counter(word for one in kept for word in words(one.text))
    tokens = [count_tokens(one.text) for one in kept]
    books = dict(Counter(one.book for one in kept).most_common())
    people = {name: sum(bool(found.search(one.text)) for one in kept) for name, found in _PATTERNS.items()}
    return ShelfReport(
        found.total(),
        len(kept),
        repeated,
        _near_counts(together),
        len(together),
        said.total(),
        len(said),
        sum(tokens),
        round(fmean(tokens), 1),
        round(pstdev(tokens), 1),
        books,
        people,
        _remarks(books, people),
        [_example(group) for group in together[:_SHOWN]],
    )


def _together(kept: Sequence[ShelfSentence], near: float) -> list[list[str]]:
    return [group for group in groups({str(at): one.text for at, one in enumerate(kept)}, near) if len(group) > 1]


def _near_counts(together: Sequence[Sequence[ShelfSentence]]) -> dict[str, int]:
    counts = Counter(within=0, across=0)
    for group in together:
        for at, one in enumerate(group[1:], 1):
            counts["within" if any(other.book == one.book for other in group[:at]) else "across"] += 1
    return dict(counts)


def _example(group: Sequence[ShelfSentence]) -> dict[str, Any]:
    return {"texts": [one.text for one in group[:3]], "places": [f"{one.book}, page {one.page}" for one in group[:3]]}


def _remarks(books: dict[str, int], people: dict[str, int]) -> list[str]:
    """What is one-sided, in words."""
    remarks = []
    (largest, count), whole = next(iter(books.items())), sum(books.values())
    if len(books) > 1 and count > _MOST * whole:
        remarks.append(f"{largest} alone has {count / whole:.0%} of the sentences: what is learnt is mostly its own")
    few, many = sorted(("female", "male"), key=lambda name: people[name])
    if people[many] > _TIMES * max(1, people[few]):
        remarks.append(f"{many} people are named in {people[many]:,} sentences, {few} ones in {people[few]:,}")
    for name in ("children", "older people"):
        if not people[name]:
            remarks.append(f"no sentence names {name}: answers about them will come from elsewhere")
    return remarks
