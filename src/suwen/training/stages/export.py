"""The stage ``export``: the light pair of a frozen space, with every tier that was aligned to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.encoders.pair import Pair, pair_folder
from suwen.encoders.space import ElsewhereDocument, Manifest, Space, SpaceMismatch, load_manifest, save_manifest
from suwen.training.recipe.key_groups import Blend, ComeHalfway, Name, later
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Stage
from suwen.training.recipe.stage_cost import Machine, StageEstimate
from suwen.training.recipe.stage_identity import tier_identity
from suwen.training.stages.freeze import FreezeStage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext

#: Texts on which the tiers' losses are measured.
_MEASURED = 2_000


class ExportStage(Stage):
    """Writes the light pair: ONNX query tiers, the adapter, the manifest."""

    ships = True

    stage: Literal["export"]
    start: Annotated[Name, Needs("space")] = Field(description="the freeze stage whose space the pair is of")
    tiers: Annotated[dict[Name, Name], Needs("student")] = Field(
        default_factory=dict, description="tier name: the stage it comes from"
    )
    keeps: str | None = later(
        None,
        "in place of `tiers`: the pair whose tiers stay as they are, since documents have learnt to be found by them "
        "(`asked_by` of its document stage); its folder, or `default`",
    )
    default_tier: str | None = Field(default=None, description="the tier used when none is asked for; null = the first")
    blends: dict[Name, Annotated[Blend, Field(min_length=1)]] = Field(
        default_factory=dict, description="tier: {other tier: its share of the vector}; the rest is the tier's own"
    )
    blend_documents: bool = later(True, "false: a blended tier blends its queries alone; its documents are its own")
    precision: Literal["int8", "fp32", "both"] = Field(default="int8", description="weights of the tiers")
    halfway: ComeHalfway | None = later(
        None, "documents come half-way to a tier, so that its queries find them better; null = they stay"
    )
    pair: str | None = Field(default=None, description="the pair's name; null = the recipe's")
    licence: str = Field(default="", description="the licence of the weights")

    @model_validator(mode="after")
    def _names_are_of_tiers(self) -> ExportStage:
        if bool(self.tiers) == (self.keeps is not None):
            raise ValueError("say `tiers`, each with its stage, or `keeps`, a pair whose tiers stay: one of the two")
        if self.keeps is not None:
            return self._as_they_are()
        known = ", ".join(self.tiers)
        if self.default_tier is not None and self.default_tier not in self.tiers:
            raise ValueError(f"default_tier '{self.default_tier}' is not one of the tiers: {known}")
        for tier, others in self.blends.items():
            if unknown := [name for name in (tier, *others) if name not in self.tiers]:
                raise ValueError(f"blends: '{unknown[0]}' is not one of the tiers: {known}")
            if chained := [name for name in others if name in self.blends]:
                raise ValueError(f"blends: '{chained[0]}' blends itself and cannot be part of '{tier}': name others")
        if self.halfway is not None and self.halfway.tier not in self.tiers:
            raise ValueError(f"halfway: '{self.halfway.tier}' is not one of the tiers: {known}")
        return self

    def _as_they_are(self) -> ExportStage:
        """What nothing is left to say of, or to choose by, where tiers stay as they are."""
        if self.blends:
            raise ValueError("blends: with `keeps` they are those of its pair; take them out")
        if self.halfway is not None and self.halfway.share is None:
            raise ValueError("halfway: with `keeps` nothing is there to choose the share by; say `share`")
        return self

    @property
    @override
    def reads_texts(self) -> bool:
        return self.keeps is None

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        if self.keeps is None:
            return {}
        tiers = load_manifest(pair_folder(self.keeps)).tiers
        return {"kept": {tier: tier_identity(self.keeps, tier) for tier in tiers}}

    @override
    def cost(self, recipe: Recipe, machine: Machine) -> StageEstimate:
        return replace(super().cost(recipe, machine), seconds=machine.start_seconds * len(self.tiers))

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        if self.keeps is not None:
            yield from self._problems_with_the_kept(recipe, self.keeps)
            return
        for tier, name in self.tiers.items():
            yield from self._space_problems(recipe, tier, name)
            yield from self._blend_problems(recipe, tier, name)
        if (self.blends or self.halfway is not None) and not _of_one_length(recipe, self.start):
            yield (
                f"stages.{self.name}: vectors of this space have no common length, so none are blended; remove "
                f"`blends` and `halfway`"
            )
        if self.halfway is not None and self.halfway.share is None:
            yield from self._share_problems(recipe, self.tiers[self.halfway.tier])

    def _problems_with_the_kept(self, recipe: Recipe, named: str) -> Iterator[str]:
        manifest, where = load_manifest(pair_folder(named)), f"stages.{self.name}"
        decoder = recipe.first_of(self.start)
        if getattr(decoder, "pair", None) != named or getattr(decoder, "asked_by", None) is None:
            yield (
                f"{where}.keeps: documents of '{decoder.name}' do not learn to be found by the tiers of {named}; say "
                f"`pair: {named}` and `asked_by: STUDENT` there, or give `tiers` that are aligned to '{self.start}'"
            )
        if (width := recipe.dimension_of(self.start)) != manifest.space.dimension:
            yield f"{where}.keeps: tiers of {named} have {manifest.space.dimension} dimensions, '{self.start}' {width}"
        if not manifest.tiers:
            yield f"{where}.keeps: {named} has no tiers; take a pair that a stage `export` wrote"
        met = None if self.halfway is None else self.halfway.tier
        for key, tier in (("default_tier", self.default_tier), ("halfway", met)):
            if tier is not None and tier not in manifest.tiers:
                yield f"{where}.{key}: '{tier}' is not one of the tiers of {named}: {', '.join(manifest.tiers)}"

    def _space_problems(self, recipe: Recipe, tier: str, name: str) -> Iterator[str]:
        space = recipe.stage(name).space_from(recipe)
        where = f"stages.{self.name}.tiers.{tier}"
        if space is None:
            yield f"{where}: '{name}' is aligned to no space; add an align stage to the vectors of '{self.start}'"
        elif space != self.start:
            yield (
                f"{where}: '{name}' is aligned to '{space}', the pair is of '{self.start}': another space; "
                f"align it to vectors that start from '{self.start}'"
            )

    def _share_problems(self, recipe: Recipe, name: str) -> Iterator[str]:
        vectors = recipe.stage(name).vectors_from(recipe)
        if not recipe.data.set_aside or vectors is None or getattr(recipe.stage(vectors), "rows", None) is None:
            yield (
                f"stages.{self.name}.halfway: nothing is there to choose the share by; say `data.set_aside: 0.02` and "
                f"`rows: {{}}` in the vectors stage, or give a `share`"
            )

    def _blend_problems(self, recipe: Recipe, tier: str, name: str) -> Iterator[str]:
        """A student that learnt to be right together with others is wrong alone."""
        learnt: dict[str, float] = getattr(recipe.stage(name), "blend", {})
        given = {self.tiers[other]: share for other, share in self.blends.get(tier, {}).items()}
        if learnt and learnt != given:
            yield (
                f"stages.{self.name}.blends.{tier}: '{name}' was trained blended with {learnt}, the export blends "
                f"{given or 'nothing'}; say the same shares, with the tiers made of those stages"
            )

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        if self.keeps is None:
            return small
        met = None if self.halfway is None else {"tier": "static", "share": self.halfway.share}
        return small | {"keeps": builtin("pair-tiny/pair"), "default_tier": None, "halfway": met}

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        metrics: dict[str, float] = {}
        folder.leave(lambda out: self._export(context, out, metrics))
        return metrics

    def _export(self, context: RunContext, out: Path, metrics: dict[str, float]) -> None:
        """Write the frozen pair with its tiers; a tier that was aligned to another space is refused.

        Raises:
            SpaceMismatch: A tier's stage was aligned to other vectors than those of this space.
        """
        frozen = load_manifest(context.model_of(self.start))
        without = shutil.ignore_patterns("merged")
        shutil.copytree(context.model_of(self.start), out, dirs_exist_ok=True, ignore=without)
        named = {"name": self.pair or context.recipe.name, "licence": self.licence or frozen.licence}
        save_manifest(out, frozen.model_copy(update=named))
        first = self.default_tier or next(iter(self.tiers), None)
        if self.keeps is not None:
            kept = _keep_tiers(out, pair_folder(self.keeps))
            first = first or kept
        else:
            texts = context.texts(_MEASURED).texts
            for tier, source in self.tiers.items():
                metrics |= self._add_tier(context, out, tier, source, frozen.space, texts)
        default = {"form": "light", "default_tier": first}
        save_manifest(out, Manifest.model_validate({**load_manifest(out).model_dump(), **default}))
        metrics |= self._blend(context, out)
        if self.halfway is not None:
            metrics |= self._come_halfway(context, out, self.halfway)

    def _come_halfway(self, context: RunContext, out: Path, asked: ComeHalfway) -> dict[str, float]:
        """Make documents come half-way, last of all: it is to the tier as it serves; that makes another space."""
        from suwen.encoders.halfway import set_halfway
        from suwen.training.ship.halfway_share import choose_share
        from suwen.training.teacher_vectors import vectors_of_student

        share, metrics = asked.share, dict[str, float]()
        if share is None:
            vectors = vectors_of_student(context, self.tiers[asked.tier])
            share, metrics = choose_share(context, vectors, Pair.load(out), asked.tier)
        if share:
            set_halfway(out, asked.tier, share)
        return metrics | {"halfway.share": share}

    def _add_tier(
        self, context: RunContext, out: Path, tier: str, source: str, space: Space, texts: list[str]
    ) -> dict[str, float]:
        from suwen.training.ship.exporting import export
        from suwen.training.teacher_vectors import vectors_of_student

        if (aligned := vectors_of_student(context, source).space) != space.id:
            raise SpaceMismatch(space.id, aligned, needed_name=self.start, got_name=f"tier {tier}")
        with_contract = out / f".{tier}"
        shutil.copytree(context.folder_of(source) / "model", with_contract)
        document = ElsewhereDocument(kind="elsewhere", name=self.start)
        save_manifest(with_contract, Manifest(name=tier, form="full", space=space, document=document))
        shape = context.recipe.students[context.recipe.stage(source).student]
        length = max(shape.max_length, shape.document_length or 0)
        report = export(
            with_contract, out, tier=tier, texts=texts, precision=self.precision, into=True, max_length=length
        )
        shutil.rmtree(with_contract)
        parity = report.manifest.tiers[tier].parity
        return {f"{tier}.bytes": float(report.sizes[tier])} | {f"{tier}.{key}": value for key, value in parity.items()}

    def _blend(self, context: RunContext, out: Path) -> dict[str, float]:
        """Write the blends down, once every tier is there, and measure the blended tiers as they will serve."""
        from suwen.training.teacher_vectors import vectors_of_student

        if not self.blends:
            return {}
        manifest = load_manifest(out).model_dump()
        for tier, others in self.blends.items():
            for name in (tier, f"{tier}-fp32"):  # the same tier before int8, where both are written
                if name in manifest["tiers"]:
                    manifest["tiers"][name] |= {"blend": others, "blend_documents": self.blend_documents}
        save_manifest(out, Manifest.model_validate(manifest))
        pair, metrics = Pair.load(out), dict[str, float]()
        for tier in self.blends:
            scores = vectors_of_student(context, self.tiers[tier]).measure(context, pair.encoder(tier).encode_queries)
            metrics |= {f"{tier}.blend.{task}": value for task, value in scores.items()}
        return metrics


def _keep_tiers(out: Path, pair: Path) -> str | None:
    """Put the tiers of a pair into another, as they are; the one that it uses when none is asked for."""
    theirs, own = load_manifest(pair), load_manifest(out)
    for tier in theirs.tiers.values():
        shutil.copytree(pair / tier.path, out / tier.path)
    tiers = {name: tier.model_copy(update={"aligned_to": own.space.id}) for name, tier in theirs.tiers.items()}
    save_manifest(out, own.model_copy(update={"tiers": tiers}))
    return theirs.default_tier or next(iter(tiers), None)


def _of_one_length(recipe: Recipe, name: str) -> bool:
    """Whether the vectors of a stage's space have length one."""
    stage = recipe.stage(name)
    while getattr(stage, "similarity", None) is None and getattr(stage, "start", None) is not None:
        stage = recipe.stage(stage.start)
    if isinstance(stage, FreezeStage) and stage.pair is not None:
        return load_manifest(stage.pair_folder).space.normalise
    return getattr(stage, "similarity", "cosine") == "cosine"
