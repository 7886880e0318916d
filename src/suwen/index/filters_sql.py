"""Metadata filters as SQL over the truth of an embedded index. What they may say is :mod:`suwen.index.filters`'."""

from __future__ import annotations

import json
import math

from suwen.corpora.records import Scalar
from suwen.index.filters import Condition, Where, conditions

_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def compile_where(where: Where) -> tuple[str, list[Scalar]]:
    """SQL that selects the live rows a filter admits, in ascending order, and its parameters."""
    clauses, parameters = [], []
    for condition in conditions(where):
        clause, values = _range(condition) if condition.bounds else _any_of(condition)
        clauses.append(f"document IN (SELECT document FROM attributes WHERE key = ? AND {clause})")
        parameters += [condition.field, *values]
    return f"SELECT row FROM passages WHERE {' AND '.join(clauses) or '1'} ORDER BY row", parameters


def _any_of(condition: Condition) -> tuple[str, list[Scalar]]:
    # As one JSON parameter: SQLite takes 32,766 parameters at the most, and no integer over 64 bits.
    finite = [value for value in condition.values if isinstance(value, str | int) or math.isfinite(value)]
    return "value IN (SELECT value FROM json_each(?))", [json.dumps(finite)]


def _range(condition: Condition) -> tuple[str, list[Scalar]]:
    parts, values = [], []
    for name, bound in condition.bounds.items():
        # SQLite sorts every number before every text, so a bound must be held to its own type.
        kind = "typeof(value) = 'text'" if isinstance(bound, str) else "typeof(value) IN ('integer', 'real')"
        parts.append(f"value {_OPERATORS[name]} ? AND {kind}")
        values.append(bound.encode(errors="replace").decode() if isinstance(bound, str) else storable(bound))
    return " AND ".join(parts), values


def storable(number: float) -> float:
    """A number as SQLite can hold it: integers over 64 bits become floats."""
    try:
        return number if isinstance(number, float) or -(2**63) <= number < 2**63 else float(number)
    except OverflowError:
        return math.copysign(math.inf, number)
