"""One of each on a page: near-duplicates folded into one hit, bare names after answers. Knows passages, no rankings.

Two passages are the same only where nothing that matters differs: no number or unit, no negation, no drug or disease.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
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
#: How much of their characters they share at least, before folding.
_CHARACTERS = 0.6
#: Of so many stretches of the one, spread over it, at least one stands in the other: to break each, more must be
#: changed than near-duplicates differ by, at just these places.
_STRETCHES, _STRETCH = 8, 3
#: A passage up to this many characters and without a stop is a name and no answer: an entry of a code list, a heading.
#: Latin letters take three times as many, and lists put commas between a disease and its kind.
_NAME, _LATIN_NAME = 24, 80
_SENTENCE = re.compile(r"[。！？；，!?;]|[.,](?:\s|$)")
_LATIN_SENTENCE = re.compile(
    r"[!?;]|\.(?:\s|$)|\b(?:is|are|was|were|can|may|should|must|will|you|your|i|it|they|if)\b", re.I
)
#: The least share of what a query says that a name says which stands where it was found: below, the query says more.
_SAYS_AS_MUCH = 0.5
_NUMBER = re.compile(r"\d+(?:[./:×-]\d+)*\s*(?:%|℃|°c|[a-zμ/]{1,8}|[\u4e00-\u9fff])?")
_NO_DIGITS = bytes(set(range(256)) - set(b"0123456789"))
_NEGATION = re.compile(
    r"[不无没未非勿禁忌否别免莫]|\b(?:not|no|never|none|without|neither|nor|avoid|cannot)\b|n['’]t\b"
)


class Content:
    """What a passage says, as far as telling two apart goes; worked out when it is asked for, the cheapest first."""

    def __init__(self, item: StoredPassage, score: float) -> None:
        self.item, self.score = item, score
        self._raw = item.passage.content
        self.length = max(1, len(self._raw))
        #: The digits in it, which are soon had: where these differ, nothing else is looked at.
        self.digits = bytes(sorted(self._raw.encode("ascii", "ignore").translate(None, _NO_DIGITS)))

    @cached_property
    def characters(self) -> frozenset[str]:
        """Its characters: two texts that share 85% of their pairs share nearly all of these."""
        return frozenset(self._raw)

    @cached_property
    def text(self) -> str:
        """The passage without what makes no difference: width, case, traditional characters."""
        return fold(self._raw)

    @cached_property
    def terms(self) -> frozenset[str]:
        """Its character pairs and words."""
        return frozenset(bigrams(self.text))

    @cached_property
    def numbers(self) -> Counter[str]:
        """Its numbers with their units."""
        return Counter(re.sub(r"\s", "", number) for number in _NUMBER.findall(self.text))

    @cached_property
    def negations(self) -> Counter[str]:
        """The words in it that deny."""
        return Counter(_NEGATION.findall(self.text))

    @cached_property
    def names(self) -> Counter[str]:
        """The drugs and diseases in it that a list knows."""
        return Counter(fold(mention.text) for mention in shipped().mentions(self.text))

    def same_as(self, other: Content) -> bool:
        """Whether the other says the same in nearly the same words."""
        if abs(self.score - other.score) > _SCORES or not _LENGTHS <= self.length / other.length <= 1 / _LENGTHS:
            return False
        # What is cheap comes first: looking at each pair by its words took longer than the search.
        if self.digits != other.digits or not self._touches(other):
            return False
        both = len(self.characters & other.characters)
        if both < _CHARACTERS * (len(self.characters) + len(other.characters) - both):
            return False
        if self.numbers != other.numbers or self.negations != other.negations:
            return False
        shared = len(self.terms & other.terms)
        every = len(self.terms) + len(other.terms) - shared
        return shared >= ALIKE * max(every, 1) and self.names == other.names

    def _touches(self, other: Content) -> bool:
        """Whether any of a few stretches of this text stands in the other as well: of most pairs none does."""
        for start in range(0, self.length, self.length // _STRETCHES + 1):
            if self._raw[start : start + _STRETCH] in other._raw:
                return True
        return False


def is_question(query: str) -> bool:
    """Whether a query asks something, rather than name or tell it.

    >>> is_question("哮喘"), is_question("哮喘怎么办"), is_question("N20.0"), is_question("哮喘发作喷几下")
    (False, True, False, False)
    """
    return subject(query).strip() != fold(query).strip()


def is_name(item: StoredPassage) -> bool:
    """Whether a passage is a name and nothing more: short, and no sentence."""
    content = item.passage.content.strip()
    if content.isascii():
        return len(content) <= _LATIN_NAME and not _LATIN_SENTENCE.search(content)
    return len(content) <= _NAME and not _SENTENCE.search(content)


def says_less(query: str) -> Callable[[StoredPassage], bool]:
    """Which passages say less than a query asks for: bare names, under a question all that are not its very words.

    Where no question is asked (高血压肾病) a similar name is looked for, and one word of it (哮喘发作喷几下) is not.
    """
    asked = frozenset(bigrams(query))
    least = len(asked) * (1.0 if is_question(query) else _SAYS_AS_MUCH)

    def less(item: StoredPassage) -> bool:
        return is_name(item) and len(asked.intersection(bigrams(item.passage.content))) < least

    return less


def first_of_each(found: Sequence[Content]) -> list[list[Content]]:
    """Contents in their order, each with those that say the same."""
    kept: list[list[Content]] = []
    # Texts with other digits are never the same: each is held against those with its own alone.
    alike: dict[bytes, list[list[Content]]] = {}
    for content in found:
        groups = alike.setdefault(content.digits, [])
        twins = next((group for group in groups if group[0].same_as(content)), None)
        if twins is None:
            twins = []
            kept.append(twins)
            groups.append(twins)
        twins.append(content)
    return kept
