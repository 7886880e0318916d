"""Stage I as something to optimise: a student lands where a fixed document encoder put the same text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suwen.encoders.packed import to_device
from suwen.training.loop.batches import Ints, Shuffled
from suwen.training.loop.processes import gather, own_share, world
from suwen.training.losses.distil_kl import DistilKL
from suwen.training.losses.info_nce import InfoNCE, similarities, text_mask
from suwen.training.losses.leaf import Leaf
from suwen.training.losses.squared_l2 import SquaredL2
from suwen.training.tasks.towers import FrozenTower, ModuleTask, TrainedTower, backward_through, parameter_groups


@dataclass(frozen=True)
class Part:
    """Texts of one form: who encodes them, where they must land, and their share of a batch.

    Attributes:
        form: ``query`` or ``document``.
        tower: The student in that form.
        targets: The teacher's vectors in that form.
        places: For each text of the part, its row in ``targets``.
        texts: For each text of the part, a number that is equal where texts are equal, over all parts.
        share: Of the batch.
        neighbours: For each text of the part, the rows of its nearest documents in the bank, ``[texts, count]``; None
            where their order is not learnt.
    """

    form: str
    tower: TrainedTower
    targets: FrozenTower
    places: Ints
    texts: Ints
    share: float
    neighbours: npt.NDArray[np.integer[Any]] | None = None


@dataclass(frozen=True)
class AlignLosses:
    """The weights of the losses of Stage I, and their temperature."""

    contrastive: float = 1.0
    squared_l2: float = 1.0
    distil: float = 0.0
    leaf: float = 0.0
    ranking: float = 0.0
    temperature: float = 0.03

    def weighted(
        self, losses: Mapping[str, Callable[[], torch.Tensor]]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The weighted sum (CARE eq. 3, with both weights 1), and each part before its weight, for the curves.

        A part of weight 0 is left out, not multiplied: an ablation neither computes it nor inherits its NaN.
        """
        parts = {name: loss() for name, loss in losses.items() if getattr(self, name)}
        terms = [getattr(self, name) * part for name, part in parts.items()]
        return sum(terms[1:], start=terms[0]), {name: part.detach() for name, part in parts.items()}


class AlignTask(ModuleTask):
    """Optimised by :func:`suwen.training.loop.training_loop.optimise`; Stage II, too, may keep it in the mix.

    Args:
        model: The student.
        parts: Its texts, by form.
        batch: Texts per step over all processes.
        losses: What is minimised.
        seed: Of the order.
        rates: Factors of the learning rate by part of the student (embeddings, encoder, projection).
        bank: The teacher's vectors of the documents that ``neighbours`` of the parts name.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        parts: Sequence[Part],
        batch: int,
        losses: AlignLosses,
        *,
        seed: int,
        rates: Mapping[str, float] | None = None,
        bank: FrozenTower | None = None,
    ) -> None:
        super().__init__(model)
        self.parts, self.losses, self._rates, self._bank = list(parts), losses, dict(rates or {}), bank
        shares = np.array([part.share for part in parts])
        processes = world()[1]  # each takes as many of every part
        sizes = processes * np.maximum(1, np.round(batch * shares / shares.sum() / processes)).astype(int)
        self._orders = [
            Shuffled(len(part.places), int(size), seed + 101 * number)
            for number, (part, size) in enumerate(zip(parts, sizes, strict=True))
        ]
        self.per_epoch = max(1, round(sum(len(part.places) for part in parts) / sum(o.batch for o in self._orders)))

    def groups(self) -> list[dict[str, Any]]:
        """AdamW's groups."""
        if not self._rates:
            return super().groups()
        named: dict[str, list[torch.nn.Module]] = {}
        for child in self.module.children():
            part = {"Dense": "projection", "StaticEmbedding": "embeddings"}.get(type(child).__name__, "encoder")
            named.setdefault(part, []).append(child)
        return [
            group
            for name, modules in named.items()
            for group in parameter_groups(modules, rate=self._rates.get(name, 1.0))
        ]

    def describe(self, number: int) -> str:
        """Which texts a step sees."""
        return "; ".join(
            f"{part.form} texts {', '.join(map(str, part.texts[order.rows(number)][:5]))}…"
            for part, order in zip(self.parts, self._orders, strict=True)
        )

    def step(self, number: int) -> dict[str, float | torch.Tensor]:
        """Forward and backward of one step."""
        return dict(self.backward(number, scale=self.scaled))

    def backward(self, number: int, *, scale: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
        """Forward and backward of the texts of a step, in the pieces the towers make where they make several.

        Args:
            number: Of the step.
            scale: What the loss goes through before the backward pass.

        Returns:
            ``loss``, not scaled, and what it is the sum of.
        """
        drawn = [order.rows(number) for order in self._orders]
        values: dict[str, torch.Tensor] = {}

        def loss(student: torch.Tensor) -> torch.Tensor:
            total, parts = self._loss(student, drawn)
            values.update({"loss": total.detach(), **parts})
            return scale(total)

        asked = [(part.tower, own_share(whole)) for part, whole in zip(self.parts, drawn, strict=True)]
        backward_through(asked, loss, together=True)
        return values

    def _loss(self, student: torch.Tensor, drawn: Sequence[Ints]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        own = [(part, own_share(whole)) for part, whole in zip(self.parts, drawn, strict=True)]
        teacher = torch.cat([part.targets.vectors(part.places[rows]) for part, rows in own])
        texts = np.concatenate([part.texts[rows] for part, rows in own])
        every, every_text = gather(teacher), gather(to_device(texts, student.device))
        rank, _ = world()
        positives = torch.arange(len(student), device=student.device) + rank * len(student)
        return self.losses.weighted(
            {
                "contrastive": lambda: InfoNCE(self.losses.temperature)(
                    student, every, positives, text_mask(every_text, positives)
                ),
                "squared_l2": lambda: SquaredL2()(student, teacher),
                "distil": lambda: DistilKL(self.losses.temperature)(
                    similarities(student, every), similarities(teacher, every)
                ),
                "leaf": lambda: Leaf()(student, teacher),
                "ranking": lambda: self._ranking(student, teacher, drawn),
            }
        )

    def _ranking(self, student: torch.Tensor, teacher: torch.Tensor, drawn: Sequence[Ints]) -> torch.Tensor:
        """How far the student's order of the nearest documents of all texts of the batch is from the teacher's.

        A distance between vectors counts all directions alike; a search only those in which near documents differ.
        Those of other texts are what a student may wrongly put first: the teacher's own first ones cannot tell it.
        """
        assert self._bank is not None
        ranked, near, start = [], [], 0
        for part, whole in zip(self.parts, drawn, strict=True):
            end = start + len(own_share(whole))
            if part.neighbours is not None:
                ranked.append(torch.arange(start, end, device=student.device))
                near.append(part.neighbours[whole].reshape(-1))  # of all processes
            start = end
        documents = self._bank.vectors(np.unique(np.concatenate(near)).astype(np.int64))
        mine, its = (similarities(side[torch.cat(ranked)], documents) for side in (student, teacher))
        return DistilKL(self.losses.temperature)(mine, its)
