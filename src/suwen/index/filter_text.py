r"""Filters as people type them: ``year>=2020 AND (department=药剂科 OR NOT lang=zh)``. Only their reading lives here.

* ``field=value`` equals, ``field=a|b`` any of them, ``field!=value``, ``field!=a|b`` none of them, ``<``, ``<=``,
  ``>``, ``>=`` (or ``≤``, ``≥``, ``≠``), and ``field is missing``. The signs may be of full width (``＝``).
* ``AND``, ``OR`` and ``NOT``, in capitals and with spaces around them; *and* binds closer than *or*; brackets group.
* A field or a value in double quotes stands for itself, whatever is in it: ``title="A|B"``; ``\"`` is a quote in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from suwen.index.filters import DEEPEST, Either, Filter, FilterError, Missing, Not, bounded, equal, every

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_WORD = re.compile(r"\s+(AND|OR)(?=[\s(]|$)")
_NOT = re.compile(r"NOT(?=[\s(]|$)")
_FIELD = rf"\s*(?P<key>{_QUOTED}|[^<>=!≥≤≠＜＞＝！\"]+?)"
_COMPARED = re.compile(rf"{_FIELD}\s*(?P<op>[>＞][=＝]|[<＜][=＝]|[!！][=＝]|[=>≥≤≠<＝＞＜])", re.DOTALL)
_MISSING = re.compile(rf"{_FIELD}\s+(?i:is\s+missing)\s*", re.DOTALL)
_VALUE = re.compile(rf"\s*({_QUOTED}|[^|｜]*?)\s*([|｜]|$)", re.DOTALL)
#: Another sign (==, =>, <>), or a second condition behind a space or a comma: as a value it would equal nothing.
_SIGN = re.compile(r"[=<>≥≤≠＝＜＞]")
_SIGN_FIRST, _JOINED = re.compile(rf"\s*{_SIGN.pattern}"), re.compile(r"[\s,;，；、]")
#: A value that begins with a quote and does not end with one.
_UNCLOSED = re.compile(r'(?:^|[|｜])\s*"')
#: Of full width, as Chinese keyboards have them.
_WIDE = str.maketrans("＝＜＞！", "=<>!")
_NAMES = {">": "gt", ">=": "gte", "≥": "gte", "<": "lt", "<=": "lte", "≤": "lte"}


def read_text(text: str) -> Filter:
    """A filter as it was typed.

    >>> read_text("year>=2020 AND year<2024")
    Within(field='year', bounds=(('gte', 2020), ('lt', 2024)))
    >>> read_text("lang is missing OR NOT lang=zh")
    Either(parts=(Missing(field='lang'), Not(part=AnyOf(field='lang', texts=('zh',), numbers=(), spelled=()))))
    """
    reader = _Reader(text)
    found = reader.either(1)
    if reader.rest():
        raise reader.error()
    return found


class _Reader:
    """Reads from left to right, by descent."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text.strip(), 0

    def rest(self) -> str:
        return self._text[self._at :]

    def error(self) -> FilterError:
        shown = self._text if len(self._text) <= 200 else self._text[:200] + "…"
        return FilterError(
            f"filter {shown!r} is not understood: write field=value, field!=value, field=a|b, field>=value or "
            "'field is missing', joined by AND, OR, NOT (in capitals) and brackets; put what holds these signs in "
            "double quotes"
        )

    def either(self, depth: int) -> Filter:
        if depth > DEEPEST:
            raise FilterError(f"the filter is nested deeper than {DEEPEST} levels: flatten it")
        parts = [self._every(depth)]
        while self._word("OR"):
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _every(self, depth: int) -> Filter:
        parts = [self._one(depth)]
        while self._word("AND"):
            parts.append(self._one(depth))
        return every(parts)

    def _one(self, depth: int) -> Filter:
        self._skip()
        if (found := _NOT.match(self._text, self._at)) is not None:
            self._at = found.end()
            if depth > DEEPEST:
                raise FilterError(f"the filter is nested deeper than {DEEPEST} levels: flatten it")
            return Not(self._one(depth + 1))
        if not self.rest().startswith("("):
            return self._clause()
        self._at += 1
        found_inside = self.either(depth + 1)
        self._skip()
        if not self.rest().startswith(")"):
            raise self.error()
        self._at += 1
        return found_inside

    def _skip(self) -> None:
        self._at += len(self.rest()) - len(self.rest().lstrip())

    def _word(self, word: str) -> bool:
        # Behind a closing bracket there need not be a space.
        found = re.compile(rf"\s*{word}(?=[\s(]|$)").match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found is not None

    def _clause(self) -> Filter:
        """One condition, up to the next AND or OR, or to a bracket that it did not open."""
        end = self._end()
        clause, self._at = self._text[self._at : end], end
        if (found := _MISSING.fullmatch(clause)) is not None:
            return Missing(_plain(found["key"]))
        found = _COMPARED.match(clause)
        stray = re.match(r"(AND|OR)\s", clause)
        if stray or found is None or not (values := clause[found.end() :].strip()):
            raise self.error()
        bare = re.sub(_QUOTED, "", values, flags=re.DOTALL)
        joined = _JOINED.search(bare)
        if _SIGN_FIRST.match(bare) or (joined and _SIGN.search(bare, joined.end())) or _UNCLOSED.search(bare):
            raise self.error()
        field, operator = _plain(found["key"]), found["op"].translate(_WIDE)
        if operator in _NAMES:
            if _SIGN.search(bare):  # 2019<year<2022, begun at its middle
                raise self.error()
            return bounded(field, _NAMES[operator], _plain(values))  # type: ignore[arg-type]
        found_values = equal(field, _listed(values))
        return found_values if operator == "=" else Not(found_values)

    def _end(self) -> int:
        place, opened = self._at, 0
        while place < len(self._text):
            if self._text[place] == '"' and (quoted := re.compile(_QUOTED, re.DOTALL).match(self._text, place)):
                place = quoted.end()
                continue
            if opened == 0 and (self._text[place] == ")" or _WORD.match(self._text, place)):
                break
            opened += {"(": 1, ")": -1}.get(self._text[place], 0)
            place += 1
        return place


def _listed(values: str) -> Iterator[str]:
    place = 0
    while place <= len(values):
        found = _VALUE.match(values, place)
        if found is None:
            # Something stands behind a closing quote: the quote was part of the text.
            yield from (part.strip() for part in re.split("[|｜]", values[place:]))
            return
        yield _plain(found[1])
        if not found[2]:
            return
        place = found.end()


def _plain(text: str) -> str:
    """What a quoted text says; any other text as it is."""
    if len(text) >= 2 and re.fullmatch(_QUOTED, text, re.DOTALL):
        return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
    return text
