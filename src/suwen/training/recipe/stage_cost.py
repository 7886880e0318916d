"""What one stage costs: parameters, tokens, memory, time, disk. From shapes and a sample of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from suwen.training.recipe.data_files import COST, count_examples
from suwen.training.recipe.model_shapes import Shape

if TYPE_CHECKING:
    from suwen.training.recipe.recipe_model import Recipe
    from suwen.training.recipe.stage_base import Stage, TrainingStage

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
#: A batch is of one source, and its texts may be longer than the mean: the more memory for its largest piece.
_UNEVEN = 1.2


class Machine(NamedTuple):
    """How fast a device is (see cost_constants.toml), and how many of it share the work.

    Attributes:
        rate: Floating-point operations a second, if layers were infinitely wide.
        half_width: The width of layers that reach half of it.
        step_seconds: What a step costs however small it is.
        layer_seconds: What a layer's launches cost in a step.
        start_seconds: What a stage costs however short it is.
        host: Bytes of RAM that a process takes for its libraries.
        gpus: How many processes there are, each with its device.
    """

    rate: float
    half_width: int
    step_seconds: float
    layer_seconds: float
    start_seconds: float
    host: float
    gpus: int = 1

    def seconds(self, operations: float, width: int) -> float:
        """The time that so many operations take all devices, in layers of this width."""
        return operations * (1 + self.half_width / width) / self.rate / self.gpus


@dataclass(frozen=True)
class StageEstimate:
    """The cost of one stage; None where it is not known. ``unknown``: the size of a model or data are missing.

    ``memory`` is that of one GPU (or of the machine, without one), ``host`` the RAM of all processes together,
    ``seconds`` by the clock, with what goes before and after the training.
    """

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
    host: int = 0


class Reading(NamedTuple):
    """What an encoder that is trained, whole or by an adapter, reads of a row: so many tokens in so many texts."""

    shape: Shape
    tokens: float
    texts: int = 1
    adapter: bool = False


def training_cost(recipe: Recipe, stage: TrainingStage, machine: Machine) -> StageEstimate:
    """The cost of a stage that trains a student, the document encoder's adapter, or both."""
    plan, readings, making, size = stage.training, stage.readings(recipe), COST["making"], COST["bytes"]
    seconds = plan.seconds
    if readings is None:
        return StageEstimate(stage.name, stage.stage, seconds=seconds, unknown=seconds is None)
    rows = count_examples(recipe, stage)
    steps = plan.steps if rows is None else plan.steps_over(rows)
    own = {one.shape: adapter_size(recipe, one.shape) if one.adapter else one.shape.parameters for one in readings}
    trained, tokens = sum(own.values()), sum(one.tokens for one in readings)
    if seconds is None and steps is not None:
        exchange = 8 * trained / making["exchanged"] if machine.gpus > 1 else 0.0
        seconds = steps * (exchange + sum(_step(recipe, stage, one, machine) for one in readings))
    # Shards and token ids are made once, by the first stage that reads the data.
    first = next(one for one in recipe.stages if one.how_trained and _data(recipe, one) == _data(recipe, stage))
    made, labelled = (rows or 0) if first is stage else 0, stage.rows_read is not None
    if seconds is not None:
        seconds += machine.start_seconds + made * (tokens * making["token_seconds"] + labelled * making["row_seconds"])
        seconds += sum(one.shape.parameters / making["loaded"] for one in readings if one.adapter)
    weights = sum(shape.parameters for shape in own) * BYTES[plan.precision]
    kept = max(
        _UNEVEN
        * one.tokens
        * plan.batch
        / machine.gpus
        / _pieces(stage, one, machine.gpus)
        * one.shape.kept(checkpointed=plan.gradient_checkpointing)
        * BYTES[plan.precision]
        / 2
        + stage.more_memory(one.shape)
        for one in readings
    )
    held = size["text"] if not labelled else size["row_made"] if made else size["row_drawn"]
    disk = trained * (size["checkpoints"] if plan.checkpoint_every else 0)
    disk += sum(numbers * (4 if numbers == shape.parameters else 2) for shape, numbers in own.items())
    return StageEstimate(
        stage.name,
        stage.stage,
        sum(shape.parameters for shape in own),
        trained,
        steps,
        round(tokens * plan.batch),
        int(weights + trained * size["trained"] + kept),
        seconds,
        int(disk + made * (labelled * size["row_disk"] + tokens * size["token_disk"])),
        seconds is None,
        int(machine.gpus * (machine.host + weights + 12 * trained + held * (rows or 0))),
    )


def _step(recipe: Recipe, stage: TrainingStage, reading: Reading, machine: Machine) -> float:
    """What an encoder takes in a step: its operations, or its launches where those take longer."""
    shape, pieces = reading.shape, _pieces(stage, reading, machine.gpus)
    # Forward 2 and backward 4 a parameter and token. An adapter apart needs no gradients of the base, so 2 and 2; yet a
    # merged one, with all 6, is twice as fast: so trained_document.py says, and no file holds that measurement.
    apart = reading.adapter and recipe.decoder_stage.apart
    # All pieces but the last are encoded twice; so are all layers where they are recomputed.
    operations = (12 if apart else 6) + 2 * (1 - 1 / pieces) + 2 * stage.training.gradient_checkpointing
    work = operations * (shape.body + shape.width) * reading.tokens * stage.training.batch
    launches = pieces * shape.layers * machine.layer_seconds
    return machine.step_seconds + max(machine.seconds(work, shape.width), launches)


def _pieces(stage: TrainingStage, reading: Reading, gpus: int) -> float:
    """The pieces into which gradient caching cuts what one process reads in a step."""
    plan, rows = stage.training, -(-stage.training.batch // gpus)
    by_text = rows * reading.texts / plan.chunk if plan.chunk else 1.0
    return max(1.0, by_text, rows * reading.tokens / plan.token_budget if plan.token_budget else 1.0)


def _data(recipe: Recipe, stage: Stage) -> object:
    """What tells apart the data of stages: those of the same rows, or texts, share what is made of them."""
    rows = stage.rows_read
    return stage.texts_file(recipe) if rows is None else (rows.sources, stage.unsupervised)


def adapter_size(recipe: Recipe, shape: Shape) -> int:
    """The numbers of the document encoder's adapter."""
    if recipe.decoder_stage is None or not shape.layers:
        return 0
    lora = recipe.decoder_stage.lora
    # A rank-r pair beside a matrix of width x n holds r (width + n) numbers; n is at its mean over the matrices.
    outer = shape.body / shape.layers / len(lora.modules) / shape.width
    return int(shape.layers * len(lora.modules) * lora.rank * (shape.width + outer))
