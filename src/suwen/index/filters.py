"""Metadata filters: what a caller may ask, checked, and turned into SQL over the truth. No searching here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from suwen.corpora.records import Scalar
from suwen.errors import SuwenError

#: ``{"topic": "用药"}`` equality, ``{"lang": ["zh", "en"]}`` any of, ``{"year": {"gte": 2020, "lt": 2025}}`` range.
Where = Mapping[str, Scalar | Sequence[Scalar] | Mapping[str, Scalar]]

_BOUNDS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
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
        if operator == "=":
            wanted = where.setdefault(key, [])
            if not isinstance(wanted, list):
                raise FilterError(f"field {key!r} has both '=' and a range: use one of them")
            wanted.extend(form for part in value.split("|") for form in _forms(part.strip()))
        else:
            bounds = where.setdefault(key, {})
            if not isinstance(bounds, dict):
                raise FilterError(f"field {key!r} has both '=' and a range: use one of them")
            bounds[_OPERATORS[operator]] = _forms(value)[0]
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


def compile_where(where: Where) -> tuple[str, list[Scalar]]:
    """SQL that selects the live rows a filter admits, in ascending order, and its parameters."""
    if not isinstance(where, Mapping):
        raise FilterError(f"a filter is a mapping of field to value, not {type(where).__name__}")
    conditions, parameters = [], []
    for key, wanted in where.items():
        if not isinstance(key, str) or not _writable(key):
            raise UnknownField(f"{key!r} is not the name of a field: no document has the field")
        condition, values = _condition(key, wanted)
        conditions.append(f"document IN (SELECT document FROM attributes WHERE key = ? AND {condition})")
        parameters += [key, *values]
    clause = " AND ".join(conditions) or "1"
    return f"SELECT row FROM passages WHERE {clause} ORDER BY row", parameters


def _condition(key: str, wanted: Scalar | Sequence[Scalar] | Mapping[str, Scalar]) -> tuple[str, list[Scalar]]:
    if isinstance(wanted, Mapping):
        return _range(key, wanted)
    if not isinstance(wanted, str | int | float | bool | Sequence | set | frozenset):
        raise FilterError(f"filter on {key!r}: {wanted!r} is not a value, a list of values or a range")
    values = [wanted] if isinstance(wanted, str | int | float | bool) else list(wanted)
    bad = [value for value in values if not isinstance(value, str | int | float | bool)]
    if bad:
        raise FilterError(f"filter on {key!r}: {bad[0]!r} is not text, a number or a truth value")
    # As one JSON parameter: SQLite takes 32,766 parameters at the most, and no integer over 64 bits.
    finite = [value for value in values if isinstance(value, str | int) or math.isfinite(value)]
    return "value IN (SELECT value FROM json_each(?))", [json.dumps(finite)]


def _range(key: str, bounds: Mapping[str, Scalar]) -> tuple[str, list[Scalar]]:
    unknown = [name for name in bounds if name not in _BOUNDS]
    if unknown or not bounds:
        raise FilterError(f"filter on {key!r}: a range takes {', '.join(_BOUNDS)}; got {', '.join(unknown) or 'none'}")
    parts, values = [], []
    for name, bound in bounds.items():
        if not isinstance(bound, str | int | float):
            raise FilterError(f"filter on {key!r}: the bound {bound!r} is neither a number nor text")
        # SQLite sorts every number before every text, so a bound must be held to its own type.
        kind = "typeof(value) = 'text'" if isinstance(bound, str) else "typeof(value) IN ('integer', 'real')"
        parts.append(f"value {_BOUNDS[name]} ? AND {kind}")
        values.append(bound.encode(errors="replace").decode() if isinstance(bound, str) else storable(bound))
    return " AND ".join(parts), values


def storable(number: float) -> float:
    """A number as SQLite can hold it: integers over 64 bits become floats."""
    try:
        return number if isinstance(number, float) or -(2**63) <= number < 2**63 else float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
