"""The text as the masking rules see it, every character at its own offset. The rules themselves live beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from suwen.text.fold import fold

#: Stands where something is masked already. A private character, so that no rule can take it for text; a run of any
#: length means the same, or masking twice would differ from masking once.
FILL = "\ue000"
#: How far back a word before a number can matter; also what keeps the look-back constant in time.
LOOK_BACK = 24
HAN = "\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af"

_WIDTH = {
    "\u3000": " ",
    "\xa0": " ",
    "\u2019": "'",
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
}
# A search skips what needs no change, in half the time that str.translate takes to look at everything.
_WIDE = re.compile("[\u3000\xa0\u2019\uff01-\uff5e]")


class Place(NamedTuple):
    """Where a rule found something."""

    start: int
    end: int


class Found(NamedTuple):
    """Where a rule found something, and of which kind."""

    start: int
    end: int
    kind: str


class View(NamedTuple):
    """One text, twice: ``plain`` with full-width characters made half-width, ``folded`` lower case and simplified."""

    plain: str
    folded: str

    @classmethod
    def of(cls, text: str, hidden: Iterable[Place] = ()) -> View:
        """The view of ``text`` with the hidden places filled."""
        plain = _WIDE.sub(lambda wide: _WIDTH[wide[0]], text)
        return cls(plain, fold(plain)).without(hidden)

    def without(self, hidden: Iterable[Place | Found]) -> View:
        """The same view with more places filled; they come in order and do not overlap."""
        hidden = list(hidden)
        return View(_filled(self.plain, hidden), _filled(self.folded, hidden)) if hidden else self

    def before(self, start: int) -> str:
        """The folded characters just before ``start``, not reaching back over anything masked."""
        return self.folded[max(0, start - LOOK_BACK) : start].rpartition(FILL)[2]


#: Yields what it finds, in any order.
Rule = Callable[[View], Iterable[Found]]


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern whose digits and word borders are those of ASCII: Latin letters end where Chinese ones begin."""
    return re.compile(pattern, re.ASCII)


def apart(found: Iterable[Found]) -> list[Found]:
    """Sorted, and of any that overlap the one that starts first, the longer where they start together."""
    kept: list[Found] = []
    for place in sorted(found, key=lambda place: (place.start, -place.end)):
        if not kept or place.start >= kept[-1].end:
            kept.append(place)
    return kept


def _filled(text: str, hidden: list[Place | Found]) -> str:
    pieces, last = [], 0
    for start, end, *_ in hidden:
        pieces += [text[last:start], FILL * (end - start)]
        last = end
    return "".join([*pieces, text[last:]])
