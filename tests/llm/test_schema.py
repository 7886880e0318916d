"""Holding values to a schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.llm.schema import SchemaProblem, check_schema, fault, is_strict

VOTES = {
    "type": "object",
    "properties": {
        "votes": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"enum": ["p1", "p2"]},
                    "grade": {"type": ["string", "null"], "pattern": "^[SABCD]$"},
                    "sure": {"type": "number", "minimum": 0, "maximum": 1},
                },
                "required": ["id", "grade"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["votes"],
}


def votes(**fields: Any) -> dict[str, Any]:
    return {"votes": [{"id": "p1", "grade": "S"} | fields]}


@pytest.mark.parametrize("value", [votes(), votes(grade=None), votes(sure=1), votes() | {"more": 1}])
def test_good_values(value: Any) -> None:
    check_schema(VOTES)
    assert fault(value, VOTES) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "$: [] is not of type object"),
        ({}, '$: "votes" is missing'),
        ({"votes": []}, "$.votes: 0 items, at least 1 are needed"),
        ({"votes": [votes()["votes"][0]] * 4}, "$.votes: 4 items, at most 3 are allowed"),
        (votes(id="p3"), '$.votes[0].id: "p3" is not one of "p1", "p2"'),
        (votes(grade="E"), '$.votes[0].grade: "E" does not match ^[SABCD]$'),
        (votes(grade=1), "$.votes[0].grade: 1 is not of type string or null"),
        (votes(sure=1.5), "$.votes[0].sure: 1.5 is more than 1"),
        (votes(sure=True), "$.votes[0].sure: true is not of type number"),
        (votes(why="x"), '$.votes[0]: "why" does not belong here'),
    ],
)
def test_bad_values_are_named_with_their_place(value: Any, told: str) -> None:
    assert fault(value, VOTES) == told


@pytest.mark.parametrize(
    ("value", "schema", "good"),
    [
        (3.0, {"type": "integer"}, True),
        (3.5, {"type": "integer"}, False),
        (True, {"type": "integer"}, False),
        (True, {"enum": [1]}, False),
        (1, {"const": 1.0}, True),
        ("", {"type": "string", "minLength": 1}, False),
        ([1, 2, 1], {"uniqueItems": True}, False),
        ([1, True], {"uniqueItems": True}, True),
        (5, {"anyOf": [{"type": "string"}, {"minimum": 5}]}, True),
        (4, {"anyOf": [{"type": "string"}, {"minimum": 5}]}, False),
        ({"x": "a"}, {"additionalProperties": {"type": "integer"}}, False),
        ({}, {"minProperties": 1}, False),
    ],
)
def test_single_rules(value: Any, schema: dict[str, Any], good: bool) -> None:
    check_schema(schema)
    assert (fault(value, schema) is None) is good


@pytest.mark.parametrize(
    "schema", [{"oneOf": []}, {"$ref": "#/$defs/vote"}, {"items": {"format": "date"}}, {"type": "float"}, []]
)
def test_a_rule_that_is_not_enforced_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaProblem):
        check_schema(schema)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_any_value_is_judged_without_a_crash_and_fits_itself(value: Any) -> None:
    assert isinstance(fault(value, VOTES), str | None)
    assert fault(value, {"const": value}) is None


def test_strict_means_closed_and_complete() -> None:
    closed = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}
    assert is_strict(closed)
    assert not is_strict(closed | {"required": []})
    assert not is_strict(VOTES)
    assert not is_strict({"type": "array", "items": {"type": "object"}})
