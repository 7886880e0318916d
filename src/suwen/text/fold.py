"""Folding for matching: width, case and traditional Chinese, one character for one. Nothing here changes a length."""

from __future__ import annotations

import unicodedata
from functools import cache
from pathlib import Path

_TRADITIONAL = Path(__file__).with_name("traditional.txt")
# Radicals and compatibility ideographs look like ordinary characters but do not compare equal; PDF text layers are
# full of them. Superscripts are left alone on purpose: NFKC would turn 10⁹ into 109.
_LOOKALIKES = (range(0x2E80, 0x2FE0), range(0xF900, 0xFB00), range(0x2F800, 0x2FA20))
_FULL_WIDTH = range(0xFF01, 0xFF5F)
_LAST_CASED = 0x1E944


def fold(text: str) -> str:
    """Return ``text`` with width, case and script folded, every character at its own offset.

    Full-width characters become half-width, letters lower case (``µ`` and ``μ`` become one), traditional characters
    simplified ones, by OpenCC's first choice. Folding twice changes nothing.

    >>> fold("ＨｂＡ１ｃ：糖尿病檢查")
    'hba1c:糖尿病检查'
    """
    return text.lower() if text.isascii() else text.translate(_table())


def simplified() -> dict[str, str]:
    """What stands for each traditional character: one simplified character, itself in no need of folding."""
    steps = _traditional()
    return {old: _settle(old, steps) for old in steps}


@cache
def _table() -> dict[int, str]:
    steps: dict[str, str] = {"\u3000": " "}
    steps.update((chr(code), chr(code - 0xFEE0)) for code in _FULL_WIDTH)
    steps.update((chr(code), unicodedata.normalize("NFKC", chr(code))) for block in _LOOKALIKES for code in block)
    steps.update(_traditional())
    for code in range(_LAST_CASED):
        steps.setdefault(chr(code), chr(code).casefold())
    single = {old: new for old, new in steps.items() if len(new) == 1 and old != new}
    return {ord(old): _settle(old, single) for old in single}


def _settle(character: str, steps: dict[str, str]) -> str:
    """Follow the steps to the end: Ａ to A to a, and 薴 to 苧 to 苎, so that every spelling meets at one."""
    while character in steps:
        character = steps[character]
    return character


def _traditional() -> dict[str, str]:
    traditional, simplified = _TRADITIONAL.read_text(encoding="utf-8").splitlines()
    return dict(zip(traditional, simplified, strict=True))
