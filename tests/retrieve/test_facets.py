"""Facets and sorting, held against what a page of Python would count."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.corpora.records import Passage
from suwen.index.engine import StoredPassage
from suwen.retrieve.facets import MOST_VALUES, count_values, in_order

VALUE = st.one_of(st.integers(-2, 3), st.booleans(), st.sampled_from([0.5, "a", "b", "10", "9", ""]), st.none())
GIVEN = st.lists(st.one_of(VALUE, st.lists(VALUE, max_size=3)), max_size=12)


def found(*values: Any, passages: int = 1) -> list[StoredPassage]:
    """The passages of one document for each value of the field."""
    return [
        StoredPassage(passages * number + part, Passage(f"d{number}", part, "文", 0, 1), {"v": value}, "static")
        for number, value in enumerate(values)
        for part in range(passages)
    ]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(values=GIVEN)
def test_counts_are_of_documents(values: list[Any]) -> None:
    facet = count_values(found(*values, passages=2), "v")
    lists = [[one for one in (each if isinstance(each, list) else [each]) if one is not None] for each in values]
    assert facet.missing == sum(not each for each in lists)
    for one in facet.values:
        same = [each for each in lists if any(value == one.value and type(value) is type(one.value) for value in each)]
        assert one.count == len(same)
    assert {(type(one.value), one.value) for one in facet.values} == {(type(v), v) for each in lists for v in each}
    assert [one.count for one in facet.values] == sorted((one.count for one in facet.values), reverse=True)


def test_the_most_frequent_values_are_named_and_the_others_counted() -> None:
    facet = count_values(found(*range(MOST_VALUES + 5), 7), "v")
    assert (facet.values[0].value, facet.values[0].count, len(facet.values), facet.more) == (7, 2, MOST_VALUES, 5)


def test_numbers_come_before_texts_and_nothing_comes_last() -> None:
    items = found("b", 3, None, "10", [], [20, 1], "a", 3)
    values = ["b", 3, None, "10", [], [20, 1], "a", 3]
    assert [values[item.row] for item in in_order(items, "v", False)] == [[20, 1], 3, 3, "10", "a", "b", None, []]
    assert [values[item.row] for item in in_order(items, "v", True)] == ["b", "a", [20, 1], "10", 3, 3, None, []]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(values=GIVEN, descending=st.booleans())
def test_equal_ones_stay_as_they_were(values: list[Any], descending: bool) -> None:
    once = in_order(found(*values), "v", descending)
    assert in_order(once, "v", descending) == once
    assert sorted(item.row for item in once) == list(range(len(values)))
