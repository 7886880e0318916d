"""The stage ``average``: adapters of one base added up, each with its share; what is missing to 1 is the base's own.

A specialist forgets some of what its base could do. Part of the way back to the base (Wortsman et al., 2022) trades
what it learnt against what it forgot; ``curve`` measures the whole way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.encoders.pair import pair_folder
from suwen.encoders.space import load_manifest
from suwen.training.recipe.key_groups import Name
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Stage

if TYPE_CHECKING:
    from suwen.encoders.adapter import Factors
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class AverageStage(Stage):
    """Averages adapters with each other and with their base."""

    gives = frozenset({"encoder", "adapter", "teacher"})

    stage: Literal["average"]
    of: Annotated[dict[Name, float], Needs("adapter")] = Field(
        min_length=1, description="document stages, each with its share; what is missing to 1 is the base's"
    )
    pair: str | None = Field(
        default=None, description="a pair whose adapter has what is missing to 1, in place of the bare base"
    )
    curve: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        default=(), description="parts of the way from the base to this average, each measured on data.measure"
    )

    @model_validator(mode="after")
    def _shares_make_one(self) -> AverageStage:
        if min(self.of.values()) <= 0 or sum(self.of.values()) > 1 + 1e-6:
            raise ValueError(f"shares are above 0 and at most 1 in all, not {self.of}: the rest is the base's")
        return self

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.encoders.adapter import save_adapter
        from suwen.training.ship.freezing import ADAPTER
        from suwen.training.trained_document import first_stage

        base = first_stage(context, self.name)
        named = base.hub_id or str(base.base)
        return folder.leave(
            lambda out: save_adapter(self.factors(context), out / ADAPTER, bits=16, base=named),
            lambda: self._measure(context, folder),
        )

    def factors(self, context: RunContext, part: float = 1.0) -> dict[str, Factors]:
        """The average, or what lies so far on the way to it from the base, or from the pair."""
        from suwen.encoders.adapter import adapter_of, add_up, load_adapter
        from suwen.training.ship.freezing import ADAPTER
        from suwen.training.trained_document import document_folder

        parts = [
            (load_adapter(document_folder(context, name) / ADAPTER), part * share) for name, share in self.of.items()
        ]
        if self.pair is not None:
            rest = 1 - part * sum(self.of.values())
            parts.append((load_adapter(adapter_of(pair_folder(self.pair))), max(0.0, rest)))
        return add_up(parts)

    def _measure(self, context: RunContext, folder: RunFolder) -> dict[str, float]:
        """The average on the tasks of data.measure; and, as curves, what lies between the base and it."""
        from suwen.training.trained_document import TrainedDocument

        if not context.measures:
            return {}
        document = TrainedDocument.beside(context, self.name)
        folder.curves.truncate(-1)  # of a run that was killed here
        for part in sorted(set(self.curve)):
            document.put(self.factors(context, part))
            scores = document.measure(context, None, folder.model)
            folder.curves.append({"step": part, **scores})
        document.put(self.factors(context))
        return document.measure(context, None, folder.model)

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        # The shares are named by the stages, which are left out of a stage's keys: other names are the same work.
        taken = {} if self.pair is None else {"pair": load_manifest(pair_folder(self.pair)).space.id}
        return {"shares": list(self.of.values()), **taken}

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        return small if self.pair is None else small | {"pair": builtin("pair-tiny/pair")}

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        bases = {name: recipe.first_of(name) for name in self.of}
        first = next(iter(self.of))
        for name, stage in bases.items():
            for key in ("base", "similarity", "max_length", "prompts"):
                if getattr(stage, key) != getattr(bases[first], key):
                    yield f"stages.{self.name}.of: '{name}' has another `{key}` than '{first}'; average what shares it"
        if self.curve and recipe.data.measure is None:
            yield f"stages.{self.name}.curve: there is nothing to measure it on; set data.measure, or take it out"
