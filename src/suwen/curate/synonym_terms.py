"""A synonym dictionary, the terms of it in a query, and the rules a rewritten question must meet. Asks no model."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.records import Query
from suwen.corpora.tabular import records
from suwen.curate import CurateError
from suwen.curate.leakage import comparable
from suwen.text.clean import clean
from suwen.text.fold import fold

#: How far a rewritten question's length may be from the original's, as a part of it.
LENGTH = 0.3
_LEAST_TERM = 2
_ALIASES = ("aliases", "alias", "synonyms", "synonym")
_BETWEEN = re.compile(r"[|;；、\t]")
_MARKS = "？?。！!.… "
_ASKS_ZH = re.compile(
    "吗|呢|什么|怎么|怎样|如何|为何|为什么|哪|几[个种天次时周月年]|多少|多久|多长|多大|是否|能否|可否|有无|谁|咋|啥"
    "|(能|会|要|有|是|可以|应该|需要|好|行|对)[不没](能|会|要|有|是|可以|应该|需要|好|行|对)"
)
_ASKS_EN = re.compile(
    r"(what|which|who|whom|whose|when|where|why|how|is|are|am|was|were|do|does|did|can|could|should|would|will|may|might"
    r"|must|has|have|had)\b"
)


#: The names of one thing; the first is its own, the others are aliases.
Entry = tuple[str, ...]


class Case(NamedTuple):
    """A query with a term to be replaced.

    Attributes:
        id: The query's id.
        query: Its text.
        entry: The dictionary's name of what is asked about.
        term: The term as the query spells it.
        synonym: What stands for it.
        swapped: The query with the term alone replaced.
    """

    id: str
    query: str
    entry: str
    term: str
    synonym: str
    swapped: str

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most characters of a rewritten question."""
        own = length(self.query)
        return math.ceil((1 - LENGTH) * own), math.floor((1 + LENGTH) * own)


def read_synonyms(path: Path) -> list[Entry]:
    """Read a dictionary: jsonl ``{"name", "aliases": [...]}``, or csv or tsv with ``name`` and ``aliases`` (a|b|c).

    Raises:
        CurateError: A line has no name or no alias, or there is none.
    """
    entries = [_entry(record, place) for place, record in records(path)]
    if not entries:
        raise CurateError(f"{path}: there is no synonym in it; write lines of name and aliases")
    return entries


def _entry(record: Mapping[str, Any], place: str) -> Entry:
    given = next((record[field] for field in _ALIASES if record.get(field)), None)
    aliases = _BETWEEN.split(given) if isinstance(given, str) else given
    name = record.get("name")
    if not isinstance(name, str) or not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise CurateError(
            f'{place}: not a synonym; write {{"name": "…", "aliases": ["…"]}}, or columns name and aliases'
        )
    names: dict[str, str] = {}
    for text in filter(None, map(clean, (name, *aliases))):
        names.setdefault(fold(text), text)
    if len(names) < 2:
        raise CurateError(f"{place}: {name!r} has no alias that differs from it; add one, or drop the line")
    return tuple(names.values())


class Dictionary:
    """Synonyms, to be found in queries. A name that belongs to two entries is nobody's: what it means is not known."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[str, Entry] = {}
        counts = Counter[str]()
        for entry in entries:
            for name in set(map(fold, entry)):
                counts[name] += 1
                self._entries[name] = entry
        self.ambiguous = {name for name, count in counts.items() if count > 1}
        self._longest = max(map(len, self._entries), default=0)

    def terms(self, query: str) -> Iterator[tuple[int, int, Entry]]:
        """Where the query names something of the dictionary, longest names first, none inside another."""
        folded, end = fold(query), 0
        for start in range(len(folded)):
            if start < end:
                continue
            for size in range(min(self._longest, len(folded) - start), _LEAST_TERM - 1, -1):
                name = folded[start : start + size]
                if name in self._entries and _stands_alone(folded, start, start + size):
                    end = start + size
                    if name not in self.ambiguous:
                        yield start, end, self._entries[name]
                    break

    def case(self, query: Query, seed: int = 0) -> Case | None:
        """A case of the query: one of its terms and one other name of it, drawn; None where there is none."""
        choices = [
            (start, end, entry, other)
            for start, end, entry in self.terms(query.text)
            for other in entry
            # A name of two things says something else to half of those who read it.
            if fold(other) not in self.ambiguous and _replaceable(query.text, query.text[start:end], other)
        ]
        if not choices:
            return None
        start, end, entry, other = random.Random(f"{seed}:{query.id}").choice(choices)
        swapped = query.text[:start] + other + query.text[end:]
        return Case(query.id, query.text, entry[0], query.text[start:end], other, swapped)


def _replaceable(query: str, term: str, other: str) -> bool:
    """Whether it is clear which of two names a sentence uses: neither is a part of the other, nor there already."""
    one, two = fold(term), fold(other)
    return one not in two and two not in one and not uses(query, other)


def uses(text: str, term: str) -> bool:
    """Whether a text uses a term; one of Latin letters only as whole words.

    >>> uses("ＭＩ的症状？", "mi"), uses("mild", "mi"), uses("心肌梗死怎么办", "心肌梗死")
    (True, False, True)
    """
    folded, wanted = fold(text), fold(term)
    starts = (at for at in range(len(folded)) if folded.startswith(wanted, at))
    return any(_stands_alone(folded, at, at + len(wanted)) for at in starts)


def _stands_alone(folded: str, start: int, end: int) -> bool:
    before, after = folded[start - 1 : start], folded[end : end + 1]
    inside = _latin(folded[start]) and _latin(before)
    return not inside and not (_latin(folded[end - 1]) and _latin(after))


def _latin(character: str) -> bool:
    return character.isascii() and character.isalnum()


def length(text: str) -> int:
    """The characters of a question, marks at its end not counted.

    >>> length("感冒怎么办？")
    5
    """
    return len(clean(text).rstrip(_MARKS))


def is_question(text: str) -> bool:
    """Whether a text asks something: by its mark, or by its words where it has none.

    >>> [is_question(text) for text in ("感冒怎么办", "感冒会自愈。", "is it safe", "Rest well.")]
    [True, False, True, False]
    """
    tidy = clean(text)
    if tidy.endswith(("？", "?")):
        return True
    return _ASKS_ZH.search(tidy) is not None or _ASKS_EN.match(tidy.lower()) is not None


def complaint(data: Mapping[str, str], case: Case) -> str | None:
    """What is wrong with the three rewritten questions of a case; None where they meet every rule."""
    shortest, longest = case.bounds
    needs = {"same": case.synonym, "other_with_synonym": case.synonym, "other_with_term": case.term}
    bans = {"same": case.term, "other_with_term": case.synonym}
    for name, term in needs.items():
        text = data[name]
        if not uses(text, term):
            return f"{name} does not use {term!r}"
        if name in bans and uses(text, bans[name]):
            return f"{name} uses {bans[name]!r}, which it must not"
        if not shortest <= length(text) <= longest:
            return f"{name} has {length(text)} characters, it must have {shortest} to {longest}"
        if not is_question(text):
            return f"{name} is not a question"
    different = {comparable(text) for text in (case.query, *(data[name] for name in needs))}
    return None if len(different) == 1 + len(needs) else "two of the questions, or one and the original, are the same"
