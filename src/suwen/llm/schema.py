"""The part of JSON Schema that replies are held to: checking a value, and checking a schema. Talks to no endpoint.

A keyword outside this part is refused when the schema is read, so no rule is ever silently ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from suwen.llm.config import LLMError

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    # JSON has one kind of number: 3.0 is an integer there.
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
}
_NOTES = {"title", "description", "$schema", "$comment", "default", "examples"}
_RULES = {
    *("type", "enum", "const", "anyOf"),
    *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    *("items", "minItems", "maxItems", "uniqueItems"),
    *("minimum", "maximum", "minLength", "maxLength", "pattern"),
}


class SchemaProblem(LLMError):
    """A schema uses something that replies cannot be held to."""


def check_schema(schema: Any, where: str = "schema") -> None:
    """Raise ``SchemaProblem`` unless every rule of a schema is one this module enforces.

    Args:
        schema: The schema, as loaded from JSON.
        where: How to call it in the message.
    """
    if not isinstance(schema, dict):
        raise SchemaProblem(f'{where} must be a JSON object, not {type(schema).__name__}: write {{"type": …}}')
    if unknown := sorted(set(schema) - _RULES - _NOTES):
        known = ", ".join(sorted(_RULES))
        raise SchemaProblem(f"{where} uses {', '.join(unknown)}, which is not checked here: use {known}")
    types = schema.get("type", [])
    if bad := [name for name in ([types] if isinstance(types, str) else types) if name not in _TYPES]:
        raise SchemaProblem(f"{where} has the type {bad[0]!r}: use one of {', '.join(_TYPES)}")
    for path, part in _parts(schema):
        check_schema(part, f"{where}{path}")


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, part in schema.get("properties", {}).items():
        yield f".{name}", part
    if "items" in schema:
        yield "[]", schema["items"]
    if isinstance(schema.get("additionalProperties"), dict):
        yield ".*", schema["additionalProperties"]
    for number, part in enumerate(schema.get("anyOf", ())):
        yield f"|{number}", part


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether a schema meets the terms of OpenAI's strict mode: every object closed, every property required."""
    if "properties" in schema or schema.get("type") == "object":
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", ())):
            return False
    return all(is_strict(part) for _, part in _parts(schema))


def fault(value: Any, schema: Mapping[str, Any], at: str = "$") -> str | None:
    """The first thing wrong with a value, in words a model can correct it by; None when it fits.

    >>> fault({"grade": "E"}, {"properties": {"grade": {"enum": ["S", "A"]}}})
    '$.grade: "E" is not one of "S", "A"'
    """
    return next(_faults(value, schema, at), None)


def _faults(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    types = schema.get("type")
    if types is not None:
        names = [types] if isinstance(types, str) else list(types)
        if not any(_TYPES[name](value) for name in names):
            yield f"{at}: {_shown(value)} is not of type {' or '.join(names)}"
            return
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{at}: {_shown(value)} is not one of {', '.join(map(_shown, schema['enum']))}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{at}: {_shown(value)} is not {_shown(schema['const'])}"
    if "anyOf" in schema and all(fault(value, part, at) for part in schema["anyOf"]):
        yield f"{at}: {_shown(value)} fits none of the forms allowed here"
    yield from _of_kind(value, schema, at)


def _of_kind(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _object(value, schema, at)
    elif isinstance(value, list):
        yield from _array(value, schema, at)
    elif isinstance(value, str):
        yield from _sized(len(value), schema, at, "Length", "characters")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{at}: {_shown(value)} does not match {schema['pattern']}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"{at}: {value} is less than {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"{at}: {value} is more than {schema['maximum']}"


def _object(value: dict[str, Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: {_shown(name)} is missing"
    yield from _sized(len(value), schema, at, "Properties", "properties")
    for name, part in known.items():
        if name in value:
            yield from _faults(value[name], part, f"{at}.{name}")
    rest = schema.get("additionalProperties", True)
    for name in value.keys() - known.keys():
        if rest is False:
            yield f"{at}: {_shown(name)} does not belong here"
        elif isinstance(rest, dict):
            yield from _faults(value[name], rest, f"{at}.{name}")


def _array(value: list[Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
    yield from _sized(len(value), schema, at, "Items", "items")
    if schema.get("uniqueItems"):
        for number, one in enumerate(value):
            if any(_same(one, before) for before in value[:number]):
                yield f"{at}: {_shown(one)} is there twice"
    if "items" in schema:
        yield from chain.from_iterable(
            _faults(one, schema["items"], f"{at}[{number}]") for number, one in enumerate(value)
        )


def _sized(size: int, schema: Mapping[str, Any], at: str, what: str, unit: str) -> Iterator[str]:
    if size < schema.get(f"min{what}", size):
        yield f"{at}: {size} {unit}, at least {schema[f'min{what}']} are needed"
    if size > schema.get(f"max{what}", size):
        yield f"{at}: {size} {unit}, at most {schema[f'max{what}']} are allowed"


def _same(left: Any, right: Any) -> bool:
    # In Python True == 1; in JSON it is not.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"
