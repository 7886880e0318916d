"""How much a JSON body may hold, counted while it arrives and before anybody parses it. Validates nothing.

What a body costs is not its length: a megabyte of ``[],`` becomes a hundred megabytes of lists, and a parser that has
begun holds every other request up until it ends. So its elements, its depth, its escapes and the memory of its strings
are counted on the bytes, a part at a time; a body over a bound is refused with the part that crosses it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from suwen.service.problems import Problem

#: Escapes of one body. A parser takes 40 ns for each, and nothing else runs in that time.
_ESCAPES = 300_000
#: Bytes the strings of one body may become: a text with one character past 16 bits takes four bytes for each.
_STRINGS = 16 * 2**20
#: The largest stretch looked at in one go: a tenth of a millisecond.
_STRETCH = 64 * 2**10

_QUOTE, _CONTINUES, _WIDE, _WIDEST = 0x22, 0x80, 0xC4, 0xF0
#: What each byte is, outside of strings: it opens (1), closes (-1) or separates.
_SEPARATES = 2
_MARKS = np.zeros(256, dtype=np.int8)
_MARKS[list(b"[{")], _MARKS[list(b"]}")], _MARKS[ord(",")] = 1, -1, _SEPARATES


class Bounds(NamedTuple):
    """What one kind of body may hold."""

    bytes: int
    elements: int
    depth: int


def clearly_within(body: bytes, bounds: Bounds) -> bool:
    """Whether a whole body is so short that nothing needs to be counted, as that of nearly every search is."""
    return len(body) <= min(bounds.elements, _ESCAPES) and body.count(b"[") + body.count(b"{") <= bounds.depth


class Count:
    """Counts a body, part by part.

    Args:
        bounds: What it may hold.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.elements, self.escapes, self._characters, self._depth = 1, 0, 0, 0
        self._width, self._in_string, self._cut_off = 1, 0, b""

    def take(self, part: bytes) -> None:
        """Count the next part.

        Raises:
            Problem: The body holds more than it may.
        """
        for start in range(0, len(part), _STRETCH):
            stretch = self._unescaped(self._cut_off + part[start : start + _STRETCH])
            if stretch:
                self._look(np.frombuffer(stretch, dtype=np.uint8))

    def _unescaped(self, text: bytes) -> bytes:
        """A stretch without its backslashes and what they hide; one at its end is left for the next stretch."""
        self._cut_off = b""
        if b"\\" not in text:
            return text
        # Pairs first: what comes behind one is not escaped.
        self.escapes += text.count(b"\\\\")
        text = text.replace(b"\\\\", b"__")
        if text.endswith(b"\\"):
            text, self._cut_off = text[:-1], b"\\"
        self.escapes += text.count(b"\\")
        if b"\\u" in text:
            self._width = 4
        return text.replace(b'\\"', b"__")

    def _look(self, found: NDArray[np.uint8]) -> None:
        self._characters += int(np.count_nonzero((found & 0xC0) != _CONTINUES))
        highest = int(found.max())
        self._width = max(self._width, 4 if highest >= _WIDEST else 2 if highest >= _WIDE else 1)
        # Modulo 256: only whether the number of quotes so far is odd counts.
        inside = (np.cumsum(found == _QUOTE, dtype=np.uint8) + np.uint8(self._in_string)) & 1
        self._in_string = int(inside[-1])
        marks = _MARKS[found[inside == 0]]
        steps = marks[marks != 0]
        self.elements += int(np.count_nonzero(steps > 0))
        steps[steps == _SEPARATES] = 0
        depths = np.cumsum(steps, dtype=np.int64) + self._depth
        self._check(int(depths.max(initial=0)))
        self._depth = int(depths[-1]) if len(depths) else self._depth

    def _check(self, depth: int) -> None:
        most = self._bounds
        if depth > most.depth:
            raise Problem("invalid_json", f"the body is nested deeper than {most.depth} levels: flatten it")
        if self.elements > most.elements:
            raise Problem(
                "too_large", f"the body holds more than {most.elements} values: send fewer of them in one request"
            )
        if self.escapes > _ESCAPES:
            raise Problem(
                "too_large",
                f"the body holds more than {_ESCAPES} escapes: write characters as they are, in UTF-8, or send less",
            )
        if self._characters * self._width > _STRINGS:
            raise Problem("too_large", f"the body's texts take more than {_STRINGS} bytes: send fewer in one request")


def parsed(body: bytes) -> Any:
    """The value of a body that was counted.

    Raises:
        Problem: It is not JSON by the letter of the standard.
    """
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as problem:
        raise Problem("invalid_json", f"the body is not JSON ({problem}): check quotes, commas and encoding") from None
