"""One of each on a page: near-duplicates folded into one hit, bare names after answers. Knows passages, no rankings.

Two passages are the same only where nothing that matters differs: no number or unit, no negation, no drug or disease.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from suwen.index.engine import StoredPassage
from suwen.text.fold import fold
from suwen.text.question import subject
from suwen.text.segment import bigrams
from suwen.text.synonyms import shipped

#: How much of their character pairs and words two near-duplicates share at least.
ALIKE = 0.85
#: Lengths and scores further apart than this are of different texts: looked at first, since it costs nothing.
_LENGTHS, _SCORES = 0.85, 0.03
#: A passage up to this many characters and without a stop is a name and no answer: an entry of a code list, a heading.
_NAME = 24
_CHINESE = re.compile("[\u4e00-\u9fff]")
_SENTENCE = re.compile(r"[。！？；，!?;]|[.,](?:\s|$)")
_NUMBER = re.compile(r"\d+(?:[./:×-]\d+)*\s*(?:%|℃|°c|[a-zμ/]{1,8}|[\u4e00-\u9fff])?")
_NEGATION = re.compile(
    r"[不无没未非勿禁忌否别免莫]|\b(?:not|no|never|none|without|neither|nor|avoid|cannot)\b|n['’]t\b"
)


class Content:
    """What a passage says, as far as telling two apart goes; worked out when it is asked for."""

    def __init__(self, item: StoredPassage, score: float) -> None:
        self.item, self.score = item, score
        # Folding changes no length.
        self.length = len(item.passage.content)

    @cached_property
    def text(self) -> str:
        """The passage with its title, folded."""
        return fold(self.item.passage.content)

    @cached_property
    def characters(self) -> frozenset[str]:
        """Its Chinese characters."""
        return frozenset(_CHINESE.findall(self.text))

    @cached_property
    def terms(self) -> frozenset[str]:
        """Its character pairs and words."""
        return frozenset(bigrams(self.text))

    @cached_property
    def facts(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        """Its numbers with their units, its negations, and the names in it."""
        names = Counter(fold(mention.text) for mention in shipped().mentions(self.text))
        numbers = Counter(re.sub(r"\s", "", number) for number in _NUMBER.findall(self.text))
        return numbers, Counter(_NEGATION.findall(self.text)), names

    def same_as(self, other: Content) -> bool:
        """Whether the other says the same in nearly the same words."""
        short, long = (self, other) if self.length < other.length else (other, self)
        if abs(self.score - other.score) > _SCORES or short.length < _LENGTHS * long.length:
            return False
        # A character that only one has stands in a pair that only it has, with one other at the most: so many apart,
        # and the pairs, which take longer to make, are too.
        if len(self.characters ^ other.characters) > 2 * (1 / ALIKE - 1) * short.length:
            return False
        shared, every = len(self.terms & other.terms), len(self.terms | other.terms)
        return shared >= ALIKE * max(every, 1) and self.facts == other.facts


def is_question(query: str) -> bool:
    """Whether a query asks something, rather than name a thing.

    >>> is_question("哮喘"), is_question("哮喘怎么办"), is_question("N20.0"), is_question("患者夜间咳嗽三周，有哮鸣音")
    (False, True, False, True)
    """
    folded = fold(query).strip()
    return subject(query).strip() != folded or len(bigrams(folded)) >= 8


def is_name(item: StoredPassage) -> bool:
    """Whether a passage is a name and nothing more: short, and no sentence."""
    content = item.passage.content.strip()
    return len(content) <= _NAME and not _SENTENCE.search(content)


def first_of_each(found: Sequence[Content]) -> list[list[Content]]:
    """Contents in their order, each with those that say the same."""
    kept: list[list[Content]] = []
    for content in found:
        twins = next((group for group in kept if group[0].same_as(content)), None)
        if twins is None:
            kept.append([content])
        else:
            twins.append(content)
    return kept
