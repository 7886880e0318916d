"""Names of the same thing: which a text mentions, and what else they are called. Knows no index and no encoder.

A list has one group a line, its names separated by commas, the usual one first. A name that means several things has in
brackets what else a text must hold for it to mean this, and what it must not: ``AF[抗凝 anticoagul* -amniotic]``. Such
words are whole ones; a star stands for any rest of one. A wrong expansion harms more than none.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from suwen.errors import SuwenError
from suwen.text.fold import fold
from suwen.text.segment import is_word, pieces

_SHIPPED = Path(__file__).with_name("synonyms.txt")
#: What the groups below a comment of the list that comes with the package are; those above all are drugs.
_HEADINGS = {"# Diseases,": "disease", "# Findings,": ""}
#: Names no longer than this occur by chance where two words meet.
_SHORT = 2
_COMMA = re.compile(r"[,，](?![^\[]*\])")
_HAN = re.compile("[\u3400-\u9fff]")
#: What makes another thing of a name right behind it: 非霍奇金淋巴瘤, 假性痛风, 类白血病; but 这类贫血, 西地那非, 一副.
_ANOTHER = re.compile(r"(?:(?<![那拉])非|(?<![一二两三几\d])副|假性|(?<![\u3400-\u9fff])类|\b(?:non|pseudo)[ -])$")
_NAME = re.compile(r"([^\[\]]+?)\s*(?:\[([^\[\]]+)\])?")


class BadSynonyms(SuwenError):
    """A line of a list of synonyms that cannot be read."""


class Mention(NamedTuple):
    """A name in a text, as it stands there, with the other names of the same thing, the usual one first."""

    start: int
    end: int
    text: str
    names: tuple[str, ...]


class _Sense(NamedTuple):
    group: int
    #: Any of these must be there, if there are any, and none of those.
    context: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: int, words: Sequence[str]) -> _Sense:
        """As a list has it in brackets."""
        context = [fold(word.replace("_", " ")) for word in words]
        return cls(
            group,
            tuple(word for word in context if not _forbids(word)),
            tuple(word[1:] for word in context if _forbids(word)),
        )

    def fits(self, reading: _Reading, start: int, end: int) -> bool:
        """Whether the rest of a text, beside the name itself, speaks of this and of nothing else."""
        if any(reading.has(word, start, end) for word in self.others):
            return False
        return not self.context or any(reading.has(word, start, end) for word in self.context)


class Synonyms:
    """Groups of names, ready to be looked for."""

    def __init__(self, groups: Sequence[Sequence[tuple[str, tuple[str, ...]]]]) -> None:
        #: The names of each group that stand for it wherever they stand.
        self.groups = [tuple(name for name, words in group if all(map(_forbids, words))) for group in groups]
        self._senses: dict[str, list[_Sense]] = {}
        # All names at once: folding them one by one took a third of the time that the list took to load.
        names = [name for group in groups for name, _ in group]
        folded = dict(zip(names, fold("\n".join(names)).split("\n"), strict=bool(names)))
        for number, group in enumerate(groups):
            anywhere = _Sense(number)
            for name, context in group:
                sense = _Sense.of(number, context) if context else anywhere
                self._senses.setdefault(folded[name], []).append(sense)
        # How long the names are that begin with two characters, the longest first.
        lengths: dict[str, set[int]] = {}
        for name in self._senses:
            lengths.setdefault(name[:2], set()).add(len(name))
        self._folded = folded
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        self._starts = (2, 1) if any(len(start) == 1 for start in lengths) else (2,)

    @classmethod
    def parse(cls, text: str, where: str = "synonyms", left_out: list[str] | None = None) -> Synonyms:
        """Read a list.

        Args:
            text: The list.
            where: What it is called in messages.
            left_out: Takes what is wrong with each line that is; the others are read.

        Raises:
            BadSynonyms: A line has fewer than two names, or brackets that do not close; nothing is to be left out.
        """
        groups = []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                groups.append(_group(line, f"{where}, line {number}"))
            except BadSynonyms as problem:
                if left_out is None:
                    raise
                left_out.append(str(problem))
        return cls(groups)

    def __len__(self) -> int:
        return len(self.groups)

    def names(self) -> Iterator[str]:
        """Every name, folded."""
        return iter(self._senses)

    def mentions(self, text: str) -> list[Mention]:
        """The names in a text, the longest at each place, without what it leaves open which thing is meant."""
        if not self.groups:
            return []
        folded, found, end = fold(text), [], 0
        starts = {
            place
            for size in self._starts
            for place in range(len(folded))
            if folded[place : place + size] in self._lengths
        }
        reading = _Reading(folded)
        for place in sorted(starts):
            name = self._at(reading, place) if place >= end else None
            if name is None:
                continue
            end = place + len(name)
            if _ANOTHER.search(folded[max(0, place - 8) : place]):
                continue
            if (group := _decided(self._senses[name], reading, place, end)) is not None:
                others = tuple(other for other in self.groups[group] if self._folded[other] != name)
                if others:
                    found.append(Mention(place, end, text[place:end], others))
        return found

    def _at(self, reading: _Reading, place: int) -> str | None:
        folded = reading.text
        for size in self._starts:
            for length in self._lengths.get(folded[place : place + size], ()):
                name = folded[place : place + length]
                if name in self._senses and len(name) == length and reading.stands_alone(place, place + length):
                    return name
        return None


def _decided(senses: Sequence[_Sense], reading: _Reading, start: int, end: int) -> int | None:
    """Which group a name means beside the rest of a text, if that decides it."""
    fitting = {sense.group for sense in senses if sense.fits(reading, start, end)}
    return fitting.pop() if len(fitting) == 1 else None


class _Reading:
    """A folded text, and where the words of its Chinese begin and end; cut when that is first asked."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _borders(self) -> list[int]:
        return [0, *accumulate(map(len, pieces(self.text)))]

    def stands_alone(self, start: int, end: int) -> bool:
        """Whether a name is no part of a longer word, nor of two words side by side (办法|能, 属于|中|风险)."""
        text = self.text
        if _joined(text[start - 1 : start], text[start]) or _joined(text[end - 1], text[end : end + 1]):
            return False
        if not (_han(text[start - 1 : start] + text[start]) or _han(text[end - 1] + text[end : end + 1])):
            return True
        borders = self._borders
        before, after = bisect_right(borders, start) - 1, bisect_left(borders, end)
        first, last = borders[before], borders[after]
        if first == start and last == end:
            return True
        name = text[start:end]
        if after == before + 1:  # inside of one word: 糖尿病人
            return (first == start or last == end) and (len(name) > _SHORT or is_word(name))
        # Two readings: with the name as a word, and without. The name's must be the one of fewer words; a long name's,
        # which chance does not make, of no more.
        with_name = len(pieces(text[first:start])) + 1 + len(pieces(text[end:last]))
        return with_name < after - before + (len(name) > _SHORT)

    def has(self, word: str, start: int, end: int) -> bool:
        """Whether a word, a star in place of its beginning or end, stands in the text outside of a stretch."""
        bare = word.strip("*")
        place = self.text.find(bare)
        while place >= 0:
            after = place + len(bare)
            if (after <= start or place >= end) and self._is_word_at(place, after, word):
                return True
            place = self.text.find(bare, place + 1)
        return False

    def _is_word_at(self, start: int, end: int, word: str) -> bool:
        left, right = word.startswith("*"), word.endswith("*")
        # One character is a word inside of any: 恶心.
        if not (left or right) and (end - start > 1 or not _HAN.match(self.text, start)):
            return self.stands_alone(start, end)
        return (left or self._is_border(start)) and (right or self._is_border(end))

    def _is_border(self, place: int) -> bool:
        """Whether a word begins or ends here; the text's own ends are borders."""
        two = self.text[place - 1 : place + 1] if place else ""
        if not _han(two):
            return not (len(two) == 2 and _joined(*two))
        return self._borders[bisect_left(self._borders, place)] == place


def _forbids(word: str) -> bool:
    """Whether a word in brackets speaks of another meaning; a name with such alone has one that goes without saying."""
    return word.startswith("-")


def _han(two: str) -> bool:
    return len(two) == 2 and all(map(_HAN.match, two))


def _joined(left: str, right: str) -> bool:
    return bool(left and right) and all(one.isalnum() and not _HAN.match(one) for one in (left, right))


def _group(line: str, where: str) -> list[tuple[str, tuple[str, ...]]]:
    if "\ufffd" in line:  # what a reader puts in place of bytes that are no text
        raise BadSynonyms(f"{where}: it is not in UTF-8")
    if "[" in line or "]" in line:
        group = [_name(part, where) for part in filter(None, map(str.strip, _COMMA.split(line)))]
    else:
        group = [(part, ()) for part in map(str.strip, line.replace("，", ",").split(",")) if part]
    if len(group) < 2:
        raise BadSynonyms(f"{where}: a group needs two names or more, separated by commas")
    return group


def _name(part: str, where: str) -> tuple[str, tuple[str, ...]]:
    match = _NAME.fullmatch(part)
    if match is None:
        raise BadSynonyms(f"{where}: {part!r} is no name: write a name, or a name and [words that decide it]")
    return match[1], tuple((match[2] or "").split())


@cache
def shipped() -> Synonyms:
    """The list that comes with the package."""
    return Synonyms.parse(_SHIPPED.read_text(encoding="utf-8"), _SHIPPED.name)


@cache
def shipped_drugs() -> Synonyms:
    """Of the list that comes with the package, the drugs."""
    text, _, _ = _SHIPPED.read_text(encoding="utf-8").partition(next(iter(_HEADINGS)))
    return Synonyms.parse(text, _SHIPPED.name)


def kind_of(mention: Mention) -> str:
    """Whether what is mentioned is a "drug", a "disease" or, of the list that comes with the package, neither: "".

    >>> [kind_of(mention) for mention in shipped().mentions("心梗后波立维引起头晕")]
    ['disease', 'drug', '']
    """
    kinds = _kinds()
    return next((kinds[name] for name in map(fold, (mention.text, *mention.names)) if name in kinds), "")


@cache
def _kinds() -> dict[str, str]:
    kinds, kind, groups = {}, "drug", iter(shipped().groups)
    for line in _SHIPPED.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            kind = next((after for heading, after in _HEADINGS.items() if line.startswith(heading)), kind)
        elif line.strip():
            kinds.update(dict.fromkeys(fold("\n".join(next(groups))).split("\n"), kind))
    return kinds
