"""What a filter and metadata of a request may hold, and that the first thing wrong is the one told."""

from __future__ import annotations

from typing import Any

import pytest

from suwen.service.filter_checks import checked_filter, checked_metadata


def nested(levels: int) -> dict[str, Any]:
    where: dict[str, Any] = {"a": 1}
    for _ in range(levels):
        where = {"$not": where}
    return where


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "neither text"),
        ({f"k{n}": 1 for n in range(65)}, "more than 64 conditions"),
        ({"$or": [{"a": n} for n in range(65)]}, "more than 64 conditions"),
        ({"$or": [{"a": {"gte": n, "lt": n + 1}} for n in range(33)]}, "more than 64 conditions"),
        ({"a": [[]] * 5000}, "list is not text"),
        ({"a": [None, 1]}, "NoneType is not text"),
        ({"a": [1] * 10_001}, "more than 10000 values"),
        ({"$and": [{"a": [1] * 6000}, {"b": [1] * 6000}]}, "more than 10000 values"),
        ({"a": {f"op{n}": 1 for n in range(8)}}, "8 operators, at most 7"),
        ({"a": {"gte": [{}]}}, "dict is not text"),
        ({"a": 1e999}, "too large"),
        ({"$and": [1]}, "not an object"),
        (nested(9), "deeper than 8"),
        ("a=" + "x" * 8192, "8194 characters"),
    ],
)
def test_a_filter_is_looked_at_up_to_the_first_thing_that_is_wrong(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked_filter(value)


@pytest.mark.parametrize(
    "where",
    [
        {"a": 1, "b": ["x", 2.5, True], "c": {"gte": 2020, "ne": ["x"]}, "年": 2**70, "d": None},
        {"$or": [{"a": 1}, {"$not": {"b": {"missing": True}}}]},
        nested(8),
        "year>=2020 AND lang is missing",
    ],
)
def test_a_filter_that_is_right_is_left_as_it_is(where: Any) -> None:
    assert checked_filter(where) is where


def test_null_in_metadata_is_no_value() -> None:
    given = {"a": None, "b": [None, 1, None], "c": [], "d": [None], "e": "x", "f": False}
    assert checked_metadata(given) == {"b": [1], "c": [], "d": [], "e": "x", "f": False}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a", "not an object"),
        ({f"k{n}": 1 for n in range(257)}, "257 fields, at most 256"),
        ({"a": {"b": 1}}, "dict is not text"),
        ({"a": [None, [1]]}, "list is not text"),
        ({"a": [1] * 10_001}, "10001 values, at most 10000"),
    ],
)
def test_metadata_is_flat(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked_metadata(value)
