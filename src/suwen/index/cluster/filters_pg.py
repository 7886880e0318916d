"""Metadata filters as SQL over the truth of a cluster index. What they may say is :mod:`suwen.index.filters`'."""

from __future__ import annotations

from suwen.corpora.records import Scalar
from suwen.index.cluster.stored import fields
from suwen.index.cluster.truth import Connection
from suwen.index.cluster.wire import number, rows_of
from suwen.index.engine import Rows
from suwen.index.filters import AnyOf, Filter, Where, Within, read_where
from suwen.index.filters_sql import OPERATORS, Compiled, Kind, check_values, combined

_OF_FIELD = "SELECT document FROM attributes WHERE key = %s"
#: A long text is found by its beginning, which is what the index holds.
_SAME_TEXT = "left(text, 100) = ANY(%s) AND text = ANY(%s)"

_CLAUSES: dict[Kind, str] = {
    "text": "text IS NOT NULL",
    "word": "text IS NOT NULL AND spelled IS NULL",
    "number": "coalesce(number, spelled) IS NOT NULL",
}


def admitted(connection: Connection, where: Where) -> Rows:
    """The live rows that a filter admits, ascending."""
    found = read_where(where)
    _check_fields(connection, found)
    clause, given = combined(found, _simple, _OF_FIELD)
    return rows_of(connection.execute(f"SELECT row FROM passages WHERE {clause} ORDER BY row".encode(), given))


def _check_fields(connection: Connection, found: Filter) -> None:
    """Refuse a filter on a field that no document has, or with what no value of it can be."""
    query = "SELECT text, number FROM attributes WHERE key = %s"

    def example(field: str) -> Scalar | None:
        row = None if "\0" in field else connection.execute(f"{query} LIMIT 1", (field,)).fetchone()
        return None if row is None else row[0] if row[0] is not None else float(row[1])

    def held(field: str, kind: Kind) -> bool:
        return connection.execute(f"{query} AND {_CLAUSES[kind]} LIMIT 1".encode(), (field,)).fetchone() is not None

    check_values(found, example, held, lambda: fields(connection))


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
