"""What of a query is looked up by its words: terms with weights, and names of which any one will do. Searches nothing.

Every engine looks up the same terms, so that an index that moves between engines answers alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from suwen.index.engine import Alternatives
from suwen.text.fold import fold
from suwen.text.question import QUESTION_WEIGHT, subject
from suwen.text.segment import bigrams, words

#: How much a matching word weighs beside a matching bigram. nDCG@10 on query-title and consultation search: bigrams
#: alone 76.4 and 24.4, words alone 77.7 and 23.2, both 78.7 and 25.2 (benchmarks/lexical_weights.py).
WORD_WEIGHT = 1.0
#: Distinct terms of a query that are looked up; a pasted page of text would otherwise cost seconds.
MOST_TERMS = 256
#: What another name is worth beside the one that was typed, and one in the other script than the query's.
OTHER_NAME, OTHER_SCRIPT = 0.9, 0.5

_FIELDS = (("words", words, WORD_WEIGHT), ("bigrams", bigrams, 1.0))
# Of BM25: a term that a passage has very often counts its idf times k1 + 1, and k1 is 1.2.
_MOST_OF_IDF = 2.2


class Term(NamedTuple):
    """A term of one field, and how much it counts."""

    field: str
    text: str
    weight: float


class Wanted(NamedTuple):
    """What is looked up of a query."""

    #: Each counts by itself; those that no passage has are left out.
    terms: list[Term]
    #: Of each of these the one counts that a passage has most of: a name by its terms, and its others by theirs.
    choices: list[list[list[Term]]]
    #: What a passage with all of it would score.
    most: float


class Wanting:
    """Takes queries apart for one moment of an index.

    Args:
        frequency: In how many passages a term stands.
        total: How many passages there are.
    """

    def __init__(self, frequency: Callable[[Term], int], total: int) -> None:
        self._frequency, self._total = frequency, total

    def of(self, text: str, also: Alternatives) -> Wanted:
        """The terms of a query.

        Args:
            text: As typed; it is cut into terms, never parsed.
            also: Stretches of it, and what else they are called.
        """
        terms = _weighted(text, also)
        found = [self._frequency(term) for term in terms]
        most = sum(map(self._worth, terms, found))
        # What no passage has counts for what could be had, and need not be looked up.
        terms = [term for term, count in zip(terms, found, strict=True) if count]
        choices = []
        for mention, names in also.items():
            choice, height = self._one_of(mention, names, not text.isascii())
            choices.append(choice)
            most += height
        return Wanted(terms, choices, most * _MOST_OF_IDF)

    def _one_of(self, mention: str, names: Sequence[str], chinese: bool) -> tuple[list[list[Term]], float]:
        """A name and any of its others that are there, and what having one whole is worth.

        A long name has more terms than a short one: each is scaled to the same height, that of the name as typed, or
        of the rarest other one where no passage has the typed one.
        """
        cut = {name: terms for name in dict.fromkeys((mention, *names)) if (terms := _terms_of_name(name))}
        found = {name: [self._frequency(term) for term in terms] for name, terms in cut.items()}
        heights = {name: sum(map(self._worth, terms, found[name])) for name, terms in cut.items()}
        there = [name for name, counts in found.items() if any(counts)]
        height = heights[mention] if mention in there or not there else max(heights[name] for name in there)
        parts = []
        for name in there:
            worth = OTHER_SCRIPT if name.isascii() == chinese else OTHER_NAME
            weight = height / heights[name] * (1.0 if name == mention else worth)
            parts.append([Term(term.field, term.text, weight * term.weight) for term in cut[name]])
        return parts, height

    def _worth(self, term: Term, found: int) -> float:
        """The weight of a term, times its idf where so many passages have it."""
        return term.weight * (math.log(1 + (self._total - found + 0.5) / (found + 0.5)) if found <= self._total else 0)


def terms_of(text: str) -> list[Term]:
    """Every distinct term of a text, in both fields."""
    return [Term(field, term, weight) for field, cut, weight in _FIELDS for term in _distinct(cut(text))]


def _distinct(terms: list[str]) -> list[str]:
    return list(dict.fromkeys(terms))[:MOST_TERMS]


@lru_cache(maxsize=4096)
def _terms_of_name(name: str) -> tuple[Term, ...]:
    """The terms of a name: the lists have so many names and no more."""
    return tuple(terms_of(name))


def _weighted(text: str, also: Alternatives) -> list[Term]:
    """The terms of a query but those of its mentions: of question phrases, and across their edges, with less weight."""
    rest = subject(text)
    if not also and rest == fold(text):
        return terms_of(text)
    for mention in also:
        rest = rest.replace(fold(mention), "\n")
    named = {term for mention in also for term in _terms_of_name(mention)}
    found = []
    for field, cut, weight in _FIELDS:
        strong = set(_distinct(cut(rest)))
        for term in _distinct(cut(text)):
            if term in strong:
                found.append(Term(field, term, weight))
            elif (field, term, weight) not in named:
                found.append(Term(field, term, QUESTION_WEIGHT * weight))
    return found
