"""What one stage costs: parameters, tokens, memory, time, disk. Rough, from shapes alone; the sum is the estimate's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from suwen.training.recipe.data_files import count_examples
from suwen.training.recipe.model_shapes import Shape, document_shape, student_shape

if TYPE_CHECKING:
    from suwen.training.recipe.recipe_model import Recipe
    from suwen.training.recipe.stage_base import TrainingStage

#: Tokens of a usual text; a limit on length caps it. Queries are short, documents longer.
QUERY_TOKENS, DOCUMENT_TOKENS = 24, 160
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
#: AdamW: the gradient and two moments in fp32, and a master copy of the weight.
_TRAINED_BYTES = 16


class Machine(NamedTuple):
    """How fast a device is.

    Attributes:
        rate: Floating-point operations a second that training reaches in practice.
        step_seconds: What a step costs however small it is.
    """

    rate: float
    step_seconds: float


@dataclass(frozen=True)
class StageEstimate:
    """The cost of one stage; None where it is not known. ``unknown``: the size of a model or data are missing."""

    name: str
    kind: str
    parameters: int | None = None
    trained: int | None = None
    steps: int | None = None
    tokens_per_step: int | None = None
    memory: int | None = None
    seconds: float | None = None
    disk: int = 0
    unknown: bool = False


def training_cost(recipe: Recipe, stage: TrainingStage, machine: Machine) -> StageEstimate:
    """The cost of a stage that trains a student, or else the document encoder's adapter."""
    training = stage.training
    student = stage.student_trained
    shape = student_shape(recipe, recipe.students[student]) if student else document_shape(recipe)
    if shape is None:
        return StageEstimate(stage.name, stage.stage, seconds=training.seconds, unknown=training.seconds is None)
    trained = shape.parameters if student else _adapter(recipe, shape)
    rows = count_examples(recipe, stage)
    steps = training.steps if rows is None else training.steps_over(rows)
    tokens = stage.tokens_per_row(recipe) * training.batch
    piece = tokens * (training.chunk or training.batch) // training.batch
    if training.token_budget is not None:  # of the documents; their queries are held with them where all fits
        piece = min(tokens, training.token_budget + training.batch * QUERY_TOKENS)
    size = BYTES[training.precision]
    kept = shape.kept(checkpointed=training.gradient_checkpointing) * size // 2
    memory = shape.parameters * size + trained * _TRAINED_BYTES + piece * kept + stage.more_memory(shape)
    seconds = training.seconds
    if seconds is None and steps is not None:
        work = 6 * (shape.body + shape.width) * tokens
        seconds = steps * (work / machine.rate + machine.step_seconds)
    disk = shape.parameters * 4 + trained * (12 if training.checkpoint_every else 0)
    return StageEstimate(
        stage.name, stage.stage, shape.parameters, trained, steps, tokens, int(memory), seconds, disk, seconds is None
    )


def _adapter(recipe: Recipe, shape: Shape) -> int:
    """The numbers of the document encoder's adapter."""
    if recipe.decoder_stage is None or not shape.layers:
        return 0
    lora = recipe.decoder_stage.lora
    # A rank-r pair beside a matrix of width x n holds r (width + n) numbers; n is at its mean over the matrices.
    outer = shape.body / shape.layers / len(lora.modules) / shape.width
    return int(shape.layers * len(lora.modules) * lora.rank * (shape.width + outer))
