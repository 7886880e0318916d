"""What the result of a stage depends on, as one hash: equal hashes are the same work, whatever the run is called.

It is the only identity of a stage: the runner keeps, links or refuses a stage by it, and writes it to ``stages.json``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from suwen.encoders.pair import Pair, pair_folder
from suwen.encoders.space import tier_sha256
from suwen.training.recipe.data_files import data_hashes, file_hash, model_files
from suwen.training.recipe.key_groups import HOW, KeyGroup
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Stage


def identity(recipe: Recipe, name: str, seed: int) -> dict[str, Any]:
    """Everything the stage's result depends on: its keys, its student, its data, the stages it starts from.

    The stage's own name is left out: a stage of another recipe with the same work is the same work.

    Args:
        recipe: The recipe.
        name: The stage.
        seed: The run's seed; stages that neither train nor draw anything do not depend on it.
    """
    stage = recipe.stage(name)
    pointers = {reference.key.partition(".")[0] for reference in stage.references()}
    depends: dict[str, Any] = {
        "config": _what(
            stage.model_dump(mode="json", exclude={"name": True, **dict.fromkeys(pointers, True), **_unsaid(stage)})
        ),
        "dimension": recipe.dimension,
        "faithful": recipe.faithful,
        "after": {key: digest(identity(recipe, other, seed)) for key, other in _after(recipe, stage)},
        "data": data_hashes(recipe, stage),
    }
    if recipe.data.set_aside and (stage.how_trained is not None or "vectors" in stage.gives):
        depends["set_aside"] = recipe.data.set_aside
    if stage.how_trained is not None:
        depends["seed"] = seed if stage.how_trained.seed is None else stage.how_trained.seed
    if stage.draws_at_random:
        depends["run_seed"] = seed
    if blend := getattr(stage, "blend", None):
        depends["blend"] = dict(blend)
    if stage.student_trained is not None:
        depends |= _student(recipe, stage, seed)
    depends |= stage.depends_on(recipe)
    return depends


def digest(depends: dict[str, Any]) -> str:
    """The hash of an identity."""
    return hashlib.sha256(json.dumps(depends, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:20]


def vocabulary_identity(recipe: Recipe) -> dict[str, Any]:
    """What the students' vocabulary depends on."""
    if recipe.tokenizer is None:
        return {}
    return {"tokenizer": recipe.tokenizer.model_dump(mode="json"), "tokenizer_texts": file_hash(recipe.data.texts)}


def tier_identity(named: str, tier: str) -> dict[str, Any]:
    """What the vectors of a pair's tier depend on, of queries and of documents: its files and keys, and what it blends.

    Args:
        named: The pair as a recipe calls it.
        tier: The tier.
    """
    pair = Pair.load(pair_folder(named))
    pair.need_tier(tier)
    tiers, keys = pair.manifest.tiers, {"kind", "files", "prompts", "max_length", "blend", "blend_documents"}
    return {name: tiers[name].model_dump(mode="json", include=keys) for name in (tier, *sorted(tiers[tier].blend))}


def _what(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A stage's keys without those that do not touch its result."""
    return {
        key: _what(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in config.items()
        if prefix + key not in HOW
    }


def _unsaid(keys: KeyGroup) -> dict[str, Any]:
    """The later keys that are at their defaults, for pydantic to leave out: before them the work was the same."""
    unsaid: dict[str, Any] = {}
    for name, field in type(keys).model_fields.items():
        value = getattr(keys, name)
        if field.json_schema_extra == {"later": True} and value == field.default:
            unsaid[name] = True
        elif isinstance(value, KeyGroup) and (inner := _unsaid(value)):
            unsaid[name] = inner
    return unsaid


def _after(recipe: Recipe, stage: Stage) -> list[tuple[str, str]]:
    """The stages that are read: those named, and the vectors that a stage which mines finds by itself."""
    named = [(reference.key, reference.stage) for reference in stage.references()]
    if stage.vectors_sought is None:
        return named
    earlier = recipe.stages[: recipe.stages.index(stage)]
    vectors = [one.name for one in earlier if "vectors" in one.gives and one.encoder_from == stage.vectors_sought]
    return named + [(f"vectors.{name}", name) for name in vectors]


def _student(recipe: Recipe, stage: Any, seed: int) -> dict[str, Any]:
    student = recipe.students[stage.student]
    # Of students that said nothing of their pooling, `cls` was written down before a pretrained one could keep its own.
    shape = student.model_dump(mode="json", exclude=_unsaid(student)) | {"pooling": student.pooling or "cls"}
    depends: dict[str, Any] = {"student": shape, "run_seed": seed}
    earlier = recipe.stages[: recipe.stages.index(stage)]

    def digests(stages: Sequence[Stage]) -> list[str]:
        return [digest(identity(recipe, one.name, seed)) for one in stages]

    if student.tier_of is not None:
        named, tier = student.tier_of
        pair = Pair.load(pair_folder(named))
        pair.need_tier(tier)
        depends["tier"] = tier_sha256(pair.manifest.tiers, tier)
    elif student.base is not None:
        depends["base"] = model_files(student.base)
    if student.table_of is not None:
        depends["table_of"] = digests([one for one in earlier if one.student_trained == student.table_of])
    if student.pruned_from is not None:
        depends["pruned"] = digests([one for one in earlier if one.student_trained == student.pruned_from])
    elif student.start in ("layers-of-document", "shrunk-document"):
        depends["layers_of"] = digests([one for one in earlier if "teacher" in one.gives])
    if student.pruned_from is None and student.start != "layers-of-document":
        depends |= vocabulary_identity(recipe)
    return depends
