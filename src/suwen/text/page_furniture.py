"""What a book prints on every page around its text: running heads and feet, found by repetition, and page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from statistics import median
from typing import NamedTuple

from suwen.text.page_layout import Line


class PageLines(NamedTuple):
    """The lines of one page, counted from 1; ``is_scan`` where somebody read them off a picture."""

    number: int
    height: float
    lines: list[Line]
    is_scan: bool = False


#: Pages on either side that a line is compared with: few enough to be held, enough for left and right pages to differ.
NEAR = 8
#: Furniture stands within this share of a page's height from its top or bottom.
_ZONE = 0.13
#: So many pages in the neighbourhood must carry a line before it is furniture; two of a book of few pages.
_REPEATED, _FEW = 3, 5
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(
    r"[\s\-–—·.|•]*(?:(?:page|pg\.?|p\.|第)\s*)?(?:\d{1,4}|[ivxlc]{1,6})(?:\s*(?:of|/|／)\s*\d{1,4})?\s*(?:页)?"
    r"(?:\s*[,，/]?\s*共\s*\d{1,4}\s*页)?[\s\-–—·.|•]*",
    re.IGNORECASE,
)
_ALIKE = 0.8
#: Of longer lines so many characters are enough: the name of a chapter may end a foot, such as a notice of rights.
_LONG = 60
#: A line that repeats nowhere is a head all the same where it stands so many body sizes from the text, is smaller than
#: this share of it, shorter than this many characters, and no sentence or caption: a book of one page repeats nothing.
_FAR, _SMALLER, _HEAD = 2.0, 0.93, 40
_NO_HEAD = re.compile(r"[图表]\s?\d|(?:figure|fig\.|table|box)\s?\d|.*[.。!！?？;；:：]$", re.IGNORECASE)


def without_furniture(pages: Iterable[PageLines]) -> Iterator[PageLines]:
    """The same pages without their running heads, feet and numbers; ``NEAR`` pages on either side are held."""
    held: list[PageLines] = []
    keys: list[list[str]] = []
    done = 0
    for page in pages:
        held.append(page)
        keys.append(_keys(page))
        if len(held) - done > NEAR:
            yield _cleared(held[done], keys, done)
            done += 1
        if done > NEAR:
            del held[0], keys[0]
            done -= 1
    for place in range(done, len(held)):
        yield _cleared(held[place], keys, place)


def _keys(page: PageLines) -> list[str]:
    """What stands for each line at the top or bottom: its text without numbers, and whether it is above or below."""
    return [_key(line, page.height) for line in page.lines if _in_zone(line, page.height)]


def _in_zone(line: Line, height: float) -> bool:
    return line.bottom < _ZONE * height or line.top > (1 - _ZONE) * height


def _key(line: Line, height: float) -> str:
    return f"{'above' if line.bottom < _ZONE * height else 'below'} {_DIGITS.sub('0', line.text).casefold()}"[:_LONG]


def _cleared(page: PageLines, keys: Sequence[Sequence[str]], place: int) -> PageLines:
    near = keys[max(0, place - NEAR) : place + NEAR + 1]
    counts = Counter(key for other in near for key in set(other))
    others = [key for number, other in enumerate(near) for key in other if number != min(place, NEAR)]
    needed = _REPEATED if len(near) > _FEW else 2
    if all(_in_zone(line, page.height) for line in page.lines):
        return page  # forms that differ in a number: what is on all pages is what they say
    kept = []
    body = _body(page)
    for line in page.lines:
        if not _in_zone(line, page.height):
            kept.append(line)
            continue
        repeated = counts[_key(line, page.height)]
        if page.is_scan and repeated < needed:
            repeated = 1 + _similar(_key(line, page.height), others)
        number = _NUMBER.fullmatch(line.text) and _outermost(line, page)
        if repeated < needed and not number and not _stands_off(line, page, body):
            kept.append(line)
    return page._replace(lines=kept)


def _body(page: PageLines) -> float:
    """The size of most lines between head and foot."""
    sizes = [line.size for line in page.lines if not _in_zone(line, page.height) and not line.is_row]
    return median(sizes) if sizes else 0.0


def _stands_off(line: Line, page: PageLines, body: float) -> bool:
    """Whether a line in small print stands by itself, far above or below everything else."""
    if line.size > _SMALLER * body or len(line.text) > _HEAD or _NO_HEAD.match(line.text):
        return False
    above = line.bottom < _ZONE * page.height
    inner = [other for other in page.lines if not _beside(line, other)]
    if above:
        return all(other.top - line.bottom > _FAR * body for other in inner)
    return all(line.top - other.bottom > _FAR * body for other in inner)


def _beside(line: Line, other: Line) -> bool:
    return other.top < line.bottom and other.bottom > line.top


def _similar(key: str, others: Sequence[str]) -> int:
    """How many are nearly this: a reader of pictures does not read the same head alike on each page."""
    found = 0
    for other in others:
        match = SequenceMatcher(None, key, other, autojunk=False)
        found += match.real_quick_ratio() >= _ALIKE and match.quick_ratio() >= _ALIKE and match.ratio() >= _ALIKE
    return found


def _outermost(line: Line, page: PageLines) -> bool:
    """Whether nothing of the page's text is further out; another piece of furniture may stand beside it."""
    if line.bottom < _ZONE * page.height:
        return all(other.bottom > line.top for other in page.lines)
    return all(other.top < line.bottom for other in page.lines)
