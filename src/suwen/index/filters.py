"""The language of metadata filters: what a caller may ask, read and checked. Which rows it admits, an engine finds out.

Every engine admits the same documents. A list in the metadata meets a condition when one of its values does. Numbers
are compared as numbers (7 equals 7.0, true equals 1) and never with text; a bound of a range holds for its own kind,
so text is within no bounds of numbers. NaN and infinity equal nothing. A field that no document has is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from suwen.corpora.records import Scalar
from suwen.errors import SuwenError

#: ``{"topic": "用药"}`` equality, ``{"lang": ["zh", "en"]}`` any of, ``{"year": {"gte": 2020, "lt": 2025}}`` range.
Where = Mapping[str, Scalar | Sequence[Scalar] | Mapping[str, Scalar]]

_CLAUSE = re.compile(r"^(?P<key>[^<>=!]+?)\s*(?P<op>>=|<=|=|>|<)\s*(?P<value>.*)$", re.DOTALL)
_OPERATORS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


class FilterError(SuwenError):
    """A filter that cannot be understood, or that names a field no document has."""


class UnknownField(FilterError):
    """A filter on a field that no document has."""


def parse_where(clauses: Iterable[str]) -> dict[str, list[Scalar] | dict[str, Scalar]]:
    """Read command-line filters: ``field=value``, ``field=a|b``, ``field>=2020``; several are combined with *and*.

    Args:
        clauses: One string for each filter.

    Returns:
        The same as a ``Where``. A value that reads as a number also matches its spelling, since a CSV source
        keeps numbers as text.

    >>> parse_where(["lang=zh|en", "year>=2020", "year<2024"])
    {'lang': ['zh', 'en'], 'year': {'gte': 2020, 'lt': 2024}}
    """
    where: dict[str, list[Scalar] | dict[str, Scalar]] = {}
    for clause in clauses:
        match = _CLAUSE.match(clause.strip())
        if match is None or not match["value"]:
            raise FilterError(f"filter {clause!r} is not understood: write field=value, field=a|b or field>=value")
        key, operator, value = match["key"].strip(), match["op"], match["value"].strip()
        wanted = where.setdefault(key, [] if operator == "=" else {})
        if isinstance(wanted, list) != (operator == "="):
            raise FilterError(f"field {key!r} has both '=' and a range: use one of them")
        if isinstance(wanted, list):
            wanted.extend(form for part in value.split("|") for form in _forms(part.strip()))
        else:
            wanted[_OPERATORS[operator]] = _forms(value)[0]
    return where


def _forms(text: str) -> list[Scalar]:
    """The values a typed word may stand for: the number first when it is one, then the word itself."""
    if text.lower() in ("true", "false"):
        return [text.lower() == "true", text]
    for convert in (int, float):
        try:
            return [convert(text), text]
        except ValueError:
            continue
    return [text]


class Condition(NamedTuple):
    """What one field must meet: be any of ``values``, or else lie within all ``bounds`` (``gt``, ``gte``, …)."""

    field: str
    values: Sequence[Scalar]
    bounds: Mapping[str, Scalar]


def conditions(where: Where) -> list[Condition]:
    """A filter taken apart and checked, for an engine to compile. All conditions must be met.

    Raises:
        FilterError: It cannot be understood. That a field is not there, only an engine can tell: :func:`unknown_field`.
    """
    if not isinstance(where, Mapping):
        raise FilterError(f"a filter is a mapping of field to value, not {type(where).__name__}")
    return [_condition(field, wanted) for field, wanted in where.items()]


def unknown_field(field: str, fields: Sequence[str]) -> UnknownField:
    """The error for a field that no document has, beside those that some have."""
    there = f"the fields are {', '.join(fields)}" if fields else "this index has no metadata at all"
    return UnknownField(f"no document has the field {field!r}: {there}")


def _condition(field: str, wanted: Scalar | Sequence[Scalar] | Mapping[str, Scalar]) -> Condition:
    if not isinstance(field, str) or not _writable(field):
        raise UnknownField(f"{field!r} is not the name of a field: no document has the field")
    if isinstance(wanted, Mapping):
        return Condition(field, (), _checked_bounds(field, wanted))
    if not isinstance(wanted, str | int | float | bool | Sequence | set | frozenset):
        raise FilterError(f"filter on {field!r}: {wanted!r} is not a value, a list of values or a range")
    values = [wanted] if isinstance(wanted, str | int | float | bool) else list(wanted)
    bad = [value for value in values if not isinstance(value, str | int | float | bool)]
    if bad:
        raise FilterError(f"filter on {field!r}: {bad[0]!r} is not text, a number or a truth value")
    return Condition(field, values, {})


def _checked_bounds(field: str, bounds: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    names = tuple(_OPERATORS.values())
    unknown = [name for name in bounds if name not in names]
    if unknown or not bounds:
        raise FilterError(f"filter on {field!r}: a range takes {', '.join(names)}; got {', '.join(unknown) or 'none'}")
    for bound in bounds.values():
        if not isinstance(bound, str | int | float):
            raise FilterError(f"filter on {field!r}: the bound {bound!r} is neither a number nor text")
    return bounds


def _writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
