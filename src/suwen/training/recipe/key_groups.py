"""The groups of keys that stages share: training, rows, prompts, adapter, mining. The stages are in ``stages/``."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from suwen.encoders.prompts import Prompts as SpacePrompts

#: What a text is: query, answer, title, sentence, span, name, pattern… as the file of texts says.
Kind = Annotated[str, Field(pattern=r"^[a-z][a-z-]*$", max_length=32)]
Schedule = Literal["linear", "cosine", "constant"]
Precision = Literal["fp32", "bf16", "fp16"]
Faithful = Literal["paper", "code", "fixed"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]

#: The seven matrices of a decoder layer.
DECODER_MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class KeyGroup(BaseModel):
    """A frozen group of keys; a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def later(default: Any, description: str, **limits: Any) -> Any:
    """A key that came after runs were made: left at its default, it does not tell the work of a stage apart."""
    return Field(default=default, description=description, json_schema_extra={"later": True}, **limits)


def _shares(blend: dict[str, float]) -> dict[str, float]:
    if blend and (min(blend.values()) <= 0 or sum(blend.values()) >= 1):
        raise ValueError(f"the shares of a blend are above 0 and less than 1 in all, not {blend}: lower them")
    return blend


#: Finished stages of other students, with the share each has of the vector.
Blend = Annotated[dict[Name, float], AfterValidator(_shares)]


#: Keys of a stage that say how it fits into memory and what is kept on the way, not what is learnt: a run may go on
#: with others, and is the same work.
HOW = (
    *(
        f"training.{key}"
        for key in ("checkpoint_every", "log_every", "chunk", "token_budget", "gradient_checkpointing")
    ),
    "token_budget",
    "compile",
)


class Optimisation(KeyGroup):
    """AdamW and its learning rate."""

    learning_rate: float = Field(gt=0, lt=1, description="the peak learning rate")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's decay of matrices")
    warmup: float = Field(default=0.05, ge=0, lt=1, description="share of the steps that warm up")
    schedule: Schedule = Field(default="linear", description="what follows the warm-up")
    clip: float | None = Field(default=1.0, gt=0, description="largest gradient norm; null clips nothing")

    def factor(self, fraction: float) -> float:
        """The part of the learning rate to use when a fraction of the training is done.

        >>> plan = Optimisation(learning_rate=1e-4, warmup=0.5)
        >>> [plan.factor(fraction) for fraction in (0.0, 0.25, 0.5, 0.75, 1.0)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if fraction < self.warmup:
            return max(0.0, fraction / self.warmup)
        past = min(1.0, (fraction - self.warmup) / (1 - self.warmup))
        shapes = {"linear": 1 - past, "cosine": (1 + math.cos(math.pi * past)) / 2, "constant": 1.0}
        return shapes[self.schedule]


class Training(Optimisation):
    """How long and how one stage is optimised."""

    steps: int | None = Field(default=None, ge=0, description="optimiser steps; 0 keeps the weights as they start")
    epochs: float | None = Field(default=None, gt=0, description="passes over the stage's rows or texts")
    seconds: float | None = Field(default=None, gt=0, description="a time budget; the schedule follows the clock")
    batch: int = Field(ge=1, description="rows per step, over all processes")
    precision: Precision = Field(default="fp32", description="number format of the forward and backward pass")
    gradient_checkpointing: bool = Field(default=False, description="recompute activations: less memory, more time")
    chunk: int | None = Field(default=None, ge=1, description="texts per piece of the gradient cache; null = off")
    token_budget: int | None = Field(default=None, ge=1, description="padded tokens per forward pass; null = no limit")
    checkpoint_every: int = Field(default=200, ge=0, description="steps between checkpoints; 0 = only the last")
    log_every: int = Field(default=20, ge=1, description="steps between points of the curves")
    seed: int | None = Field(default=None, ge=0, description="seed of this stage; null = the run's")
    warmup_steps: int | None = later(None, "steps that warm up, in place of the share `warmup`", ge=0)

    @model_validator(mode="after")
    def _one_length(self) -> Training:
        if self.warmup_steps is not None and self.seconds is not None:
            raise ValueError(
                "`warmup_steps` counts steps, and the clock says how many there are: give `warmup`, a share"
            )
        given = [key for key in ("steps", "epochs", "seconds") if getattr(self, key) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none of them"
            raise ValueError(f"exactly one of steps, epochs and seconds says how long to train; {said} is given")
        return self

    def warmed(self, steps: int) -> Training:
        """The same, with the warm-up as a share of so many steps."""
        if self.warmup_steps is None:
            return self
        # The last step is no longer part of it: a share of 1 would never come down.
        return self.model_copy(update={"warmup": min(self.warmup_steps, steps - 1) / steps})

    def steps_over(self, rows: int) -> int | None:
        """The steps of a stage with so many rows or texts an epoch; None when the clock decides."""
        if self.seconds is not None:
            return None
        if self.epochs is not None:
            return max(1, round(self.epochs * rows / self.batch))
        return self.steps


class EarlyStop(KeyGroup):
    """Looks at questions that were set aside while a stage trains, and keeps the weights that were best there."""

    every: int = Field(default=250, ge=1, description="steps between two looks")
    patience: int | None = Field(
        default=None, ge=1, description="looks without a gain that end the stage; null = it goes on, and keeps the best"
    )


class ComeHalfway(KeyGroup):
    """Documents that come half-way to a tier: a share of its own vector of the text is added to theirs."""

    tier: str = Field(description="the tier")
    share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="of the tier's vector; null = as is best for questions set aside, without loss to the document "
        "encoder's own queries",
    )


class Rows(KeyGroup):
    """Which training rows a stage sees, and how often."""

    sources: tuple[str, ...] | None = Field(
        default=None, description="files <data.rows>/<source>.jsonl.gz; null = every file not named unsup-*"
    )
    weights: dict[str, float] = Field(default_factory=dict, description="how often a source is drawn, 1 when unsaid")
    limit_per_source: int | None = Field(default=None, ge=1, description="rows of one source in an epoch; null = all")
    negatives: int = Field(default=0, ge=0, description="negatives per row, labelled or mined, beside the batch's own")
    prompts: bool = Field(
        default=True, description="put each row's own instruction into the query prompt, where it has a place"
    )
    share: float = later(1.0, "share of each source's rows that is used, the same ones in every run", gt=0, le=1)

    @model_validator(mode="after")
    def _weights_are_of_sources(self) -> Rows:
        unknown = sorted(set(self.weights) - set(self.sources or self.weights))
        if unknown:
            raise ValueError(f"weights for sources that are not listed: {', '.join(unknown)}; add them to `sources`")
        if any(weight <= 0 for weight in self.weights.values()):
            raise ValueError("a weight must be above 0; leave a source out of `sources` instead")
        return self

    def require_whole(self) -> None:
        """Refuse keys without effect where every row is taken as it is."""
        for key, no_effect in (("weights", {}), ("limit_per_source", None), ("negatives", 0), ("share", 1.0)):
            if getattr(self, key) != no_effect:
                raise ValueError(f"`rows.{key}` has no effect here, every row of `sources` is taken: take it out")


class Prompts(KeyGroup):
    """What is put before a text on each side; both are said, or neither."""

    query: str | None = Field(default=None, description="before a query; {instruction} stands for the row's own")
    document: str | None = Field(default=None, description='before a document; "" when it is bare on purpose')
    instruction: str = Field(default="", description="the instruction of queries that bring none")

    @model_validator(mode="after")
    def _both_sides(self) -> Prompts:
        if (self.query is None) != (self.document is None):
            given, missing = ("query", "document") if self.document is None else ("document", "query")
            raise ValueError(
                f'a prompt on one side only: `{given}` is given, `{missing}` is not; say `{missing}: ""` if it is bare'
            )
        for key, text in (("query", (self.query or "").replace("{instruction}", "", 1)), ("document", self.document)):
            if {"{", "}"} & set(text or ""):
                raise ValueError(f"`{key}` has a brace: only {{instruction}} is filled, once, and only in `query`")
        return self

    @property
    def filled(self) -> SpacePrompts:
        """As they are put before texts and served: the default instruction in its place."""
        return SpacePrompts.filled(self.query or "", self.document or "", self.instruction)


class Lora(KeyGroup):
    """The low-rank adapter of the document encoder."""

    rank: int = Field(default=32, ge=1, description="its rank")
    alpha: float = Field(default=64, gt=0, description="its scale: alpha / rank")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout before it")
    modules: tuple[str, ...] = Field(default=DECODER_MATRICES, min_length=1, description="the matrices it is put on")


class Mine(KeyGroup):
    """Hard negatives from the teacher's own ranking."""

    first_rank: int = Field(default=2, ge=1, description="best rank a negative may have")
    last_rank: int = Field(default=40, ge=1, description="worst rank a negative may have")
    margin: float | None = Field(
        default=0.95,
        gt=0,
        le=1,
        description="dropped above this share of the positive's score; null = none is: what stands above it is what a "
        "reranker has to put right",
    )
    count: int = Field(default=15, ge=1, description="negatives kept per row")

    @model_validator(mode="after")
    def _a_window(self) -> Mine:
        if self.last_rank < self.first_rank:
            raise ValueError(f"last_rank {self.last_rank} is before first_rank {self.first_rank}; swap them")
        return self


class Hyde(KeyGroup):
    """How a query is fused with the hypothetical documents of its row: in training as in a search."""

    weight: float = Field(default=1.0, gt=0, description="how many documents the query counts for; 1 = the plain mean")
    documents: int = Field(default=1, ge=1, description="how many of a row's documents a step takes")
    by: Literal["student", "document"] = Field(
        default="student",
        description="of a pair: who encodes them, the student in document form, as a search on the light side does, "
        "or the document encoder",
    )


def hyde_problem(hyde: Hyde | None, rewrites: str | None, rows: Rows) -> None:
    """Refuse keys of a stage on written rows that have no effect."""
    if rewrites is not None and (rows.sources is not None or rows.weights):
        raise ValueError("`rows.sources` and `rows.weights` have no effect with `rewrites`: take them out, or it")
    if hyde is not None and hyde.documents > 1 and rewrites is None:
        raise ValueError("`hyde.documents` above 1 needs rows with several: name their `rewrites`")


class Draws(KeyGroup):
    """How texts are drawn from a language model."""

    temperature: float = Field(default=0.7, ge=0, description="0 takes the likeliest token")
    top_p: float | None = Field(default=None, gt=0, le=1, description="share of probability drawn among; null = all")
    top_k: int | None = Field(default=None, ge=1, description="likeliest tokens drawn among; null = all")
    max_tokens: int = Field(default=256, ge=1, description="the most tokens of a text")


class Forms(KeyGroup):
    """Which texts the teacher embeds as a query, and which as a document."""

    query: tuple[Kind, ...] | None = Field(default=None, description="kinds in query form; null = all")
    document: tuple[Kind, ...] | None = Field(default=(), description="kinds in document form; null = all")
