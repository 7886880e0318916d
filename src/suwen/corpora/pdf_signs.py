"""Signs of a page of a PDF one by one: which way they run, where they stand, and numbers that are set higher.

pdfium's text has a power and the mark of a note as digits of the number before them. Words are in ``pdf_pages``.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from functools import partial
from math import pi
from typing import Any

from suwen.corpora.formulas import raised

#: What may hold digits that are set higher: 109, 10-3, 301. And where pdfium may have taken a power for another word.
_JOINER = "\u2060"
_NUMBER = re.compile(rf"\d[\d.,+−–{_JOINER}-]*\d")
_PARTED = re.compile(r"(?<=(?<![\d.,])10)\s+(?=[+−–-]?\d{1,2}(?!\d))")
#: Of the height of a line: how much smaller and how much higher a sign is at least that is set higher than another.
_SMALLER, _HIGHER = 0.9, 0.15
_Box = tuple[float, float, float, float]


def with_joined(text: str, text_page: Any, index: Callable[[int], int]) -> str:
    """The text of a page where powers that pdfium has for words of their own are joined to their tens."""
    return _PARTED.sub(partial(_unbroken, text_page, index), text)


def with_raised(word: str, text_page: Any, index: Callable[[int], int], start: int, way: int) -> str:
    """A word as the page has it: digits that are set higher are a power or the mark of a note, and no part of a number.

    Args:
        word: The word.
        text_page: The text of its page.
        index: Gives the place among pdfium's signs of one of the text.
        start: Where the word begins in the text.
        way: Which way it runs, in degrees.
    """
    for found in reversed([*_NUMBER.finditer(word)]):
        digits = [at for at in range(*found.span()) if word[at].isdigit()]
        # One of each group is enough to see that all are level, as mostly.
        seen = [at for at in digits if at == digits[0] or not word[at + 1 : at + 2].isdigit()]
        boxes = {at: _line_box(text_page, index(start + at), way) for at in seen}
        first = boxes[digits[0]]
        if any(_is_raised(first, box) or _is_raised(box, first) for box in boxes.values()):
            boxes = {at: _line_box(text_page, index(start + at), way) for at in digits}
            word = word[: found.start()] + _number(found[0], found.start(), boxes) + word[found.end() :]
    return word.replace(_JOINER, "")


def _number(number: str, start: int, boxes: Mapping[int, _Box]) -> str:
    """A number with digits that are set higher; ``boxes`` are those of its digits by their places."""
    said, base, is_higher = "", boxes[start], False
    for at, sign in enumerate(number.replace(_JOINER, " "), start):
        if at not in boxes:
            said += sign.strip()
        elif _is_raised(base, boxes[at]):
            signs = "" if is_higher else said[len(said.rstrip("+−–-")) :]
            said = said.removesuffix(signs)
            said += sign if is_higher else raised(signs + sign, said)
            is_higher = True
        else:
            is_note = is_higher or _is_raised(boxes[at], base)  # one before its number: 1 and 30 are not 130
            said += f" {sign}" if is_note and said[-1:].isdigit() else sign
            base, is_higher = boxes[at], False
    return said


def _unbroken(text_page: Any, index: Callable[[int], int], found: re.Match[str]) -> str:
    """What stands between a ten and its power: nothing, where the page has no space there."""
    before, behind = index(found.start() - 1), index(found.end())
    way = way_of(text_page, before)
    zero, sign = (char_box(text_page, place, way) for place in (before, behind))
    is_near = abs(sign[0] - zero[2]) < 0.25 * (zero[3] - zero[1])
    zero, sign = (_line_box(text_page, place, way) for place in (before, behind))
    return (_JOINER if is_near and _is_raised(zero, sign) else " ") * len(found[0])


def _is_raised(one: _Box, other: _Box) -> bool:
    """Whether a sign is set higher than another one, and smaller: 109 is 10^9 then."""
    height, other_height = one[3] - one[1], other[3] - other[1]
    is_higher = one[3] - other[3] > _HIGHER * height and other[1] < one[1] + 0.5 * height
    return other_height < _SMALLER * height and is_higher


def _line_box(text_page: Any, place: int, way: int) -> _Box:
    """The box that a sign's line would have if all of it were as large and as high, as one sees it upright."""
    import pypdfium2.raw as pdfium

    box = pdfium.FS_RECTF()
    pdfium.FPDFText_GetLooseCharBox(text_page.raw, place, ctypes.byref(box))
    return upright_box([box.left, box.top, box.right, box.bottom], 0, 0, way)


def char_box(text_page: Any, place: int, way: int) -> _Box:
    """The box of one sign as one sees it who holds the page so that it is upright, from anywhere."""
    import pypdfium2.raw as pdfium

    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    pdfium.FPDFText_GetCharBox(text_page.raw, place, *map(ctypes.byref, (left, right, bottom, top)))
    return upright_box([left.value, top.value, right.value, bottom.value], 0, 0, way)


def way_of(text_page: Any, place: int) -> int:
    """Which way a sign runs, in degrees."""
    import pypdfium2.raw as pdfium

    return -round(float(pdfium.FPDFText_GetCharAngle(text_page.raw, place)) / (pi / 2)) * 90 % 360


def upright_box(box: list[float], width: float, height: float, way: int) -> _Box:
    """A box in points from the top left corner of the page as one sees it who holds it so that this text is upright."""
    left, top, right, bottom = box
    if way == 90:
        return bottom, left, top, right
    if way == 180:
        return width - right, bottom, width - left, top
    if way == 270:
        return height - top, width - right, height - bottom, width - left
    return left, height - top, right, height - bottom
