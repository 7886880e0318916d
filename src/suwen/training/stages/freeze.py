"""The stage ``freeze``: the document encoder is cut, rounded, written as it ships, and its space is minted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from suwen.training.recipe.key_groups import Name
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Stage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class FreezeStage(Stage):
    """Fixes the document encoder and mints its space: from here on nothing changes it."""

    gives = frozenset({"encoder", "teacher", "space"})

    stage: Literal["freeze"]
    start: Annotated[Name, Needs("adapter")] = Field(description="the document or joint stage to freeze")
    dimension: int | None = Field(default=None, ge=1, description="where vectors are cut; null = as trained")
    rank: int | None = Field(default=None, ge=1, description="cut the adapter to this rank; null = as trained")
    bits: Literal[8, 16] = Field(default=16, description="bits of the adapter's numbers")
    measure: bool = Field(default=False, description="measure what the cut costs, on data.measure")

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.loop.processes import in_first

        metrics = in_first(lambda: self._freeze(context, folder))
        # Other processes have kept it too, and load what was frozen if they need it.
        context.loaded.pop(f"document:{self.start}", None)
        return metrics or {}

    def _freeze(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        """Freeze what a document or joint stage has left; the encoder stays in memory for the vectors."""
        from suwen.training.development_measure import measure
        from suwen.training.ship.freezing import freeze
        from suwen.training.trained_document import TrainedDocument, first_stage

        first = first_stage(context, self.start)
        document = TrainedDocument.load(context, self.start)
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
        )
        del document
        context.loaded[f"encoder:{self.name}"] = encoder
        if not self.measure:
            return {}
        return measure(
            context.measures, encoder.encode_queries, lambda task: encoder.encode_documents(task.data.documents)
        )

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        if self.dimension and self.dimension > recipe.dimension_of(self.start):
            yield f"stages.{self.name}.dimension: wider than '{self.start}' gives; take at most that width"
