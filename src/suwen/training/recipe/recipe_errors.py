"""Says what is wrong with a recipe: the key, the reason, the nearest valid key, the fix.

Stages are loaded where keys of theirs are explained, and not for a recipe that is not there.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from suwen.errors import SuwenError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from suwen.training.recipe.key_groups import KeyGroup


class RecipeError(SuwenError):
    """A recipe that cannot be run: every line names a key, what is wrong with it and how to fix it."""


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
    from suwen.training.recipe.stage_base import STAGES

    place = tuple(problem["loc"])
    key = _key(place, raw)
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        group = _class_at(place[:-1], raw)
        return f"{key}: unknown key{nearest(str(place[-1]), group.model_fields if group is not None else ())}"
    if kind == "missing":
        return f"{key}: missing; add it{_meaning(place, raw)}"
    if kind == "unknown_stage":
        if context["word"] is None:
            return f"{key}.stage: missing; say which kind it is: {', '.join(STAGES)}"
        return f"{key}.stage: unknown kind '{context['word']}'{nearest(str(context['word']), STAGES)}"
    if kind == "value_error":
        return f"{key}: {context['error']}"
    reason = problem["msg"][:1].lower() + problem["msg"][1:]
    return f"{key}: {problem['input']!r} is wrong: {reason}{_meaning(place, raw)}"


def _stage_at(place: tuple[int | str, ...], raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The stage in which a place is, as it was read; empty where it is no group of keys, None outside the stages."""
    if len(place) < 2 or place[0] != "stages" or not isinstance(place[1], int):
        return None
    stage = raw["stages"][place[1]]
    return stage if isinstance(stage, dict) else {}


def _key(place: tuple[int | str, ...], raw: Mapping[str, Any]) -> str:
    """``stages.align.training.steps`` rather than ``stages.3.training.steps``."""
    parts = [str(part) for part in place]
    if (stage := _stage_at(place, raw)) is not None:
        parts[1] = str(stage.get("name", f"#{int(place[1]) + 1}"))
    return ".".join(parts) or "recipe"


def _class_at(place: tuple[int | str, ...], raw: Mapping[str, Any]) -> type[KeyGroup] | None:
    """The group of keys that stands at a place; None where there is none."""
    from suwen.training.recipe.recipe_model import Recipe
    from suwen.training.recipe.stage_base import STAGES

    here: type[KeyGroup] | None = Recipe
    if (stage := _stage_at(place, raw)) is not None:
        here, place = STAGES.get(stage.get("stage", "")), place[2:]
    for part in place:
        if here is None:
            return None
        if part in here.model_fields:
            here = _group(here.model_fields[str(part)].annotation)
    return here


def _group(annotation: Any) -> type[KeyGroup] | None:
    from suwen.training.recipe.key_groups import KeyGroup

    if isinstance(annotation, type) and issubclass(annotation, KeyGroup):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, dict, list, tuple, typing.Annotated):
        groups = (_group(part) for part in typing.get_args(annotation))
        return next((group for group in groups if group is not None), None)
    return None


def _meaning(place: tuple[int | str, ...], raw: Mapping[str, Any]) -> str:
    parent = _class_at(place[:-1], raw)
    field = parent.model_fields.get(str(place[-1])) if parent is not None else None
    return f" ({place[-1]}: {field.description})" if field is not None and field.description else ""
