"""The text as the masking rules see it, every character at its own offset. The rules themselves live beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from suwen.text.fold import fold

#: Stands where something is masked already. A private character, so that no rule can take it for text; a run of any
#: length means the same, or masking twice would differ from masking once.
FILL = "\ue000"
#: How far back a word before a number can matter; also what keeps the look-back constant in time.
LOOK_BACK = 24
HAN = "\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af"

_WIDTH = {0x3000: " ", 0xA0: " ", 0x2019: "'", **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}}


class Place(NamedTuple):
    """Where a rule found something."""

    start: int
    end: int


class View(NamedTuple):
    """One text, twice: ``plain`` with full-width characters made half-width, ``folded`` lower case and simplified."""

    plain: str
    folded: str

    @classmethod
    def of(cls, text: str, hidden: Iterable[Place] = ()) -> View:
        """The view of ``text`` with the hidden places filled."""
        return cls(text.translate(_WIDTH), fold(text.translate(_WIDTH))).without(hidden)

    def without(self, hidden: Iterable[Place]) -> View:
        """The same view with more places filled; they come in order and do not overlap."""
        hidden = list(hidden)
        return View(_filled(self.plain, hidden), _filled(self.folded, hidden)) if hidden else self

    def before(self, start: int) -> str:
        """The folded characters just before ``start``, not reaching back over anything masked."""
        return self.folded[max(0, start - LOOK_BACK) : start].rpartition(FILL)[2]


#: Yields the places of one kind of personal data, in order and without overlap.
Rule = Callable[[View], Iterator[Place]]


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern whose digits and word borders are those of ASCII: Latin letters end where Chinese ones begin."""
    return re.compile(pattern, re.ASCII)


def places(pattern: re.Pattern[str], text: str, keep: Callable[[re.Match[str]], object] = bool) -> Iterator[Place]:
    """Where the first group of ``pattern`` matches in ``text``, as far as ``keep`` says yes to the match."""
    return (Place(*match.span(1)) for match in pattern.finditer(text) if keep(match))


def apart(places: Iterable[Place]) -> list[Place]:
    """Sorted, and of any that overlap the one that starts first, the longer where they start together."""
    kept: list[Place] = []
    for place in sorted(places, key=lambda place: (place.start, -place.end)):
        if not kept or place.start >= kept[-1].end:
            kept.append(place)
    return kept


def _filled(text: str, hidden: list[Place]) -> str:
    pieces, last = [], 0
    for start, end in hidden:
        pieces += [text[last:start], FILL * (end - start)]
        last = end
    return "".join([*pieces, text[last:]])
