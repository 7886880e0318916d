"""A cross-encoder over lists as something to optimise: of a query's candidates the first is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from suwen.training.loop.batches import Ints, Shuffled, spans
from suwen.training.loop.processes import own_share
from suwen.training.losses.distil_kl import DistilKL
from suwen.training.tasks.merged_lora import MergedLora
from suwen.training.tasks.towers import ModuleTask, TrainedTower, backward_through, parameter_groups

#: In place of a candidate that a shorter list does not have: no share of a softmax, and still a finite number.
_NOBODY = -1e4
#: Times the learning rate, of a head.
FASTER = 30.0


@dataclass(frozen=True)
class ListLosses:
    """What is minimised over lists.

    Attributes:
        labels: Weight of the cross entropy: the first candidate is the right one.
        distil: Weight of the KL divergence from the teacher's distribution over the candidates.
        temperature: Of both distributions in that divergence.
    """

    labels: float = 1.0
    distil: float = 0.0
    temperature: float = 1.0


class ListTask(ModuleTask):
    """Each query's right candidate is to score above the others, and all of them as a teacher has it.

    Args:
        tower: Scores candidates by their places: a vector of one number each.
        sizes: How many candidates each query has; they stand one query after the other.
        trained: What learns.
        losses: What is minimised.
        batch: Queries a step.
        seed: Of their order.
        taught: The teacher's score of every candidate, where one is distilled.
        drawn: Candidates that a step draws of a list, the right one among them; None for all.
        head: A part of ``trained`` that learns :data:`FASTER` than the rest.
    """

    def __init__(
        self,
        tower: TrainedTower,
        sizes: Sequence[int],
        trained: torch.nn.Module,
        losses: ListLosses,
        *,
        batch: int,
        seed: int,
        taught: Sequence[float] | None = None,
        drawn: int | None = None,
        head: torch.nn.Module | None = None,
    ) -> None:
        super().__init__(trained)
        self._seed, self._drawn, self._head = seed, drawn, head
        self.tower, self.losses, self.order = tower, losses, Shuffled(len(sizes), batch, seed)
        self._sizes = np.asarray(sizes, np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._taught = None if taught is None else torch.tensor(taught, dtype=torch.float32)
        self._merged = [module for module in trained.modules() if isinstance(module, MergedLora)]

    def describe(self, number: int) -> str:
        """Which queries a step sees."""
        return f"lists {', '.join(map(str, self.order.rows(number)[:5]))}…"

    def step(self, number: int) -> dict[str, float | torch.Tensor]:
        """Forward and backward of one step, in the pieces the tower makes."""
        rows = own_share(self.order.rows(number))
        places, columns = self._places(rows, number)
        for adapter in self._merged:
            adapter.merge()

        def loss(made: torch.Tensor) -> torch.Tensor:
            return self.scaled(self._loss(made[:, 0], places, columns))

        total = backward_through([(self.tower, places)], loss)
        for adapter in self._merged:
            adapter.split()
        return {"loss": total / (1.0 if self.scaler is None else float(self.scaler.get_scale()))}

    def groups(self) -> list[dict[str, Any]]:
        """AdamW's groups: a score begins as a cosine times some thirty, so what it is multiplied by has far to go."""
        if self._head is None:
            return super().groups()
        fast = {id(one) for one in self._head.parameters()}
        rest = [group | {"params": [p for p in group["params"] if id(p) not in fast]} for group in super().groups()]
        return [*(group for group in rest if group["params"]), *parameter_groups([self._head], rate=FASTER)]

    def _places(self, rows: Ints, number: int) -> tuple[Ints, Ints]:
        """The candidates of some queries, one after the other, and where each query's stand among them; -1: none."""
        sizes = self._sizes[rows]
        if self._drawn is None:
            places = spans(self._starts[rows], sizes)
        else:
            # Of every list the first, which is right, and some of the others; not the same ones in every pass.
            few = np.minimum(sizes, self._drawn)
            parts = [
                start
                + np.append(0, 1 + np.random.default_rng((self._seed, number, int(row))).permutation(size - 1)[: k - 1])
                for row, start, size, k in zip(rows, self._starts[rows], sizes, few, strict=True)
            ]
            places = np.concatenate(parts)
            sizes = few
        there = np.arange(int(sizes.max()))[None, :] < sizes[:, None]
        columns = np.full(there.shape, -1, np.int64)
        columns[there] = np.arange(int(sizes.sum()))
        return places, columns

    def _loss(self, scores: torch.Tensor, places: Ints, columns: Ints) -> torch.Tensor:
        there = torch.from_numpy(columns >= 0).to(scores.device)
        at = torch.from_numpy(np.maximum(columns, 0)).to(scores.device)
        lists = torch.where(there, scores[at], _NOBODY)
        first = torch.zeros(len(lists), dtype=torch.int64, device=scores.device)
        total = self.losses.labels * functional.cross_entropy(lists, first)
        if self.losses.distil and self._taught is not None:
            taught = self._taught[torch.from_numpy(places)].to(scores.device)
            teacher = torch.where(there, taught[at], _NOBODY)
            total = total + self.losses.distil * DistilKL(self.losses.temperature)(lists, teacher)
        return total
