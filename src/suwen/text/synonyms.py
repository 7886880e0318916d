"""Names of the same thing: which a text mentions, and what else they are called. Knows no index and no encoder.

A list has one group a line, its names separated by commas, the usual one first. A name that means several things has in
brackets what else a text must hold for it to mean this: ``AF[抗凝 stroke]``. A wrong expansion harms more than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from suwen.errors import SuwenError
from suwen.text.fold import fold

_SHIPPED = Path(__file__).with_name("synonyms.txt")
#: The comment under the drugs of the list that comes with the package.
_BELOW_DRUGS = "# Diseases,"
_COMMA = re.compile(r"[,，](?![^\[]*\])")
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
    context: tuple[str, ...]


class Synonyms:
    """Groups of names, ready to be looked for."""

    def __init__(self, groups: Sequence[Sequence[tuple[str, tuple[str, ...]]]]) -> None:
        #: The names of each group that stand for it wherever they stand.
        self.groups = [tuple(name for name, context in group if not context) for group in groups]
        self._senses: dict[str, list[_Sense]] = {}
        # All names at once: folding them one by one took a third of the time that the list took to load.
        names = [name for group in groups for name, _ in group]
        folded = dict(zip(names, fold("\n".join(names)).split("\n"), strict=bool(names)))
        for number, group in enumerate(groups):
            anywhere = _Sense(number, ())
            for name, context in group:
                sense = _Sense(number, tuple(map(fold, context))) if context else anywhere
                self._senses.setdefault(folded[name], []).append(sense)
        # How long the names are that begin with two characters, the longest first.
        lengths: dict[str, set[int]] = {}
        for name in self._senses:
            lengths.setdefault(name[:2], set()).add(len(name))
        self._folded = folded
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        self._starts = (2, 1) if any(len(start) == 1 for start in lengths) else (2,)

    @classmethod
    def parse(cls, text: str, where: str = "synonyms") -> Synonyms:
        """Read a list.

        Raises:
            BadSynonyms: A line has fewer than two names, or brackets that do not close.
        """
        groups = []
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.startswith("#"):
                groups.append(_group(line, f"{where}, line {number}"))
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
        for place in sorted(starts):
            name = self._at(folded, place) if place >= end else None
            if name is None:
                continue
            end = place + len(name)
            if (group := _decided(self._senses[name], folded[:place] + "\n" + folded[end:])) is not None:
                others = tuple(other for other in self.groups[group] if self._folded[other] != name)
                if others:
                    found.append(Mention(place, end, text[place:end], others))
        return found

    def _at(self, folded: str, place: int) -> str | None:
        for size in self._starts:
            for length in self._lengths.get(folded[place : place + size], ()):
                name = folded[place : place + length]
                if name in self._senses and len(name) == length and _stands_alone(folded, place, place + length):
                    return name
        return None


def _decided(senses: Sequence[_Sense], rest: str) -> int | None:
    """Which group a name means beside the rest of a text, if that decides it."""
    fitting = {sense.group for sense in senses if not sense.context or any(word in rest for word in sense.context)}
    return fitting.pop() if len(fitting) == 1 else None


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether a Latin name is no part of a longer word."""
    return not (_joined(text[start - 1 : start], text[start]) or _joined(text[end - 1], text[end : end + 1]))


def _joined(left: str, right: str) -> bool:
    return bool(left and right) and all(one.isalnum() and not "\u3400" <= one <= "\u9fff" for one in (left, right))


def _group(line: str, where: str) -> list[tuple[str, tuple[str, ...]]]:
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
    text, _, _ = _SHIPPED.read_text(encoding="utf-8").partition(_BELOW_DRUGS)
    return Synonyms.parse(text, _SHIPPED.name)
