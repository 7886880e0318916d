"""The part of JSON Schema that replies are held to, and what is wrong with a reply, in words. Talks to no endpoint.

The checking is jsonschema's. A keyword outside this part is refused when the schema is read, so no rule is ever
silently ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from suwen.llm.config import LLMError

_TYPES = ("object", "array", "string", "boolean", "null", "number", "integer")
_NOTES = {"title", "description", "$schema", "$comment", "default", "examples"}
# The rules in the order they are checked, each with what is said where a value breaks it. A repair quotes these words,
# so they are a part of its key in the cache of replies: with others, repairs paid for would be asked for again.
_RULES = {
    "type": "{value} is not of type {rule}",
    "enum": "{value} is not one of {rule}",
    "const": "{value} is not {rule}",
    "anyOf": "{value} fits none of the forms allowed here",
    "required": "{value} is missing",
    "minProperties": "{size} properties, at least {rule} are needed",
    "maxProperties": "{size} properties, at most {rule} are allowed",
    "properties": "",
    "additionalProperties": "{value} does not belong here",
    "minItems": "{size} items, at least {rule} are needed",
    "maxItems": "{size} items, at most {rule} are allowed",
    "uniqueItems": "{value} is there twice",
    "items": "",
    "minLength": "{size} characters, at least {rule} are needed",
    "maxLength": "{size} characters, at most {rule} are allowed",
    "pattern": "{value} does not match {rule}",
    "minimum": "{value} is less than {rule}",
    "maximum": "{value} is more than {rule}",
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
    if unknown := sorted(set(schema) - set(_RULES) - _NOTES):
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


def fault(value: Any, schema: Mapping[str, Any]) -> str | None:
    """The first thing wrong with a value, in words a model can correct it by; None when it fits. Needs suwen[curate].

    >>> fault({"grade": "E"}, {"properties": {"grade": {"enum": ["S", "A"]}}})
    '$.grade: "E" is not one of "S", "A"'
    """
    error = next(_validator()(schema).iter_errors(value), None)
    if error is None:
        return None
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return f"${path}: {_in_words(error)}"


@cache
def _validator() -> Any:
    try:
        from jsonschema import Draft202012Validator, validators
    except ImportError:
        raise LLMError("holding replies to a schema needs jsonschema: pip install 'suwen[curate]'") from None
    return validators.create(
        Draft202012Validator.META_SCHEMA,
        Draft202012Validator.VALIDATORS,
        type_checker=Draft202012Validator.TYPE_CHECKER,
        applicable_validators=lambda schema: [(name, schema[name]) for name in _RULES if name in schema],
    )


def _in_words(error: Any) -> str:
    keyword, rule, value = error.validator, error.validator_value, error.instance
    size = len(value) if isinstance(value, str | list | dict) else 0
    if keyword == "required":
        value = next(name for name in rule if name not in value)
    elif keyword == "additionalProperties":
        value = next(name for name in value if name not in error.schema.get("properties", {}))
    elif keyword == "uniqueItems":
        value = next(item for number, item in enumerate(value) if item in value[:number])
    if keyword == "type":
        rule = " or ".join([rule] if isinstance(rule, str) else rule)
    elif keyword != "pattern":
        rule = ", ".join(map(_shown, rule)) if keyword == "enum" else _shown(rule)
    return _RULES[keyword].format(value=_shown(value), rule=rule, size=size)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"
