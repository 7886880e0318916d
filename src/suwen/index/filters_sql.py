"""Metadata filters as SQL: what all databases share, and what SQLite has, over the truth of an embedded index.

What filters may say is :mod:`suwen.index.filters`'.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from suwen.corpora.records import Metadata, Scalar
from suwen.index.filters import (
    AnyOf,
    Either,
    Every,
    Filter,
    Missing,
    Not,
    Within,
    conditions,
    no_number,
    no_numbers,
    number_of,
    otherwise_spelled,
    unknown_field,
    unlike_stored,
    wrong_kind,
)

OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_OF_FIELD = "SELECT document FROM attributes WHERE key = ?"
#: SQLite sorts every number before every text; those texts that spell a number begin with a sign before the colon.
_NUMBERS, _TEXTS, _MAY_SPELL = "value < ''", "value >= ''", "value >= '' AND value < ':'"
#: Texts, texts that spell no number, and values that are numbers or spell one.
Kind = Literal["text", "word", "number"]
#: Those that are found at once come first.
_CLAUSES: dict[Kind, tuple[str, ...]] = {
    "text": (_TEXTS,),
    "word": ("value >= ':'", f"{_MAY_SPELL} AND number_of(value) IS NULL"),
    "number": (_NUMBERS, f"{_MAY_SPELL} AND number_of(value) IS NOT NULL"),
}

#: A condition, and its parameters: those of the database that it is meant for.
Compiled = tuple[str, list[Any]]


def teach(connection: sqlite3.Connection) -> None:
    """Give a connection what the SQL of filters calls."""
    connection.create_function("number_of", 1, _spelled, deterministic=True)


def compile_filter(found: Filter, after: int = 0) -> Compiled:
    """SQL that selects the live rows a filter admits, in ascending order, and its parameters.

    Args:
        found: The filter.
        after: Only rows above this one are asked for: documents before the first of theirs are not looked at.
    """
    clause, parameters = combined(found, _simple, _OF_FIELD)
    if after:
        # With the sign SQLite looks for the row; without it, through all documents for the first with such a row.
        first = f"(SELECT min(+document) FROM passages WHERE row > {int(after)})"
        clause = f"row > {int(after)} AND ({clause.replace(_OF_FIELD, f'{_OF_FIELD} AND document >= {first}')})"
    return f"SELECT row FROM passages WHERE {clause} ORDER BY row", parameters


def check_fields(connection: sqlite3.Connection, found: Filter, fields: Callable[[], Sequence[str]]) -> None:
    """Refuse a filter on a field that no document has, or with what no value of it can be."""

    def example(field: str) -> Scalar | None:
        record = connection.execute("SELECT value FROM attributes WHERE key = ? LIMIT 1", (field,)).fetchone()
        return None if record is None else cast(Scalar, record[0])

    def held(field: str, kind: Kind) -> bool:
        queries = (f"SELECT 1 FROM attributes WHERE key = ? AND {clause} LIMIT 1" for clause in _CLAUSES[kind])
        return any(connection.execute(query, (field,)).fetchone() for query in queries)

    check_values(found, example, held, fields)


def check_values(
    found: Filter,
    example: Callable[[str], Scalar | None],
    held: Callable[[str, Kind], bool],
    fields: Callable[[], Sequence[str]],
) -> None:
    """Refuse a filter on a field that no document has, or with what no value of it can be, in any database.

    Args:
        found: The filter.
        example: A value of a field; None where no document has one.
        held: Whether any value of a field is of a kind.
        fields: All fields that are there.
    """
    for one in conditions(found):
        value = example(one.field)
        if value is None:
            raise unknown_field(one.field, fields())
        if isinstance(one, AnyOf) and (isinstance(value, str) or held(one.field, "text")):
            odd = otherwise_spelled(one)
            if odd and not held(one.field, "word"):
                raise unlike_stored(one.field, odd[0], value)
        elif isinstance(one, AnyOf) and (texts := no_numbers(one)):
            raise no_number(one.field, texts[0], value)
        for _, bound in one.bounds if isinstance(one, Within) else ():
            if not held(one.field, "word" if isinstance(bound, str) else "number"):
                raise wrong_kind(one.field, bound, value)


def combined(found: Filter, simple: Callable[[AnyOf | Within], Compiled], of_field: str) -> Compiled:
    """A condition of SQL and its parameters: how conditions combine, which every database has alike.

    Args:
        found: The filter.
        simple: Makes the condition of one that holds no others, in the words of a database.
        of_field: Selects the documents that have a field, which is its one parameter.
    """
    if isinstance(found, Not):
        clause, parameters = combined(found.part, simple, of_field)
        return f"NOT ({clause})", parameters
    if isinstance(found, Every | Either):
        parts = [combined(part, simple, of_field) for part in found.parts]
        joint = " AND " if isinstance(found, Every) else " OR "
        return joint.join(f"({clause})" for clause, _ in parts) or "1 = 1", [one for _, given in parts for one in given]
    if isinstance(found, Missing):
        return f"document NOT IN ({of_field})", [found.field]
    return simple(found)


def _simple(found: AnyOf | Within) -> Compiled:
    return _any_of(found) if isinstance(found, AnyOf) else _within(found)


def _any_of(found: AnyOf) -> Compiled:
    # As one JSON parameter: SQLite takes 32,766 parameters at the most, and no integer over 64 bits.
    query = f"{_OF_FIELD} AND value IN (SELECT value FROM json_each(?))"
    parameters: list[Scalar] = [found.field, json.dumps([*found.texts, *found.numbers])]
    if found.spelled:
        query += f" UNION ALL {_OF_FIELD} AND {_MAY_SPELL} AND number_of(value) IN (SELECT value FROM json_each(?))"
        parameters += [found.field, json.dumps(found.spelled)]
    return f"document IN ({query})", parameters


def _within(found: Within) -> Compiled:
    held = [(OPERATORS[name], bound) for name, bound in found.bounds]
    bounds = [bound if isinstance(bound, str) else storable(bound) for _, bound in held]
    numeric = [not isinstance(bound, str) for bound in bounds]
    as_text = [
        f"{'number_of(value)' if number else 'value'} {sign} ?" for (sign, _), number in zip(held, numeric, strict=True)
    ]
    kind = _MAY_SPELL if any(numeric) else _TEXTS
    query, parameters = f"{_OF_FIELD} AND {kind} AND {' AND '.join(as_text)}", [found.field, *bounds]
    if all(numeric):
        as_numbers = " AND ".join(f"value {sign} ?" for sign, _ in held)
        query += f" UNION ALL {_OF_FIELD} AND {_NUMBERS} AND {as_numbers}"
        parameters *= 2
    return f"document IN ({query})", parameters


def _spelled(text: str) -> float | None:
    number = number_of(text)
    return None if number is None else storable(number)


def storable(number: float) -> float:
    """A number as SQLite can hold it: integers over 64 bits become floats."""
    try:
        return number if isinstance(number, float) or -(2**63) <= number < 2**63 else float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def attribute_rows(number: int | None, metadata: Metadata) -> list[tuple[int | None, str, object]]:
    """A document's metadata as filters look them up: a row for each value of each field."""
    return [
        (number, key, value if isinstance(value, str) else storable(value))
        for key, values in metadata.items()
        for value in (values if isinstance(values, list) else [values])
        if value is not None and value == value  # NaN is not equal to itself, nor to anything a filter could ask for
    ]
