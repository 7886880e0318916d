"""The stage ``freeze``: the document encoder is cut, rounded, written as it ships, and its space is minted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.encoders.pair import Pair, default_pair_path
from suwen.encoders.space import AdapterDocument, load_manifest, save_manifest
from suwen.training.recipe.key_groups import Name, later
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Stage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class FreezeStage(Stage):
    """Fixes the document encoder and mints its space: from here on nothing changes it."""

    gives = frozenset({"encoder", "teacher", "space"})

    stage: Literal["freeze"]
    start: Annotated[Name | None, Needs("adapter")] = Field(
        default=None, description="the document or joint stage to freeze; null where a `pair` is given"
    )
    pair: str | None = later(
        None, "a pair whose document encoder is taken as it is, space and all: its folder, or `default`"
    )
    base: str | None = later(None, "with `pair`: the base of its adapter, a GGUF file, folder or hub id")
    dimension: int | None = Field(default=None, ge=1, description="where vectors are cut; null = as trained")
    rank: int | None = Field(default=None, ge=1, description="cut the adapter to this rank; null = as trained")
    bits: Literal[8, 16] = Field(default=16, description="bits of the adapter's numbers")
    measure: bool = Field(default=False, description="measure what the cut costs, on data.measure")

    @model_validator(mode="after")
    def _one_source(self) -> FreezeStage:
        if (self.start is None) == (self.pair is None):
            raise ValueError("say `start`, the stage to freeze, or `pair`, whose document encoder is taken as it is")
        if self.pair is not None and (self.base is None or self.rank is not None or self.measure):
            raise ValueError("with `pair` say the `base` of its adapter, and neither `rank` nor `measure`")
        return self

    @property
    def pair_folder(self) -> Path:
        """The pair whose document encoder is taken."""
        return default_pair_path() if self.pair == "default" else Pair.load(self.pair).path

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.loop.processes import in_first

        if self.start is None:
            return folder.leave(self._take)
        metrics = in_first(lambda: self._freeze(context, folder))
        # Other processes have kept it too, and load what was frozen if they need it.
        context.loaded.pop(f"document:{self.start}", None)
        return metrics or {}

    def _take(self, out: Path) -> None:
        """Copy the adapter, the contract and the probe of a pair, without its tiers."""
        source = self.pair_folder
        manifest = load_manifest(source)
        for name in ("probe.json", "probe.npy"):
            shutil.copyfile(source / name, out / name)
        if isinstance(manifest.document, AdapterDocument):
            shutil.copytree(source / manifest.document.path, out / manifest.document.path)
        # The document encoder by itself: where its documents came half-way to a tier, that tier is not taken.
        bare: dict[str, Any] = {"form": "full", "tiers": {}, "default_tier": None, "space": manifest.space.alone}
        save_manifest(out, manifest.model_copy(update=bare))

    def _freeze(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        """Freeze what a document or joint stage has left; the encoder stays in memory for the vectors."""
        from suwen.training.development_measure import measure
        from suwen.training.ship.freezing import freeze
        from suwen.training.trained_document import TrainedDocument, first_stage

        start = str(self.start)
        first = first_stage(context, start)
        document = TrainedDocument.load(context, start)
        encoder = freeze(
            document.factors(),
            first.base,
            folder.model,
            name=context.recipe.name,
            dimension=self.dimension or document.dimension,
            prompts=first.prompts.filled,
            max_length=first.max_length,
            rank=self.rank,
            bits=self.bits,
            hub_id=first.hub_id,
            device=context.device,
            body=document.base_alone(),
            normalise=first.similarity == "cosine",
        )
        del document
        context.loaded[f"encoder:{self.name}"] = encoder
        if not self.measure:
            return {}
        return measure(
            context.measures, encoder.encode_queries, lambda task: encoder.encode_documents(task.data.documents)
        )

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        return {"space": load_manifest(self.pair_folder).space.alone.id} if self.pair is not None else {}

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        if self.start is not None:
            if self.dimension and self.dimension > recipe.dimension_of(self.start):
                yield f"stages.{self.name}.dimension: wider than '{self.start}' gives; take at most that width"
            return
        manifest = load_manifest(self.pair_folder)
        if not isinstance(manifest.document, AdapterDocument):
            yield f"stages.{self.name}.pair: {self.pair} has no adapter; name a pair that a stage `export` wrote"
        if (width := recipe.dimension_of(self.name)) != manifest.space.dimension:
            yield (
                f"stages.{self.name}.pair: its space has {manifest.space.dimension} dimensions, the recipe {width}; "
                f"say `dimension: {manifest.space.dimension}`"
            )

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        if self.pair is None:
            return small
        return small | {"pair": builtin("pair-tiny/pair"), "base": builtin("pair-tiny/base")}
