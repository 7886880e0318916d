"""The stage ``retromae``: masked auto-encoding of a student, so that its first token learns to hold the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from suwen.training.context import Context
from suwen.training.loop.batches import FlatTokens, Shuffled, tokenise
from suwen.training.loop.processes import own_share
from suwen.training.recipe.settings import RetromaeStage
from suwen.training.stages.aligned import finish_student, open_student
from suwen.training.tasks.masked_autoencoder import RetroMAE
from suwen.training.tasks.towers import Precision, autocast, load_trainable, parameter_groups, trainable_state


class RetromaeTask:
    """Both reconstructions over unlabelled texts.

    Args:
        auto: Encoder and light decoder.
        tokens: The texts.
        pad: The padding id.
        batch: Texts per step.
        seed: Of order and masks.
        precision: Of the forward pass.
    """

    def __init__(
        self, auto: RetroMAE, tokens: FlatTokens, pad: int, batch: int, *, seed: int, precision: Precision
    ) -> None:
        self.auto, self.tokens, self.pad, self.seed, self.precision = auto, tokens, pad, seed, precision
        self.order = Shuffled(len(tokens), batch, seed)
        self.scaler: Any = None

    def groups(self) -> list[dict[str, Any]]:
        """AdamW's groups."""
        return parameter_groups([self.auto])

    def state(self) -> dict[str, torch.Tensor]:
        """Encoder and decoder."""
        return trainable_state(self.auto)

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Put them back."""
        load_trainable(self.auto, state)

    def describe(self, number: int) -> str:
        """Which texts a step sees."""
        return f"texts {', '.join(map(str, self.order.rows(number)[:5]))}…"

    def step(self, number: int) -> dict[str, float | torch.Tensor]:
        """Forward and backward of one step."""
        flat, lengths = self.tokens.take(own_share(self.order.rows(number)))
        real = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
        padded = np.full(real.shape, self.pad, np.int64)
        padded[real] = flat
        device = next(self.auto.parameters()).device
        generator = torch.Generator(device).manual_seed(self.seed * 1_000_003 + number)
        with autocast(device, self.precision):
            found = self.auto.loss(
                torch.from_numpy(padded).to(device), torch.from_numpy(real.astype(np.int64)).to(device), generator
            )
        total = found["loss"]
        (total if self.scaler is None else self.scaler.scale(total)).backward()
        return {name: value.detach() for name, value in found.items()}


def run_retromae(context: Context, stage: RetromaeStage) -> dict[str, float]:
    """Pre-train a student on unlabelled texts."""
    folder = context.open(stage, context.data_hashes(texts=True) | context.student_hash(stage.student, None))
    if folder.finished:
        return folder.metrics
    student = open_student(context, stage.student, None, training=stage.training)
    seed = context.seed_of(stage)
    side = student.sides["document"]
    tokens = tokenise(
        side,
        context.texts(stage.limit).texts,
        max_length=stage.max_length or student.length("document"),
        cache=student.cache,
    )
    auto = RetroMAE(
        student.model,
        encoder_mask=stage.encoder_mask,
        decoder_mask=stage.decoder_mask,
        seed=seed,
    ).to(context.device)
    task = RetromaeTask(
        auto,
        tokens,
        int(side.tokenizer.pad_token_id),
        stage.training.batch,
        seed=seed,
        precision=stage.training.precision,
    )
    auto.train()
    context.optimise(task, folder, stage.training, per_epoch=task.order.per_epoch)
    return finish_student(context, folder, student, None)
