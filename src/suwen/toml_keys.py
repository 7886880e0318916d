"""Says what is wrong with the keys of a TOML file: one line each with the place, the reason and the fix.

Recipes have more to say of their keys, in ``training/recipe/recipe_errors.py``. Reads no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

#: What belongs there, where the words of pydantic are those of Python.
_BELONGS = {
    "tuple_type": 'a list belongs here, such as ["a", "b"]',
    "list_type": 'a list belongs here, such as ["a", "b"]',
    "dict_type": "a table of keys belongs here",
    "model_type": "a table of keys belongs here",
}


def explain_keys(path: Path, data: Any, problem: ValidationError, missing: str = "Add it.") -> str:
    """The message of a file whose keys do not fit, one line for each of them.

    Args:
        path: The file.
        data: What it holds.
        problem: What pydantic found.
        missing: What to do about a key that is not there.
    """
    lines = []
    places = [error["loc"] for error in problem.errors()]
    for error in problem.errors():
        inner = any(place[: len(error["loc"])] == error["loc"] and place != error["loc"] for place in places)
        if error["type"] == "too_short" and inner:
            continue  # the list looks short only because its items are the faulty ones
        key = _key(data, error["loc"])
        if error["type"] == "extra_forbidden":
            lines.append(f"{path}: {key}: no such key. Remove it or correct its spelling.")
        elif error["type"] == "missing":
            lines.append(f"{path}: {key}: missing. {missing}")
        else:
            said = _BELONGS.get(error["type"]) or error["msg"].removeprefix("Value error, ")
            lines.append(f"{path}: {key}: {said}. Correct this value.")
    return "\n".join(lines)


def _key(data: Any, location: tuple[int | str, ...]) -> str:
    """``tasks[2] (SciFact).metrics``: the place in the file, with the name of the task it belongs to."""
    shown = ""
    for step in location:
        if isinstance(step, int):
            item = data[step] if isinstance(data, list) and step < len(data) else None
            name = item.get("name") if isinstance(item, dict) else None
            shown, data = shown + f"[{step}]" + (f" ({name})" if name else ""), item
        else:
            shown, data = shown + ("." if shown else "") + step, data.get(step) if isinstance(data, Mapping) else None
    return shown or "the file"
