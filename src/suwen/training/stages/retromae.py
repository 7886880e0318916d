"""The stage ``retromae``: masked auto-encoding of a student, so that its first token learns to hold the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.key_groups import Name, later
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import TrainingStage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class RetromaeStage(TrainingStage):
    """Masked auto-encoding of a student through a light decoder."""

    gives = frozenset({"student"})
    padded = True

    stage: Literal["retromae"]
    student: Name = Field(description="the student, from its own start")
    texts: str | None = later(None, "a file of texts of its own; null = data.texts")
    limit: int | None = Field(default=None, ge=1, description="number of texts; null = all")
    encoder_mask: float = Field(default=0.3, gt=0, lt=1, description="share of tokens the encoder does not see")
    decoder_mask: float = Field(default=0.5, gt=0, lt=1, description="share of tokens the decoder does not see")
    max_length: int | None = Field(default=None, ge=4, description="tokens of a text; null = the student's")

    @model_validator(mode="after")
    def _whole_batches(self) -> RetromaeStage:
        for key in ("chunk", "token_budget"):
            if getattr(self.training, key) is not None:
                raise ValueError(
                    f"`training.{key}` has no effect here, a batch is taken whole: take it out, and lower `batch` or "
                    "set `gradient_checkpointing` to need less memory"
                )
        return self

    @property
    @override
    def less_memory(self) -> str:
        return f"{self.recomputing}, or lower its batch"

    @override
    def texts_file(self, recipe: Recipe) -> str:
        return self.texts or super().texts_file(recipe)

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        return small | {"texts": None}

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.loop.batches import tokenise
        from suwen.training.tasks.masked_autoencoder import RetroMAE
        from suwen.training.tasks.retromae_task import RetromaeTask
        from suwen.training.trained_student import open_student

        student = open_student(context, self.student, None, training=self.training)
        seed, side = context.seed_of(self), student.sides["document"]
        tokens = tokenise(
            side,
            context.texts(self.limit, self.texts).texts,
            max_length=self.max_length or student.length("document"),
            cache=student.cache,
        )
        auto = RetroMAE(student.model, encoder_mask=self.encoder_mask, decoder_mask=self.decoder_mask, seed=seed)
        task = RetromaeTask(
            auto.to(context.device),
            tokens,
            int(side.tokenizer.pad_token_id),
            self.training.batch,
            seed=seed,
            precision=self.training.precision,
        )
        auto.train()
        context.optimise(task, folder, self.training, per_epoch=task.order.per_epoch)
        return folder.leave(student.save)
