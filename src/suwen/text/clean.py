"""Cleaning of text that comes from outside: what cannot be seen goes, line ends and spaces are made regular.

Folding of case, width and script is in ``fold``: cleaned text is still what a reader is shown.
"""

from __future__ import annotations

import re

_NEWLINES = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # control characters, the NUL that breaks C strings among them
    "\xad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"  # soft hyphen, zero width, direction marks, BOM
    "\ud800-\udfff\ufffe\uffff"  # lone surrogates cannot be written as UTF-8
    "]"
)
_SPACES = re.compile("[ \t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_SPACE_BEFORE_NEWLINE = re.compile("[ \t]\n")
_BLANK_LINES = re.compile("\n{3,}")


def clean(text: str) -> str:
    r"""Return ``text`` without invisible characters, with ``\n`` line ends, single spaces and at most one blank line.

    Cleaning twice changes nothing, and the result can always be written as UTF-8.

    >>> clean("\ufeff  血压\x00  140/90\r\n\r\n\r\n\r\n复查  ")
    '血压 140/90\n\n复查'
    """
    if _is_regular(text):
        return text.strip()
    text = _NEWLINES.sub("\n", text)
    text = _INVISIBLE.sub("", text)
    text = _SPACES.sub(lambda run: "\t" if "\t" in run[0] else " ", text)
    # Each run of spaces is one character by now, which keeps this linear on a megabyte of tabs.
    text = _SPACE_BEFORE_NEWLINE.sub("\n", text)
    return _BLANK_LINES.sub("\n\n", text).strip()


def _is_regular(text: str) -> bool:
    """Whether there is nothing to do but strip: true of nearly all text, and twenty times as fast to find out."""
    if "  " in text or " \n" in text or "\n\n\n" in text:
        return False
    return text.replace("\n", "").isprintable()
