"""What is said of the keys of a TOML file: the place in it, the reason, the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from suwen.toml_keys import explain_keys


class Item(BaseModel):
    """One of a list."""

    model_config = ConfigDict(extra="forbid")

    name: str
    counts: dict[str, int] = {}
    words: tuple[str, ...] = ()


class Table(BaseModel):
    """A whole file."""

    items: list[Item] = Field(min_length=1)


def said(kind: Any, data: Any, **more: str) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(data)
    return explain_keys(Path("a.toml"), data, caught.value, **more)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            {"items": [{"name": "One", "count": 1}]},
            "items[0] (One).count: no such key. Remove it or correct its spelling.",
        ),
        ({}, "items: missing. Add it."),
        ({"items": [{"name": "One", "words": "w"}]}, 'items[0] (One).words: a list belongs here, such as ["a", "b"]. '),
        ({"items": [{"name": 3}]}, "items[0] (3).name: Input should be a valid string. Correct this value."),
        ({"items": [3]}, "items[0]: a table of keys belongs here. Correct this value."),
        ({"items": []}, "items: List should have at least 1 item after validation, not 0. Correct this value."),
        (3, "the file: a table of keys belongs here."),
    ],
)
def test_a_line_names_the_key_the_reason_and_the_fix(data: Any, line: str) -> None:
    assert said(Table, data).startswith(f"a.toml: {line}")


def test_every_key_has_a_line_and_the_fix_for_a_missing_one_is_the_callers() -> None:
    told = said(dict[str, Item], {"one": {"counts": {"x": "y"}}, "two": 3}, missing="Write it.")
    assert told.splitlines()[0] == "a.toml: one.name: missing. Write it."
    assert told.splitlines()[1].startswith("a.toml: one.counts.x: Input should be a valid integer")
    assert told.splitlines()[2:] == ["a.toml: two: a table of keys belongs here. Correct this value."]
    assert "pydantic" not in told
