"""Which file a recipe's name means, and what was meant by a wrong one. Loads no stage: a slip is told at once."""

from __future__ import annotations

import difflib
import importlib.resources
from collections.abc import Mapping
from pathlib import Path

from suwen.training.recipe.recipe_errors import RecipeError, nearest


def find_recipe(name: Path | str) -> Path:
    """The file itself, or the recipe of that name that comes with the package.

    Raises:
        RecipeError: There is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    known = packaged()
    if path.suffix or len(path.parts) > 1:
        raise RecipeError(f"{path}: there is no such recipe{_near(path, known)}")
    if str(name) not in known:
        raise RecipeError(f"there is no recipe '{name}', nor a file of that name{nearest(str(name), known)}")
    return known[str(name)]


def packaged() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    package = Path(str(importlib.resources.files("suwen")))
    # In the wheel they lie inside the package; in a checkout they are a folder of their own.
    folders = (package / "recipes", package.parent.parent / "recipes")
    found = [sorted(folder.glob("*.yaml")) for folder in folders]
    return {file.stem: file for file in found[0] or found[1]}


def _near(missing: Path, known: Mapping[str, Path]) -> str:
    """What may have been meant by a path that is not there: a file beside it, or a recipe of the package."""
    beside = {file.stem: file.name for ending in ("*.yaml", "*.yml") for file in missing.parent.glob(ending)}
    if close := difflib.get_close_matches(missing.stem, beside, n=1):
        return f"; did you mean '{missing.with_name(beside[close[0]])}'?"
    if missing.stem in known:
        return f"; did you mean the package's own? Then leave folder and ending out: '{missing.stem}'"
    return f"; there are: {', '.join(beside.values())}" if beside else "; check the path"
