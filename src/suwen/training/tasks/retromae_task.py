"""What the stage ``retromae`` optimises: two reconstructions of masked texts, step by step."""

from __future__ import annotations

import numpy as np
import torch

from suwen.training.loop.batches import Ragged, Shuffled
from suwen.training.loop.processes import own_share
from suwen.training.recipe.key_groups import Precision
from suwen.training.tasks.masked_autoencoder import RetroMAE
from suwen.training.tasks.towers import ModuleTask, autocast


class RetromaeTask(ModuleTask):
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
        self, auto: RetroMAE, tokens: Ragged, pad: int, batch: int, *, seed: int, precision: Precision
    ) -> None:
        super().__init__(auto)
        self.auto, self.tokens, self.pad, self.seed, self.precision = auto, tokens, pad, seed, precision
        self.order = Shuffled(len(tokens), batch, seed)

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
            losses = self.auto.loss(
                torch.from_numpy(padded).to(device), torch.from_numpy(real.astype(np.int64)).to(device), generator
            )
        self.scaled(losses["loss"]).backward()  # type: ignore[no-untyped-call]
        return {name: value.detach() for name, value in losses.items()}
