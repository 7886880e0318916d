"""What every request is held to, whichever endpoint it is for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from suwen.service.problems import Problem
from suwen.service.request_checks import Asked, Part, check_count, check_length, checked_values, cleaned


def test_texts_are_cleaned_and_keep_their_order() -> None:
    assert cleaned([" 头痛\u200b", "fever"], "input", 2, 10) == ["头痛", "fever"]


@pytest.mark.parametrize(
    ("texts", "code", "param"),
    [
        ([], "invalid_request", "input"),
        (["a", "b", "c"], "too_many", "input"),
        (["a", "b" * 11], "text_too_long", "input[1]"),
        (["a", " \u200b "], "invalid_request", "input[1]"),
    ],
)
def test_a_text_that_cannot_be_encoded_is_named(texts: list[str], code: str, param: str) -> None:
    with pytest.raises(Problem) as problem:
        cleaned(texts, "input", 2, 10)
    assert (problem.value.code, problem.value.param) == (code, param)


def test_what_is_just_within_the_limits_passes() -> None:
    check_count(2, 2, "ids")
    check_length("ab", 2, "query")


def test_a_body_has_no_unknown_field() -> None:
    with pytest.raises(ValueError, match="extra"):
        Asked.model_validate({"unknown": 1})


def test_of_thousands_of_unknown_fields_in_a_part_one_is_told() -> None:
    with pytest.raises(ValidationError, match="no such field") as caught:
        Part.model_validate({f"unknown{number}": 1 for number in range(10_000)})
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "not an object"),
        ({f"k{n}": 1 for n in range(65)}, "65 fields, at most 64"),
        ({"a": [None] * 5000}, "NoneType is not text"),
        ({"a": [1] * 10_001}, "10001 values, at most 10000"),
        ({"a": {"gte": 1, "lt": 2, "gt": 3, "lte": 4, "x": 5}}, "5 values, at most 4"),
        ({"a": {"gte": [1]}}, "list is not text"),
        ({"a": 1e999}, "too large"),
    ],
)
def test_a_filter_is_looked_at_up_to_the_first_thing_that_is_wrong(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked_values(value, 64, ranges=True)


def test_a_filter_that_is_right_is_left_as_it_is() -> None:
    where = {"a": 1, "b": ["x", 2.5, True], "c": {"gte": 2020}, "年": 2**70}
    assert checked_values(where, 64, ranges=True) is where
    with pytest.raises(ValueError, match="dict is not text"):
        checked_values(where, 64, ranges=False)
