"""Folding for matching: width, case and traditional Chinese, one character for one. Nothing here changes a length."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

_TRADITIONAL = Path(__file__).with_name("traditional.txt")
# Radicals and compatibility ideographs look like ordinary characters but do not compare equal; PDF text layers are
# full of them. Superscripts are left alone on purpose: NFKC would turn 10⁹ into 109.
_LOOKALIKES = (range(0x2E80, 0x2FE0), range(0xF900, 0xFB00), range(0x2F800, 0x2FA20))
_FULL_WIDTH = range(0xFF01, 0xFF5F)
#: Up to so many different characters are replaced one by one: to look for them and do so takes a third of the time that
#: ``str.translate`` takes to look up each character of a passage in simplified Chinese. Traditional ones have more.
_MANY = 12


def fold(text: str) -> str:
    """Return ``text`` with width, case and script folded, every character at its own offset.

    Full-width characters become half-width, letters lower case (``µ`` and ``μ`` become one), traditional characters
    simplified ones, by OpenCC's first choice. Folding twice changes nothing.

    >>> fold("ＨｂＡ１ｃ：糖尿病檢查")
    'hba1c:糖尿病检查'
    """
    if text.isascii():
        return text.lower()
    changing = set(_changing().findall(text))
    if len(changing) > _MANY:
        return text.translate(_table())
    for one in changing:  # what it folds to stays: none of these makes another
        text = text.replace(one, _table()[ord(one)])
    return text


def simplified() -> dict[str, str]:
    """What stands for each traditional character: one simplified character, itself in no need of folding."""
    steps = _traditional()
    return {old: _settle(old, steps) for old in steps}


class _Folded(dict[int, str]):
    """What each character folds to, found out when it is first met; the whole table takes a tenth of a second."""

    def __init__(self) -> None:
        self._traditional = _traditional()

    def __missing__(self, code: int) -> str:
        character = chr(code)
        while (after := self._step(character)) != character:
            character = after
        self[code] = character
        return character

    def _step(self, character: str) -> str:
        code = ord(character)
        if character in self._traditional:
            after = self._traditional[character]
        elif any(code in block for block in _LOOKALIKES):
            after = unicodedata.normalize("NFKC", character)
        elif code in _FULL_WIDTH:
            after = chr(code - 0xFEE0)
        else:
            after = " " if character == "\u3000" else character.casefold()
        return after if len(after) == 1 else character


@cache
def _table() -> _Folded:
    return _Folded()


@cache
def _changing() -> re.Pattern[str]:
    """What may fold to another character: all but simplified Chinese, small Latin letters and a few signs."""
    traditional = "".join(one for one in _traditional() if "\u4e00" <= one <= "\u9fff")
    # Planes apart: of a range across them, each character would be held against every part of the set.
    return re.compile(f"[A-Z\x80-\u2017\u2020-\u3000\u3003-\u4dff\ua000-\uffff\U00010000-\U0010ffff{traditional}]")


def _settle(character: str, steps: dict[str, str]) -> str:
    """Follow the steps to the end: Ａ to A to a, and 薴 to 苧 to 苎, so that every spelling meets at one."""
    while character in steps:
        character = steps[character]
    return character


def _traditional() -> dict[str, str]:
    traditional, simplified = _TRADITIONAL.read_text(encoding="utf-8").splitlines()
    return dict(zip(traditional, simplified, strict=True))
