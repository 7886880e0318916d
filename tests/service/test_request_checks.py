"""What every request is held to, whichever endpoint it is for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from suwen.service.problems import Problem
from suwen.service.request_checks import Asked, Part, check_count, check_length, cleaned


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
