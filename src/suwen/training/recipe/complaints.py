"""Says what is wrong with a recipe: the key, the reason, the nearest valid key, the fix. What is valid: settings."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from suwen.errors import SuwenError
from suwen.training.recipe.settings import STAGES, Recipe, Settings


class RecipeError(SuwenError):
    """A recipe that cannot be run: every line names a key, what is wrong with it and how to mend it."""


def nearest(word: str, among: Iterable[str]) -> str:
    """``; did you mean 'x'?`` when something close exists, else the list of what there is."""
    names = [str(name) for name in among]
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; there are: {', '.join(names)}" if names else "; there are none"


def explain(error: ValidationError, raw: Mapping[str, Any]) -> str:
    """The message of a recipe that does not fit the settings, one line per key.

    Args:
        error: What pydantic found.
        raw: The recipe as it was read; it gives the stages their names.
    """
    return "\n".join(_line(problem, raw) for problem in error.errors())


def _line(problem: Any, raw: Mapping[str, Any]) -> str:
    place = tuple(problem["loc"])
    key = _key(place, raw)
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{key}: unknown key{nearest(str(place[-1]), _keys_at(place[:-1]))}"
    if kind == "missing":
        return f"{key}: missing; add it{_meaning(place)}"
    if kind == "union_tag_invalid":
        return f"{key}.stage: unknown kind '{context['tag']}'{nearest(str(context['tag']), STAGES)}"
    if kind == "union_tag_not_found":
        return f"{key}.stage: missing; say which kind it is: {', '.join(STAGES)}"
    if kind == "value_error":
        return f"{key}: {context['error']}"
    return f"{key}: {problem['input']!r} is wrong: {_lower(problem['msg'])}{_meaning(place)}"


def _key(place: tuple[int | str, ...], raw: Mapping[str, Any]) -> str:
    """``stages.align.training.steps`` rather than ``stages.3.align.training.steps``."""
    parts = [str(part) for part in place]
    if len(place) >= 2 and place[0] == "stages" and isinstance(place[1], int):
        stage = raw["stages"][place[1]]
        name = stage.get("name", f"#{place[1] + 1}") if isinstance(stage, dict) else f"#{place[1] + 1}"
        parts = ["stages", str(name), *parts[3:]]
    return ".".join(parts) or "recipe"


def _class_at(place: tuple[int | str, ...]) -> type[Settings] | None:
    """The group of keys that stands at a place; None where there is none."""
    if len(place) >= 3 and place[0] == "stages":
        here: type[Settings] | None = STAGES.get(str(place[2]))
        rest = place[3:]
    else:
        here, rest = Recipe, place
    for part in rest:
        if here is None:
            return None
        if part in here.model_fields:
            here = _group(here.model_fields[str(part)].annotation)
    return here


def _group(annotation: Any) -> type[Settings] | None:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, dict, list, tuple, typing.Annotated):
        found = (_group(part) for part in typing.get_args(annotation))
        return next((one for one in found if one is not None), None)
    return None


def _keys_at(place: tuple[int | str, ...]) -> list[str]:
    here = _class_at(place)
    return list(here.model_fields) if here is not None else []


def _meaning(place: tuple[int | str, ...]) -> str:
    parent = _class_at(place[:-1])
    field = parent.model_fields.get(str(place[-1])) if parent is not None else None
    return f" ({place[-1]}: {field.description})" if field is not None and field.description else ""


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
