"""Names in a query: drugs, diseases, codes, values, coined words; whether it is names and no more. Ranks nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from suwen.text.fold import fold
from suwen.text.question import subject
from suwen.text.segment import bigrams, medical_words, words
from suwen.text.synonyms import Mention, kind_of, shipped

#: A name that no more passages have than this is rare: so many are kept among the first hits.
FEW = 3
#: Digits alone that are no more than these are a count, an age, a year; with letters they are a code or a value.
_NUMBER = 5
#: A shorter Latin word in small letters that no list knows is as often as not an everyday one: bread, chocolate.
_SHORTEST = 10
_CODE = re.compile("[a-z0-9]")
#: What is written as one: HLA-B*1502, J18.901, CHA2DS2-VASc, 6.7mmol/L.
_WRITTEN_AS_ONE = re.compile(r"[a-z0-9]+(?:[-*/.+:][a-z0-9]+)*")
_VALUE = re.compile(r"(?<![a-z0-9.])\d+(?:\.\d+)? ?[a-zμ]{1,5}/[a-zμ]{1,5}(?![a-z0-9])")
_WORD = re.compile(r"\w+")
#: A query of more characters is no bare name.
_LONGEST = 60
_HAN_RUN = re.compile("[\u4e00-\u9fff]{3,8}")
#: Where the first clause of a text ends: it says what the text is about, or nothing (您好).
_CLAUSE = re.compile(r"[,，。;；:：!！?？\n]|\.\s")


class Name(NamedTuple):
    """A name in a query."""

    #: As it was typed, folded.
    typed: str
    #: What else it is called, folded, where the query is a bare name and at most :data:`FEW` passages have any name.
    others: tuple[str, ...] = ()
    #: Whether no more than so many have it as typed, or, where none does and the query is a bare name, by another.
    few: bool = False

    def held_by(self, text: str) -> int:
        """How well a folded text holds it: 2 as typed, 1 by another name, 0 not at all."""
        if holds(text, self.typed):
            return 2
        return int(any(holds(text, name) for name in self.others))


def holds(text: str, name: str) -> bool:
    """Whether a folded text has a folded name, not as a part of a longer Latin word or number.

    >>> holds("initial tia", "tia"), holds("initial", "tia"), holds("statins", "statin"), holds("5ng/ml", "5 ng/ml")
    (True, False, True, True)
    """
    if (place := text.find(name)) < 0:
        return " " in name and name[0].isdigit() and holds(text, name.replace(" ", ""))
    while place >= 0:
        end = place + len(name)
        end += text[end : end + 1] == "s" and name[-1].isalpha()
        if not _joined(text[place - 1 : place], name[0]) and not _joined(name[-1], text[end : end + 1]):
            return True
        place = text.find(name, place + 1)
    return False


def _joined(left: str, right: str) -> bool:
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()


def names_of(text: str, mentions: Sequence[Mention], count: Callable[[str], int]) -> tuple[tuple[Name, ...], bool]:
    """The names in a query, and whether it is these and no more, but for what only makes it a question.

    Args:
        text: The query.
        mentions: What the lists of names know in it.
        count: In how many passages a name may stand.
    """
    folded = fold(text).strip()
    known: dict[str, Sequence[str]] = {}
    if _CODE.search(folded):
        known |= dict.fromkeys((*_codes(folded), *_VALUE.findall(folded)), ())
    known |= {fold(mention.text): mention.names for mention in mentions}
    bare = len(folded) <= _LONGEST and _is_bare(folded, text, known)
    return tuple(_counted(name, others if bare else (), count) for name, others in known.items()), bare


def _is_bare(folded: str, text: str, known: dict[str, Sequence[str]]) -> bool:
    """Whether a query is names and no more; those that only show then are added to what is known."""
    if not known and _is_term(folded, text):
        known[folded] = ()
        return True
    rest = subject(text)
    # What is written as one comes first: a part of it may be a name too, or look like a question.
    for name in sorted(known, key=len, reverse=True):
        rest = rest.replace(name, " ") if name in rest else rest
    left = _WORD.findall(rest)
    if not medicine().issuperset(left):
        return False
    known |= dict.fromkeys((word for word in left if word not in known), ())
    return bool(known)


def _counted(name: str, others: Sequence[str], count: Callable[[str], int]) -> Name:
    here, together = count(name), sum(map(count, others))
    near = tuple(map(fold, others)) if here + together <= FEW else ()
    return Name(name, near, 0 < (here or together) <= FEW)


def _codes(folded: str) -> list[str]:
    chinese = not folded.isascii()
    written = [*_WRITTEN_AS_ONE.findall(folded), *bigrams(folded)]
    return [term for term in dict.fromkeys(written) if is_code(term, chinese)]


def is_code(term: str, chinese: bool) -> bool:
    """Whether a term names one thing by letters and digits, or by Latin letters in a Chinese text."""
    if not term.isascii() or len(term) < 2:
        return False
    letters, digits = any(map(str.isalpha, term)), any(map(str.isdigit, term))
    return letters if chinese else digits and (letters or len(term) >= _NUMBER)


def _is_term(folded: str, text: str) -> bool:
    """Whether a whole query that no list knows is one term: a Latin word, or Chinese that no dictionary knows as words.

    >>> [_is_term(text, text) for text in ("birefringent", "cat food", "克立硼罗", "高铁票", "红烧肉")]
    [True, False, True, False, False]
    """
    if _WRITTEN_AS_ONE.fullmatch(folded):
        return len(folded) >= _SHORTEST or sum(map(str.isupper, text)) > 1
    if not _HAN_RUN.fullmatch(folded) or folded in medicine() or subject(text) != folded:
        return False
    return 2 * max(map(len, words(folded))) <= len(folded)


def about_others(asked: Sequence[Mention]) -> Callable[[str, str], bool] | None:
    """Which passages, by title and text, are about other drugs or diseases than a query names, if it names any.

    Such a one has none of these in it by any name, and another of the kind in its title or first clause. Names of which
    one is a part of the other (缺血性卒中, 卒中) are of one thing as far as this goes.
    """
    named: dict[str, set[str]] = {}
    for mention in asked:
        if kind := kind_of(mention):
            named.setdefault(kind, set()).update(_names(mention))
    if not named:
        return None
    every = sorted(set().union(*named.values()), key=len)
    # No border parts these, so that most passages, which have the name as it was asked for, need not be folded.
    plain = [name for name in every if not (name[0].isascii() or name[-1].isascii())]

    def about(title: str, text: str) -> bool:
        if any(name in text or name in title for name in plain):
            return False
        folded = fold(f"{title}\n{text}")
        if any(holds(folded, name) for name in every):
            return False
        ends = _CLAUSE.search(text)
        begins = _kinds_of(f"{title}\n{text[: ends.start()] if ends else text}")
        others = [name for kind, names in begins if kind in named for name in names]
        return bool(others) and not any(holds(other, name) or holds(name, other) for other in others for name in every)

    return about


@lru_cache(maxsize=4096)  # the same passages are found again and again
def _kinds_of(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((kind_of(mention), _names(mention)) for mention in shipped().mentions(text))


def _names(mention: Mention) -> tuple[str, ...]:
    return tuple(map(fold, (mention.text, *mention.names)))


@cache
def medicine() -> frozenset[str]:
    """The words of medicine that the dictionary has beside its own."""
    return frozenset(medical_words())


@lru_cache(maxsize=4096)
def pairs(name: str) -> tuple[str, ...]:
    """A name's terms: the lists have so many names and no more."""
    return tuple(bigrams(name)) or ("\0",)
