"""The stage ``cross``: a decoder learns to score a query and a passage together, by LoRA. The teacher of a reranker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from suwen.training.recipe.data_files import model_files
from suwen.training.recipe.key_groups import Lora, Mine, Rows
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Stage, TrainingStage
from suwen.training.recipe.stage_cost import Reading
from suwen.training.recipe.stage_identity import tier_identity

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext

#: What a decoder reads; any words do that part the two, since it is trained on them.
TEMPLATE = "查询：{query}\n文档：{document}"


class CandidatesStage(Stage):
    """What the stages share that list candidates: rows, and negatives mined with a tier of a pair."""

    rows: Rows = Field(default_factory=Rows, description="the rows; `limit_per_source` x weight of each source")
    pair: str = Field(default="default", description="the pair that candidates are mined with: its folder, or default")
    tier: str = Field(default="static", description="its tier that encodes queries and documents for that")
    mine: Mine = Field(default_factory=Mine, description="which of a query's nearest documents are negatives")
    negatives: int = Field(default=7, ge=1, description="negatives of a list, labelled or mined")

    @field_validator("rows")
    @classmethod
    def _own_negatives(cls, rows: Rows) -> Rows:
        if rows.negatives:
            raise ValueError("`rows.negatives` has no effect here: say `negatives` on the stage itself")
        return rows

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        # Another pair under the same name, such as the default one of a later release, mines other negatives.
        return {"mined_with": tier_identity(self.pair, self.tier)}


class CrossStage(CandidatesStage, TrainingStage):
    """Trains a large cross-encoder: among a query's candidates the right one is to score highest."""

    gives = frozenset({"cross"})

    stage: Literal["cross"]
    base: str = Field(min_length=1, description="the LLM: hub id, folder, GGUF file, or builtin:NAME")
    hub_id: str | None = Field(default=None, description="the base's official name, when `base` is a copy of it")
    lora: Lora = Field(default=Lora(rank=16, alpha=32, dropout=0.0), description="the adapter")
    goes_on: bool = Field(
        default=False, description="it begins with the adapter of the pair's document encoder, not with a fresh one"
    )
    max_length: int = Field(default=256, ge=16, description="tokens of a query and a document together")
    query_characters: int = Field(default=128, ge=8, description="characters of a query; the rest is cut")
    template: str = Field(
        default=TEMPLATE, pattern=r"\{query\}[\s\S]*\{document\}", description="how the two become one text"
    )

    @field_validator("lora")
    @classmethod
    def _without_dropout(cls, lora: Lora) -> Lora:
        if lora.dropout:
            raise ValueError("the adapter is merged once a step, which leaves no place for dropout: say `dropout: 0`")
        return lora

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.cross_encoders import CrossEncoder, candidate_rows, candidates, scoring_tower, sizes
        from suwen.training.tasks.list_task import ListLosses, ListTask

        rows = candidate_rows(context, self)
        teacher = CrossEncoder.create(context, self)
        texts, cache = candidates(rows, self.template, self.query_characters), context.common / "tokens"
        tower = scoring_tower(teacher.model, texts, self.training, self.max_length, cache)
        teacher.model.train()
        settings: Any = {"batch": self.training.batch, "seed": context.seed_of(self)}
        task = ListTask(tower, sizes(rows), teacher.trained, ListLosses(), **settings)
        context.optimise(task, folder, self.training, per_epoch=task.order.per_epoch)
        teacher.settle()
        folder.leave(lambda out: teacher.save(out, self.hub_id or self.base))
        context.loaded[f"cross:{self.name}"] = teacher
        return {"lists": float(len(rows)), "candidates": float(len(texts))}

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        from suwen.encoders.adapter import adapter_of, adapter_sha256
        from suwen.encoders.pair import pair_folder

        adapter = {"adapter": adapter_sha256(adapter_of(pair_folder(self.pair)))} if self.goes_on else {}
        return {**super().depends_on(recipe), "base": model_files(self.base), **adapter}

    @override
    def readings(self, recipe: Recipe) -> list[Reading] | None:
        return None  # lists of two texts in one: the estimate goes by `seconds`

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        lora = small["lora"] | {"rank": 2}
        return small | {"base": builtin("qwen2-tiny"), "pair": "default", "lora": lora, "goes_on": False}
