"""Supervised fine-tuning of a language model as something to optimise: the loss is of the answers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from suwen.errors import SuwenError
from suwen.training.loop.batches import Ints, Shuffled, chunks
from suwen.training.loop.processes import average, own_share
from suwen.training.recipe.key_groups import Precision, Training
from suwen.training.tasks.merged_lora import MergedLora
from suwen.training.tasks.towers import ModuleTask, autocast


class AnswerTask(ModuleTask):
    """Each answer is to be likely after its prompt; the prompt itself is not learnt.

    Args:
        model: The language model with its head.
        trained: The adapter's matrices: merged ones, or the model with those of peft in it.
        examples: Token ids of each prompt, and of its answer with the end.
        training: Batch, and the pieces in which one is read.
        seed: Of the order.
    """

    def __init__(
        self,
        model: Any,
        trained: torch.nn.Module,
        examples: Sequence[tuple[list[int], list[int]]],
        training: Training,
        *,
        seed: int,
    ) -> None:
        super().__init__(trained)
        if len(examples) < 2:
            raise SuwenError(f"{len(examples)} answers are left to train on: give more, or a larger max_length")
        self.model, self.examples, self.order = model, examples, Shuffled(len(examples), training.batch, seed)
        self.precision: Precision = training.precision
        self._budgets = training.token_budget, training.chunk
        self._lengths = np.array([len(prompt) + len(answer) for prompt, answer in examples])

    def describe(self, number: int) -> str:
        """Which examples a step sees."""
        return f"answers {', '.join(map(str, self.order.rows(number)[:5]))}…"

    def step(self, number: int) -> dict[str, float | torch.Tensor]:
        """Forward and backward of one step, in pieces within the budgets."""
        rows = own_share(self.order.rows(number))
        rows = rows[np.argsort(self._lengths[rows], kind="stable")]
        # The mean over all tokens of the step: pieces of a few tokens count for a few.
        whole = average([float(sum(len(self.examples[row][1]) for row in rows))])[0]
        merged = self.module if isinstance(self.module, MergedLora) else None
        if merged is not None:
            merged.merge()
        total = torch.zeros((), device=self.model.device)
        for piece in chunks(self._lengths[rows], *self._budgets):
            loss = self._loss(rows[piece]) / whole
            self.scaled(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        if merged is not None:
            merged.split()
        return {"loss": total}

    def _loss(self, rows: Ints) -> torch.Tensor:
        """The summed loss of the answers' tokens; only at their places the head is asked, whose output is widest."""
        longest = int(self._lengths[rows].max())
        ids = torch.zeros((len(rows), longest), dtype=torch.int64)
        answers, real = torch.zeros((2, len(rows), longest), dtype=torch.bool)
        for place, row in enumerate(rows):
            prompt, answer = self.examples[row]
            ids[place, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
            real[place, : len(prompt) + len(answer)] = True
            answers[place, len(prompt) : len(prompt) + len(answer)] = True
        device = self.model.device
        with autocast(device, self.precision):
            states = self.model.base_model(
                input_ids=ids.to(device), attention_mask=real.long().to(device), use_cache=False
            ).last_hidden_state
            # A token is foretold by the state before it.
            scores = self.model.get_output_embeddings()(states[:, :-1][answers[:, 1:].to(device)])
        return torch.nn.functional.cross_entropy(scores.float(), ids[answers].to(device), reduction="sum")
