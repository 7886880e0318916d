"""Whether a query is about something outside of medicine, by its words. What vectors say of that is relevance's.

By vectors alone a rare word may lie near to anything, for an encoder has it in pieces: t-romb-one. So a query that
names a thing of another field (``everyday.txt``) is doubted where the index has nothing of what it says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from suwen.retrieve.naming import medicine
from suwen.text.question import subject
from suwen.text.segment import pieces, words

#: What is told of such a query.
NOTE = "the query names a thing of another field than medicine, of which the index has nothing: its hits count for less"
#: A word in more passages than this share says nothing of what they are about: 可以, with.
_COMMON = 0.05
#: A shorter word is no name of anything: Latin, Chinese.
_SHORTEST = (3, 2)


def is_elsewhere(text: str, count: Callable[[str], int], rows: int) -> bool:
    """Whether a query in which no list knows a name is of another field, and the index has nothing of what it says.

    Args:
        text: The query.
        count: In how many passages a word may stand.
        rows: How many passages there are.
    """
    folded = subject(text)
    if not _may_be_named(folded):
        return False
    said = _cut(folded)
    named = {name for word in said for name in _everyday().get(word, ()) if name == word or name in folded}
    if not named or not said.isdisjoint(medicine()) or any(map(count, named)):
        return False
    rest = said - {part for name in named for part in _cut(name)}
    telling = (word for word in rest if len(word) >= _SHORTEST[not word.isascii()])
    return not any(0 < count(word) <= _COMMON * rows for word in telling)


def _may_be_named(folded: str) -> bool:
    """What is soon seen of nearly all queries, in 3 of the 10 to 25 microseconds that cutting takes: none is in it."""
    heads = _heads()
    return any(word[:4] in heads for word in folded.split()) or (
        not folded.isascii() and any(folded[at : at + 2] in heads for at in range(len(folded) - 1))
    )


def _cut(folded: str) -> set[str]:
    """The words of a folded text: Latin ones in the singular, Chinese ones without the shorter ones in them."""
    if folded.isascii():
        return set(words(folded))
    return {word for word in pieces(folded) if not word.isascii()} | {word for word in words(folded) if word.isascii()}


@cache
def _everyday() -> Mapping[str, list[str]]:
    """Names of things of other fields, by a word of theirs."""
    names: dict[str, list[str]] = defaultdict(list)
    lines = Path(__file__).with_name("everyday.txt").read_text(encoding="utf-8").splitlines()
    for name in (name for line in lines if not line.startswith("#") for name in line.split()):
        whole = words(name)[0] if name.isascii() else name
        names[max(sorted(_cut(whole)), key=len)].append(whole)  # of a set, equals come in no fixed order
    return names


@cache
def _heads() -> frozenset[str]:
    """How the names begin."""
    return frozenset(name[: 4 if name.isascii() else 2] for names in _everyday().values() for name in names)
