"""Metadata filters as SQL over the truth of a cluster index. What they may say is :mod:`suwen.index.filters`'."""

from __future__ import annotations

from suwen.index.cluster.stored import fields
from suwen.index.cluster.truth import Connection
from suwen.index.cluster.wire import number, rows_of
from suwen.index.engine import Rows
from suwen.index.filters import (
    AnyOf,
    Filter,
    Where,
    Within,
    conditions,
    no_number,
    no_numbers,
    otherwise_spelled,
    read_where,
    unknown_field,
    unlike_stored,
    wrong_kind,
)
from suwen.index.filters_sql import OPERATORS, Compiled, combined

_OF_FIELD = "SELECT document FROM attributes WHERE key = %s"
#: A long text is found by its beginning, which is what the index holds.
_SAME_TEXT = "left(text, 100) = ANY(%s) AND text = ANY(%s)"

#: Text that spells no number.
_WORDS = "text IS NOT NULL AND spelled IS NULL"


def admitted(connection: Connection, where: Where) -> Rows:
    """The live rows that a filter admits, ascending."""
    found = read_where(where)
    _check_fields(connection, found)
    clause, given = combined(found, _simple, _OF_FIELD)
    return rows_of(connection.execute(f"SELECT row FROM passages WHERE {clause} ORDER BY row".encode(), given))


def _check_fields(connection: Connection, found: Filter) -> None:
    """Refuse a filter on a field that no document has, or with what no value of it can be."""
    query = "SELECT text, number FROM attributes WHERE key = %s"

    def held(field: str, kind: str) -> bool:
        return connection.execute(f"{query} AND {kind} LIMIT 1".encode(), (field,)).fetchone() is not None

    for one in conditions(found):
        row = None if "\0" in one.field else connection.execute(f"{query} LIMIT 1", (one.field,)).fetchone()
        if row is None:
            raise unknown_field(one.field, fields(connection))
        example = row[0] if row[0] is not None else float(row[1])
        if isinstance(one, AnyOf) and (isinstance(example, str) or held(one.field, "text IS NOT NULL")):
            odd = otherwise_spelled(one)
            if odd and not held(one.field, _WORDS):
                raise unlike_stored(one.field, odd[0], example)
        elif isinstance(one, AnyOf) and (texts := no_numbers(one)):
            raise no_number(one.field, texts[0], example)
        for _, bound in one.bounds if isinstance(one, Within) else ():
            if not held(one.field, _WORDS if isinstance(bound, str) else "coalesce(number, spelled) IS NOT NULL"):
                raise wrong_kind(one.field, bound, example)


def _simple(found: AnyOf | Within) -> Compiled:
    return _any_of(found) if isinstance(found, AnyOf) else _within(found)


def _any_of(found: AnyOf) -> Compiled:
    texts = [text for text in found.texts if "\0" not in text]
    ways: list[Compiled] = [(_SAME_TEXT, [[text[:100] for text in texts], texts])] if texts else []
    for column, wanted in (("number", found.numbers), ("spelled", found.spelled)):
        if wanted:
            # Unnested, so that a long list is hashed and not looked up in the index one by one.
            listed = "{" + ",".join(repr(one) if type(one) is int else str(number(one)) for one in wanted) + "}"
            ways.append((f"{column} IN (SELECT unnest(%s::numeric[]))", [listed]))
    if not ways:
        return "false", []
    queries = [f"{_OF_FIELD} AND {clause}" for clause, _ in ways]
    return f"document IN ({' UNION ALL '.join(queries)})", [one for _, given in ways for one in (found.field, *given)]


def _within(found: Within) -> Compiled:
    given = [bound.replace("\0", "") if isinstance(bound, str) else number(bound) for _, bound in found.bounds]
    numeric = not any(isinstance(bound, str) for bound in given)
    queries = []
    # Each column by its own index; beside a bound that is text, only what a text spells can meet one that is a number.
    for column in ("number", "spelled") if numeric else ("spelled",):
        parts = [f"{'text' if isinstance(b, str) else column} {OPERATORS[name]} %s" for name, b in found.bounds]
        queries.append(f"{_OF_FIELD} AND {' AND '.join(parts)}")
    return f"document IN ({' UNION ALL '.join(queries)})", [found.field, *given] * len(queries)
