"""Metadata filters as SQL over the truth of a cluster index. What they may say is :mod:`suwen.index.filters`'."""

from __future__ import annotations

import json
from typing import Any

from suwen.index.cluster.stored import clean, fields, finite, number, rows_of
from suwen.index.cluster.truth import Connection
from suwen.index.engine import Rows
from suwen.index.filters import Condition, Where, conditions, unknown_field

_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
#: A long text is found by its beginning, which is what the index holds.
_SAME_TEXT = "left(text, 100) = ANY(%s) AND text = ANY(%s)"
_SAME_NUMBER = "number IN (SELECT value::numeric FROM jsonb_array_elements_text(%s::jsonb))"

Compiled = tuple[str, list[Any]]


def admitted(connection: Connection, where: Where) -> Rows:
    """The live rows that a filter admits, ascending."""
    wanted = conditions(where)
    for one in wanted:
        found = connection.execute("SELECT 1 FROM attributes WHERE key = %s LIMIT 1", (clean(one.field),)).fetchone()
        if found is None or clean(one.field) != one.field:
            raise unknown_field(one.field, fields(connection))
    parts = [_compiled(one) for one in wanted]
    clause = " AND ".join(clause for clause, _ in parts) or "true"
    given = [value for _, values in parts for value in values]
    return rows_of(connection.execute(f"SELECT row FROM passages WHERE {clause} ORDER BY row".encode(), given))


def _compiled(one: Condition) -> Compiled:
    clause, values = _within(one) if one.bounds else _any_of(one)
    return f"document IN (SELECT document FROM attributes WHERE key = %s AND {clause})", [one.field, *values]


def _any_of(one: Condition) -> Compiled:
    texts = [value for value in one.values if isinstance(value, str) and clean(value) == value]
    numbers = json.dumps([str(value) for value in finite(one.values)])
    return f"({_SAME_TEXT} OR {_SAME_NUMBER})", [[text[:100] for text in texts], texts, numbers]


def _within(one: Condition) -> Compiled:
    parts, values = [], []
    for name, bound in one.bounds.items():
        parts.append(f"{'text' if isinstance(bound, str) else 'number'} {_OPERATORS[name]} %s")
        values.append(clean(bound) if isinstance(bound, str) else number(bound))
    return " AND ".join(parts), values
