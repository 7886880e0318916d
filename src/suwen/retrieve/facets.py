"""What a search found, by the fields of its documents: counted per value (facets), or put in the order of one. Pure.

Everything is somehow near to a query, so both speak of the best passages alone: as many as :data:`FOUND`, or as the
page that is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from suwen.corpora.records import Scalar
from suwen.index.engine import Snapshot, StoredPassage
from suwen.index.filters import number_of, unknown_field
from suwen.retrieve.ranking import STEPS, Ranked
from suwen.retrieve.results import Facet, FacetValue

#: The best passages that are counted and sorted: what the legs are sure of without being read deeper.
FOUND = STEPS[0] // 2
#: Values of a field that are counted one by one, the most frequent first.
MOST_VALUES = 20


def look_over(
    snapshot: Snapshot, ranking: Iterator[Ranked], k: int, sort: str | None, fields: Sequence[str]
) -> tuple[Iterator[Ranked], dict[str, Facet]]:
    """A ranking in the order asked for, and the facets of its best.

    Args:
        snapshot: Where it was found.
        ranking: The best first.
        k: How many hits a page has.
        sort: A field, or a minus and a field for the largest first; None for the ranking's own order.
        fields: Whose values are counted.
    """
    if sort is None and not fields:
        return ranking, {}
    best = list(islice(ranking, max(FOUND, k)))
    items = snapshot.fetch([place.row for place in best])
    _check_fields(snapshot, items, fields, "facets")
    _check_fields(snapshot, items, [sort.removeprefix("-")] if sort else [], "sort")
    facets = {field: count_values(items, field) for field in fields}
    if sort is None:
        return chain(best, ranking), facets
    rows = {place.row: place for place in best}
    return iter([rows[item.row] for item in in_order(items, sort.removeprefix("-"), sort.startswith("-"))]), facets


def count_values(items: Iterable[StoredPassage], field: str) -> Facet:
    """The values of a field among the documents of these passages; each document counts once for each."""
    documents = {item.passage.document_id: item for item in items}
    # True equals 1 to a dict, and not to a reader.
    counts = Counter(
        one
        for item in documents.values()
        for one in {(isinstance(value, bool), value) for value in values(item, field)}
    )
    order = sorted(counts.items(), key=lambda one: (-one[1], _rank(one[0][1])))
    named = tuple(FacetValue(value, count) for (_, value), count in order[:MOST_VALUES])
    missing = sum(not values(item, field) for item in documents.values())
    return Facet(named, max(0, len(order) - MOST_VALUES), missing)


def in_order(items: Sequence[StoredPassage], field: str, descending: bool) -> list[StoredPassage]:
    """Passages by a field: numbers, then texts; of a list its first in that order. Those without it come last.

    Equal ones stay as they were.
    """
    having = [item for item in items if values(item, field)]
    pick = max if descending else min
    ordered = sorted(having, key=lambda item: pick(map(_rank, values(item, field))), reverse=descending)
    return ordered + [item for item in items if not values(item, field)]


def values(item: StoredPassage, field: str) -> list[Scalar]:
    """The values of a field, as filters know them."""
    found: Any = item.metadata.get(field)
    return [one for one in (found if isinstance(found, list) else [found]) if one is not None and one == one]


def _rank(value: Scalar) -> tuple[bool, Scalar]:
    number = number_of(value) if isinstance(value, str) else value
    return (True, value) if number is None else (False, number)


def _check_fields(snapshot: Snapshot, items: Sequence[StoredPassage], fields: Sequence[str], where: str) -> None:
    for field in fields:
        # Where a hit has it, nobody needs to be asked.
        if not any(values(item, field) for item in items) and field not in (known := snapshot.fields()):
            problem = unknown_field(field, known)
            problem.where = where
            raise problem
