"""The stage ``export``: the light pair of a frozen space, with every tier that was aligned to it."""

from __future__ import annotations

import shutil
from pathlib import Path

from suwen.encoders.pair import Pair
from suwen.encoders.space import ElsewhereDocument, Manifest, Space, SpaceMismatch, load_manifest, save_manifest
from suwen.training.context import Context
from suwen.training.loop.processes import in_first
from suwen.training.loop.run_folder import RunFolder
from suwen.training.recipe.settings import AlignStage, ExportStage, JointStage, VectorsStage
from suwen.training.ship.exporting import export
from suwen.training.stages.vectors import TeacherVectors, measure_student
from suwen.training.tasks.row_tables import DataError

#: Texts on which the tiers' losses are measured.
_MEASURED = 2_000


def run_export(context: Context, stage: ExportStage) -> dict[str, float]:
    """Write the frozen pair with its tiers; a tier that was aligned to another space is refused.

    Raises:
        SpaceMismatch: A tier's stage was aligned to other vectors than those of this space.
    """
    inputs = context.stage_hash(stage.start)
    for name in stage.tiers.values():
        inputs |= context.stage_hash(name)
    folder = context.open(stage, inputs)
    if folder.finished:
        return folder.metrics
    return in_first(lambda: _export(context, stage, folder)) or {}


def _export(context: Context, stage: ExportStage, folder: RunFolder) -> dict[str, float]:
    frozen = load_manifest(context.model_of(stage.start))
    texts = context.texts(_MEASURED).texts
    metrics: dict[str, float] = {}
    with folder.new_model() as out:
        shutil.copytree(context.model_of(stage.start), out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("merged"))
        _name(out, frozen, stage, context.recipe.name)
        for tier, source in stage.tiers.items():
            metrics |= _add_tier(context, stage, out, tier, source, frozen.space, texts)
        _set_default(out, stage.default_tier or next(iter(stage.tiers)))
        metrics |= _blend(context, stage, out)
    folder.finish(metrics)
    return metrics


def aligned_space(context: Context, name: str) -> str:
    """The id of the space a student's stage was aligned to."""
    return _vectors_of(context, name).space


def _vectors_of(context: Context, name: str) -> TeacherVectors:
    stage = context.recipe.stage(name)
    while isinstance(stage, JointStage) and stage.vectors is None and stage.start is not None:
        stage = context.recipe.stage(stage.start)
    vectors = stage.vectors if isinstance(stage, AlignStage | JointStage) else None
    if vectors is None:
        raise DataError(f"stage {name!r} was aligned to no space: export a tier from an align or joint stage")
    assert isinstance(context.recipe.stage(vectors), VectorsStage)
    return TeacherVectors(context.folder_of(vectors))


def _add_tier(
    context: Context, stage: ExportStage, out: Path, tier: str, source: str, space: Space, texts: list[str]
) -> dict[str, float]:
    if (aligned := aligned_space(context, source)) != space.id:
        raise SpaceMismatch(space.id, aligned, needed_name=stage.start, got_name=f"tier {tier}")
    student = context.folder_of(source) / "model"
    with_contract = out / f".{tier}"
    shutil.copytree(student, with_contract)
    save_manifest(
        with_contract,
        Manifest(name=tier, form="full", space=space, document=ElsewhereDocument(kind="elsewhere", name=stage.start)),
    )
    shape = context.recipe.students[getattr(context.recipe.stage(source), "student")]  # noqa: B009 - a Stage has none
    length = max(shape.max_length, shape.document_length or 0)
    report = export(with_contract, out, tier=tier, texts=texts, precision=stage.precision, into=True, max_length=length)
    shutil.rmtree(with_contract)
    parity = report.manifest.tiers[tier].parity
    return {f"{tier}.bytes": float(report.sizes[tier])} | {f"{tier}.{key}": value for key, value in parity.items()}


def _name(out: Path, frozen: Manifest, stage: ExportStage, recipe: str) -> None:
    said = {"name": stage.pair or recipe, "licence": stage.licence or frozen.licence}
    save_manifest(out, frozen.model_copy(update=said))


def _set_default(out: Path, tier: str) -> None:
    found = load_manifest(out)
    save_manifest(out, Manifest.model_validate({**found.model_dump(), "form": "light", "default_tier": tier}))


def _blend(context: Context, stage: ExportStage, out: Path) -> dict[str, float]:
    """Write the blends down, once every tier is there, and measure the blended tiers as they will serve."""
    if not stage.blends:
        return {}
    said = load_manifest(out).model_dump()
    for tier, others in stage.blends.items():
        for name in (tier, f"{tier}-fp32"):  # the same tier before int8, where both are written
            if name in said["tiers"]:
                said["tiers"][name]["blend"] = others
    save_manifest(out, Manifest.model_validate(said))
    pair, metrics = Pair.load(out), dict[str, float]()
    for tier in stage.blends if context.measures else ():
        found = measure_student(context, _vectors_of(context, stage.tiers[tier]), pair.encoder(tier).encode_queries)
        metrics |= {f"{tier}.blend.{task}": value for task, value in found.items()}
    return metrics
