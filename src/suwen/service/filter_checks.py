"""How much a filter or metadata of a request may hold: looked at by hand, up to the first thing that is wrong.

pydantic tries every kind for every value, and tells all that is wrong. What a filter means, the engine says.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from suwen.index.filters import COMBINED, OPERATORS

_SCALAR: dict[str, Any] = {"anyOf": [{"type": kind} for kind in ("string", "integer", "number", "boolean")]}
_LONGEST_LIST = 10_000
_MOST_METADATA = 256
#: Of one filter: conditions, values in all of them, levels of ``$and``, ``$or`` and ``$not``, and characters of a text.
_MOST_CONDITIONS, _MOST_VALUES, _DEEPEST, _LONGEST_TEXT = 64, _LONGEST_LIST, 8, 8192


def checked_metadata(value: Any) -> dict[str, Any]:
    """Metadata: a value or a list of values under each field. Null is no value, and is left out."""
    _check_object(value)
    if len(value) > _MOST_METADATA:
        raise ValueError(f"it has {len(value)} fields, at most {_MOST_METADATA} are taken")
    kept = {}
    for field, given in value.items():
        listed = given if isinstance(given, list) else [given]
        _check_values(field, there := [one for one in listed if one is not None], _LONGEST_LIST)
        if isinstance(given, list) or there:
            kept[field] = there if isinstance(given, list) else given
    return kept


def checked_filter(value: Any) -> Any:
    """A filter: text, or an object of fields and of filters of filters."""
    if not isinstance(value, str | dict):
        raise ValueError("it is neither text, such as 'year>=2020 AND lang=zh', nor an object of fields")
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT:
            raise ValueError(f"it has {len(value)} characters, at most {_LONGEST_TEXT} are taken: send it as an object")
        return value
    _Count().take(value, 0)
    return value


class _Count:
    """Counts the conditions and values of a filter as it goes through it."""

    def __init__(self) -> None:
        self._conditions = self._values = 0

    def take(self, value: Any, depth: int) -> None:
        _check_object(value)
        if depth > _DEEPEST:
            raise ValueError(f"it is nested deeper than {_DEEPEST} levels: flatten it")
        for name, wanted in value.items():
            if name in COMBINED:
                for one in wanted if isinstance(wanted, list) else [wanted]:
                    self.take(one, depth + 1)
            else:
                self._field(name, wanted)

    def _field(self, field: str, wanted: Any) -> None:
        parts = list(wanted.values()) if isinstance(wanted, dict) else [wanted]
        if len(parts) > len(OPERATORS):
            raise ValueError(f"{field!r} has {len(parts)} operators, at most {len(OPERATORS)} are taken")
        self._conditions += max(1, len(parts))
        if self._conditions > _MOST_CONDITIONS:
            raise ValueError(f"it has more than {_MOST_CONDITIONS} conditions: use lists of values")
        for part in parts:
            listed = part if isinstance(part, list) else [part] if part is not None else []
            self._values += len(listed)
            if self._values > _MOST_VALUES:
                raise ValueError(f"it has more than {_MOST_VALUES} values: send fewer of them")
            _check_values(field, listed, _MOST_VALUES)


def _check_object(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError("it is not an object: send one value or list of values under the name of each field")


def _check_values(field: str, values: list[Any], most: int) -> None:
    if len(values) > most:
        raise ValueError(f"{field!r} has {len(values)} values, at most {most} are taken")
    for one in values:
        if not isinstance(one, str | int | float):
            raise ValueError(f"{field!r}: {type(one).__name__} is not text, a number or a truth value")
        if isinstance(one, float) and not isfinite(one):
            raise ValueError(f"{field!r} holds a number that is too large")


_LIST: dict[str, Any] = {"type": "array", "items": _SCALAR, "maxItems": _LONGEST_LIST}
_NULL: dict[str, Any] = {"type": "null"}
_VALUE: dict[str, Any] = {"anyOf": [*_SCALAR["anyOf"], _LIST, _NULL]}
_FILTERS: dict[str, Any] = {"type": "array", "minItems": 1, "maxItems": _MOST_CONDITIONS, "items": {"type": "object"}}
_OPERATED: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        **dict.fromkeys(("eq", "ne"), _VALUE),
        **{name: {"anyOf": _SCALAR["anyOf"][:3]} for name in ("gt", "gte", "lt", "lte")},
        "missing": {"type": "boolean"},
    },
}
_FILTER: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "maxLength": _LONGEST_TEXT},
        {
            "type": "object",
            "maxProperties": _MOST_CONDITIONS,
            "properties": {"$and": _FILTERS, "$or": _FILTERS, "$not": {"type": "object"}},
            "additionalProperties": {"anyOf": [*_VALUE["anyOf"], _OPERATED]},
        },
    ]
}
_NULLABLE: dict[str, Any] = {"anyOf": [*_SCALAR["anyOf"], _NULL]}
_GIVEN: dict[str, Any] = {"anyOf": [*_NULLABLE["anyOf"], {**_LIST, "items": _NULLABLE}]}

Metadata = Annotated[
    dict[str, Any],
    BeforeValidator(checked_metadata),
    WithJsonSchema({"type": "object", "maxProperties": _MOST_METADATA, "additionalProperties": _GIVEN}),
]
Filter = Annotated[str | dict[str, Any], BeforeValidator(checked_filter), WithJsonSchema(_FILTER)]
