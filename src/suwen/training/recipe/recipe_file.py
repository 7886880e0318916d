"""Reads a recipe: YAML, includes, a variant, ``--set``, variables; then checks it. Keys are recipe_model's."""

from __future__ import annotations

import copy
import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import suwen.training.stages  # noqa: F401 - which registers them, so that a recipe can be read
from suwen.training.recipe.recipe_checks import check
from suwen.training.recipe.recipe_errors import RecipeError, explain, nearest
from suwen.training.recipe.recipe_model import Data, Recipe
from suwen.training.recipe.recipe_names import find_recipe
from suwen.training.recipe.stage_base import STAGES, Stage

#: Where the data are, when the recipe and ``--set data.root=`` say nothing.
DATA_VARIABLE = "SUWEN_DATA"
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LENGTHS = ("steps", "epochs", "seconds")
_Raw = dict[str, Any]


def load_recipe(path: Path | str, sets: Sequence[str] = (), variant: str | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: The YAML file, or the name of a recipe that comes with the package, such as ``care-tiny``;
            ``include: other.yaml`` in a file takes what it does not say from another.
        sets: ``dotted.key=value`` each, the value as YAML; stages by name: ``stages.align.training.steps=100``.
            ``base=PATH`` puts a copy in place of the model that stages name, in all of them; ``base=HUB_ID=PATH`` where
            they name several.
        variant: The variant of the recipe to take; the recipe's name becomes ``<recipe>.<variant>``.

    Raises:
        RecipeError: a file that is not a recipe, an unknown or wrong key, stages that do not fit together.
    """
    path = find_recipe(path)
    raw = _read(path, ())
    if raw.get("variants") and not raw.get("stages"):
        raise RecipeError(_variants_alone(path))
    pairs = [_pair(text) for text in sets]
    copies = [str(value) for key, value in pairs if key == "base"]
    pairs = [pair for pair in pairs if pair[0] != "base"]
    _follow(raw, next((value for key, value in reversed(pairs) if key == "faithful"), raw.get("faithful", "fixed")))
    known = {stage.get("name") for stage in raw.get("stages", ())}
    theirs = ((raw.get("variants") or {}).get(variant) or {}).get("set") or {}
    # A variant may leave a stage out, or bring one: what is set on the recipe's own stages comes before it, but for the
    # very keys that it sets too.
    late = [pair for pair in pairs if _stage_named(pair[0]) not in {None, *known} or pair[0] in theirs]
    for key, value in (pair for pair in pairs if pair not in late):
        set_key(raw, key, value)
    if variant is not None:
        _apply_variant(raw, variant)
    for key, value in late:
        set_key(raw, key, value)
    _forget_what_is_not_followed(raw)
    for one in copies:
        _put_copy(raw, one)
    _expand(raw, path.parent)
    return _validated(raw, path)


def _variants_alone(path: Path) -> str:
    """What is said of a file of variants: which recipes beside it include it, since one of them is meant."""
    meant = [file.stem for file in sorted(path.parent.glob("*.yaml")) if path.name in _included(file)]
    instead = (
        f"train one that includes it ({', '.join(meant)}) and name a variant: `suwen train {meant[0]} --variant NAME`"
        if meant
        else f"write one with `include: {path.name}`, and train that"
    )
    return f"{path} is no recipe of its own: it has variants for others and no stages; {instead}"


def _included(file: Path) -> list[str]:
    """The files that a recipe includes; none where it cannot be read."""
    try:
        raw = _yaml(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError, RecipeError):
        return []
    return _names(raw.get("include")) if isinstance(raw, dict) else []


def _names(include: Any) -> list[str]:
    """What `include` names: one file, or several."""
    return [include] if isinstance(include, str) else list(include or ())


def wanted_stages(recipe: Recipe, only: Sequence[str] | None = None) -> list[str]:
    """The names of the stages to run, in their order: those of ``only``, or all.

    Raises:
        RecipeError: ``only`` names one that is not there.
    """
    names = [stage.name for stage in recipe.stages]
    for name in only or ():
        if name not in names:
            raise RecipeError(f"no stage is called '{name}'{nearest(name, names)}")
    return [name for name in names if only is None or name in only]


def require_data(recipe: Recipe) -> None:
    """Refuse a recipe whose data folder was not said.

    Raises:
        RecipeError: when a path still holds ``${DATA}``.
    """
    for key, value in recipe.data:
        if isinstance(value, str) and "${" in value:
            raise RecipeError(
                f"data.{key}: {value} needs the data folder; pass --set data.root=PATH or set {DATA_VARIABLE}"
            )


def set_key(raw: _Raw, key: str, value: Any) -> None:
    """Put a value at a dotted key of a recipe as it was read; stages are found by name.

    Setting one of ``steps``, ``epochs`` and ``seconds`` takes the other two away.
    """
    *parents, last = key.split(".")
    here: Any = raw
    for depth, part in enumerate(parents):
        if depth == 1 and parents[0] == "stages":
            here = _stage(raw, part, key)
        else:
            if here.get(part) is None:
                here[part] = {}
            here = here[part]
        if not isinstance(here, (dict, list)) or (isinstance(here, list) and depth):
            raise RecipeError(f"{key}: '{part}' holds a single value, not keys; set {'.'.join(parents[: depth + 1])}")
    if isinstance(here, list):
        raise RecipeError(f"{key}: a stage is changed key by key, such as stages.{last}.training.steps=100")
    if last in _LENGTHS and parents and parents[-1] == "training":
        for other in _LENGTHS:
            here.pop(other, None)
    here[last] = value


def _put_copy(raw: _Raw, said: str) -> None:
    """Have every stage, or student, that names a model of the hub take a copy of it."""
    groups = [one for one in (*(raw.get("stages") or ()), *(raw.get("students") or {}).values()) if "base" in one]
    bases = [(str(one["base"]), "stage" in one) for one in groups]
    named = dict(sorted(one for one in bases if _HUB_ID.fullmatch(one[0]) and not Path(one[0]).exists()))
    hub_id, equals, path = said.partition("=")
    if not equals or hub_id not in named:
        # A student's base is a small encoder: what is called the base is what stages name.
        meant = [name for name, in_stage in named.items() if in_stage]
        if len(meant) != 1 or (equals and _HUB_ID.fullmatch(hub_id)):
            there = ", ".join(sorted(named)) or "none"
            raise RecipeError(f"--set base={said}: say which model, as base=HUB_ID=PATH; the recipe names: {there}")
        hub_id, path = meant[0], said
    if not Path(path).exists():
        raise RecipeError(f"--set base={said}: there is no {path}; give the folder of {hub_id}, or its GGUF file")
    for one in groups:
        if one["base"] == hub_id:
            official = {"hub_id": hub_id} if "hub_id" in _kind(one).model_fields else {}
            one |= {**official, **one, "base": path}


def _validated(raw: _Raw, path: Path) -> Recipe:
    try:
        recipe = Recipe.model_validate(raw)
    except ValidationError as error:
        count, missing = error.error_count(), all(one["type"] == "missing" for one in error.errors())
        what = f"{f'lacks {count}' if missing else f'has {count} wrong'} key{'s' * (count > 1)}"
        raise RecipeError(f"the recipe '{raw.get('name', path)}' {what}:\n{explain(error, raw)}") from error
    check(recipe)
    return recipe


def _yaml(text: str, what: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as error:
        raise RecipeError("reading a recipe needs PyYAML; pip install 'suwen[train]'") from error
    try:
        return _apart(yaml.load(text, Loader=_loader(yaml)))
    except yaml.YAMLError as error:
        raise RecipeError(f"{what} is not YAML: {error}") from error


def _apart(value: Any) -> Any:
    """A copy in which nothing is shared: a key set in one place of an anchor must not change the others."""
    if isinstance(value, dict):
        return {key: _apart(one) for key, one in value.items()}
    return [_apart(one) for one in value] if isinstance(value, list) else value


def _loader(yaml: Any) -> Any:
    """YAML 1.1 reads ``1e-4`` as a word; a learning rate is a number."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    return Loader


def _read(path: Path, through: tuple[Path, ...]) -> _Raw:
    if path.resolve() in through:
        raise RecipeError(f"{path} includes itself, by way of {through[-1]}; take one `include` out")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read as a recipe ({error}); give the path of a .yaml file") from error
    raw = _yaml(text, str(path))
    if not isinstance(raw, dict):
        raise RecipeError(f"{path} is not a recipe: it must be keys and values, such as `name: mine`")
    below: _Raw = {}
    for name in _names(raw.pop("include", None)):
        below = _over(below, _read(path.parent / name, (*through, path.resolve())))
    if stages := raw.pop("stages", None) or below.get("stages"):
        raw["stages"] = [_resolved(stage, below, path) for stage in stages]
    whole = _over(below, raw)
    if isinstance(variants := whole.get("variants"), dict):
        # An included recipe's variant that does not fit this one's stages is taken out with null.
        whole["variants"] = {name: variant for name, variant in variants.items() if variant is not None}
    return whole


def _resolved(stage: Any, below: _Raw, path: Path) -> Any:
    """A stage that is only a name is the included recipe's stage of that name; one with `like` differs in the rest."""
    own = {} if isinstance(stage, str) else stage
    if not isinstance(own, dict) or (own is stage and "like" not in own):
        return stage
    wanted = own.pop("like", stage)
    named = {one["name"]: one for one in below.get("stages", ())}
    if wanted not in named:
        raise RecipeError(f"{path}: stages: no included stage is called '{wanted}'{nearest(str(wanted), named)}")
    return _over(named[wanted], own)


def _over(below: _Raw, above: _Raw) -> _Raw:
    """One mapping laid over another: groups of keys merge, anything else is replaced."""
    merged = copy.deepcopy(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both else value
    return merged


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"--set {text}: write it as key=value, such as --set stages.align.training.steps=100")
    return key.strip(), _yaml(value, f"--set {text}")


def _stage_named(key: str) -> str | None:
    parts = key.split(".")
    return parts[1] if parts[0] == "stages" and len(parts) > 2 else None


def _stage(raw: _Raw, name: str, key: str) -> _Raw:
    stages: dict[str, _Raw] = {stage.get("name"): stage for stage in raw.get("stages", ())}
    if name not in stages:
        raise RecipeError(f"{key}: no stage is called '{name}'{nearest(name, stages)}")
    return stages[name]


def _kind(stage: _Raw) -> type[Stage]:
    """The class of a stage as it was read; one that says nothing where its kind is unknown, which is refused later."""
    return STAGES.get(str(stage.get("stage")), Stage)


def _follow(raw: _Raw, faithful: Any) -> None:
    """Give the keys that paper and code do not agree on the values of the one that is followed."""
    for key, said in (raw.get("differs") or {}).items():
        if isinstance(said, dict) and (value := said.get(str(faithful), said.get("fixed"))) is not None:
            set_key(raw, key, copy.deepcopy(value))


def _forget_what_is_not_followed(raw: _Raw) -> None:
    """Take out of ``differs``, which a run's report lists, what was set to something else and what is gone."""
    faithful = str(raw.get("faithful", "fixed"))
    for key, said in list((raw.get("differs") or {}).items()):
        here: Any = raw
        for part in key.split("."):
            named = {stage.get("name"): stage for stage in here} if isinstance(here, list) else here
            here = named.get(part) if isinstance(named, dict) else None
        if isinstance(said, dict) and here != (said.get("fixed") if said.get(faithful) is None else said[faithful]):
            del raw["differs"][key]


def _apply_variant(raw: _Raw, name: str) -> None:
    variants: Mapping[str, Any] = raw.get("variants") or {}
    if name not in variants:
        raise RecipeError(f"no variant is called '{name}'{nearest(name, variants)}")
    variant = variants[name]
    for after, stages in (variant.get("insert_after") or {}).items():
        place = raw["stages"].index(_stage(raw, after, f"variants.{name}.insert_after"))
        raw["stages"][place + 1 : place + 1] = copy.deepcopy(stages)
    for key, value in (variant.get("set") or {}).items():
        set_key(raw, key, copy.deepcopy(value))
    for stage in variant.get("remove") or ():
        _remove(raw, _stage(raw, stage, f"variants.{name}.remove"))
    if not variant.get("export"):
        # A tier may well be of a space that the variant no longer makes.
        raw["stages"] = [stage for stage in raw["stages"] if not _kind(stage).ships]
    raw["name"] = f"{raw.get('name', 'recipe')}.{name}"


def _remove(raw: _Raw, stage: _Raw) -> None:
    """Take a stage out; what started from it starts from where it started."""
    raw["stages"].remove(stage)
    gone, start, document = stage["name"], stage.get("start"), stage.get("document")
    for other in raw["stages"]:
        if other.get("start") == gone:
            takes_encoder = _kind(other).needs_of("start") in ("adapter", "encoder")
            other["start"] = document if document and takes_encoder else start
        if other.get("document") == gone:
            other["document"] = document
        tiers = other.get("tiers") or {}
        other |= {"tiers": {tier: start if name == gone else name for tier, name in tiers.items()}} if tiers else {}


def _paths(raw: _Raw) -> Iterator[tuple[_Raw, str]]:
    """The places of a recipe that hold paths."""
    data = raw.get("data")
    if isinstance(data, dict):
        yield from ((data, key) for key in data)
    groups = [*(raw.get("stages") or ()), *(raw.get("students") or {}).values()]
    yield from (
        (group, key) for group in groups for key in ("base", "texts") if isinstance(group, dict) and key in group
    )


def _expand(raw: _Raw, folder: Path) -> None:
    """Put values in place of ``${…}``; ``${DATA}`` stays where nothing says what it is: a dry run needs none."""
    data = raw.setdefault("data", {}) or {}
    if not isinstance(data, dict):
        return
    for key in ("rows", "texts", "held_out"):
        # The defaults hold ${DATA} too.
        data.setdefault(key, Data.model_fields[key].default)
    raw["data"] = data
    known = dict(os.environ) | {"RECIPE": str(folder)}
    known.pop("DATA", None)
    root = data.get("root") or os.environ.get(DATA_VARIABLE)
    if isinstance(root, str):
        known["DATA"] = data["root"] = _filled(root, known)
    for group, key in _paths(raw):
        if isinstance(group[key], str):
            group[key] = value = _filled(group[key], known)
            for name in set(_VARIABLE.findall(value)) - {"DATA"}:
                raise RecipeError(
                    f"{value}: the variable {name} is not set; export {name}=PATH, or write the path itself"
                )


def _filled(value: str, known: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda variable: known.get(variable[1], variable[0]), value)
