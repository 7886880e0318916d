"""Contrastive training on rows as something to optimise: fine-tuning, the document encoder, and Stage II."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suwen.encoders.packed import to_device
from suwen.training.loop.batches import Ints, OneSourceBatches, spans
from suwen.training.loop.processes import gather, own_share, world
from suwen.training.losses.distil_kl import DistilKL
from suwen.training.losses.info_nce import InfoNCE, similarities
from suwen.training.losses.matryoshka import Matryoshka
from suwen.training.tasks.align_task import AlignTask
from suwen.training.tasks.fused_queries import Beside, fused
from suwen.training.tasks.merged_lora import MergedLora
from suwen.training.tasks.row_tables import PairTable
from suwen.training.tasks.towers import FrozenTower, ModuleTask, Tower, backward_through, parameter_groups


@dataclass(frozen=True)
class PairLosses:
    """What is minimised over rows.

    Attributes:
        temperature: Of the contrastive loss.
        learn_temperature: Train it too, from that start.
        dimensions: Nested widths to average over; none = the whole vector alone.
        backward_weight: Weight of the document-to-query direction.
        distil: Weight of the KL divergence towards the teacher's scores of the same candidates.
        keep_alignment: Weight of the Stage-I loss, where an alignment is given.
        normalise: Whether vectors cut to a nested width get length one again.
        others: Weight of a query's other right documents that happen to be in the batch.
        share_negatives: Whether a row's hard negatives are those of every row of the batch (CARE), or its own alone,
            beside the positives of the others (CardioEmbed eq. 1).
    """

    temperature: float = 0.02
    learn_temperature: bool = False
    dimensions: tuple[int, ...] = ()
    backward_weight: float = 0.0
    distil: float = 0.0
    keep_alignment: float = 0.0
    normalise: bool = True
    others: float = 0.0
    share_negatives: bool = True


@dataclass(frozen=True)
class Teacher:
    """Vectors whose scores are distilled, by the ids of the table's queries and documents."""

    queries: FrozenTower
    documents: FrozenTower


@dataclass(frozen=True)
class Asker:
    """Another query encoder of the space, which learns nothing: documents learn to be found by it too.

    Attributes:
        queries: It, over the table's queries.
        documents: It, over the table's documents, which come half-way to it; None where they stay.
        share: Of its vector, in documents that come half-way.
    """

    queries: Tower
    documents: Tower | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Batch:
    """One step in ids: the queries, and the documents, of which the first are the queries' positives.

    ``negative_of`` numbers the query that a document is a hard negative of: -1 where it is a positive, and -2 where it
    only fills up. ``hypothetical`` stand beside the queries that ``owners`` number.
    """

    queries: Ints
    documents: Ints
    negative_of: Ints
    hypothetical: Ints
    owners: Ints


class PairTask(ModuleTask):
    """Queries find their documents among those of the batch. One source per batch.

    Args:
        table: Rows with text ids.
        queries: Encodes the table's queries.
        documents: Encodes the table's documents (may be frozen, may be the same model).
        modules: What is trained, with the learning-rate factor of each.
        batches: Which rows a step sees.
        losses: What is minimised.
        negatives: Negatives drawn per row.
        seed: Of the draws.
        teacher: For distillation.
        alignment: The Stage-I task kept in the mix.
        beside: What queries are fused with; they are asked alone where it is None.
        asker: Who asks the same queries beside, and learns nothing.
    """

    def __init__(
        self,
        table: PairTable,
        queries: Tower,
        documents: Tower,
        modules: Sequence[tuple[torch.nn.Module, float]],
        batches: OneSourceBatches,
        losses: PairLosses,
        *,
        negatives: int = 0,
        seed: int = 0,
        teacher: Teacher | None = None,
        alignment: AlignTask | None = None,
        beside: Beside | None = None,
        asker: Asker | None = None,
    ) -> None:
        super().__init__(torch.nn.ModuleList([module for module, _ in modules]))
        self.table, self.queries, self.documents = table, queries, documents
        self.batches, self.losses, self.negatives, self.seed = batches, losses, negatives, seed
        self._teacher, self._alignment, self._beside, self._asker = teacher, alignment, beside, asker
        self._modules = list(modules)
        self._merged = [module for module, _ in modules if isinstance(module, MergedLora)]
        device = next(p.device for module, _ in modules for p in module.parameters())
        self._log_temperature = torch.nn.Parameter(
            torch.tensor(float(np.log(losses.temperature)), device=device), requires_grad=losses.learn_temperature
        )
        self.module.register_parameter("log_temperature", self._log_temperature)

    def groups(self) -> list[dict[str, Any]]:
        """AdamW's groups."""
        groups = [group for module, rate in self._modules for group in parameter_groups([module], rate=rate)]
        if self.losses.learn_temperature:
            groups.append({"params": [self._log_temperature], "weight_decay": 0.0})
        return groups

    def describe(self, number: int) -> str:
        """Which rows a step sees."""
        batch = self.batches.rows(number)
        shown = [self.table.queries[id_][:40] for id_ in self.table.sources[batch.source].queries[batch.positions[:3]]]
        return f"source {batch.source}, {len(batch.positions)} rows, such as {shown}"

    def step(self, number: int) -> dict[str, float | torch.Tensor]:
        """Forward and backward of one step."""
        batch = self.draw(number)
        curves: dict[str, float | torch.Tensor] = {}
        for adapter in self._merged:
            adapter.merge()

        asked: list[tuple[Tower, Ints]] = [(self.queries, batch.queries), (self.documents, batch.documents)]
        if self._beside is not None and len(batch.hypothetical):
            asked.insert(1, (self._beside.tower, batch.hypothetical))

        def loss(vectors: torch.Tensor) -> torch.Tensor:
            queries, others, documents = torch.split(
                vectors, [len(batch.queries), len(batch.owners), len(batch.documents)]
            )
            if self._beside is not None:
                queries = fused(queries, others, batch.owners, self._beside.weight)
            return self.scaled(self._loss(queries, documents, batch))

        total = backward_through(asked, loss)
        if self._alignment is not None and self.losses.keep_alignment:
            weight = self.losses.keep_alignment
            kept = self._alignment.backward(number, scale=lambda loss: self.scaled(weight * loss))
            curves["alignment"] = weight * kept["loss"]
        for adapter in self._merged:
            adapter.split()
        scale = 1.0 if self.scaler is None else float(self.scaler.get_scale())
        curves["loss"] = total / scale
        if self.losses.learn_temperature:
            curves["temperature"] = self._log_temperature.detach().exp()
        return curves

    def draw(self, number: int) -> Batch:
        """The texts of step ``number``, this process's share of them."""
        chosen = self.batches.rows(number)
        rank, size = world()
        rng = np.random.default_rng((self.seed, number, rank, 7))
        source, rows = self.table.sources[chosen.source], own_share(chosen.positions)
        right = [(ids := source.positives[row])[int(rng.integers(len(ids)))] for row in rows]
        wrong = [_some(source.negatives[row], self.negatives, rng) for row in rows]
        documents = np.concatenate([np.array(right, np.int64), *wrong])
        lengths = [len(ids) for ids in wrong]
        negative_of = np.concatenate([np.full(len(rows), -1), np.arange(len(rows)).repeat(lengths)])
        if size > 1:
            documents = _evened(documents, len(rows) * (1 + self.negatives), self.table, rng)
            negative_of = np.append(negative_of, np.full(len(documents) - len(negative_of), -2))
        beside = [_some(source.hypothetical[row], self._beside.most, rng) for row in rows] if self._beside else []
        owners = np.arange(len(beside)).repeat([len(ids) for ids in beside])
        hypothetical = np.concatenate([np.zeros(0, np.int64), *beside])
        return Batch(source.queries[rows].astype(np.int64), documents, negative_of, hypothetical, owners)

    def _loss(self, queries: torch.Tensor, documents: torch.Tensor, batch: Batch) -> torch.Tensor:
        rank, size = world()
        every, device = gather(documents), documents.device
        ids = batch.documents
        if size > 1:
            ids = gather(torch.from_numpy(ids).to(device)).cpu().numpy()
        positives = torch.arange(len(queries), device=device) + rank * len(documents)
        left_out = right_columns(self.table, batch.queries, ids)
        if not self.losses.share_negatives:
            left_out |= _others(batch, device)
        same = to_device(left_out, device)
        temperature = self._log_temperature.exp() if self.losses.learn_temperature else self.losses.temperature
        nce = InfoNCE(temperature, self.losses.others)
        total = self._nested(nce, queries, every, positives, same)
        if self.losses.backward_weight:
            total = total + self.losses.backward_weight * self._backward(nce, queries, every, positives, same)
        if self.losses.distil and self._teacher is not None:
            candidates = gather(self._teacher.documents.vectors(batch.documents))
            taught = similarities(self._teacher.queries.vectors(batch.queries), candidates)
            total = total + self.losses.distil * DistilKL(self.losses.temperature)(similarities(queries, every), taught)
        if self._asker is not None:
            total = total + self._asked_beside(self._asker, nce, every, positives, same, batch)
        return total

    def _asked_beside(
        self, asker: Asker, nce: InfoNCE, documents: torch.Tensor, positives: Any, same: Any, batch: Batch
    ) -> torch.Tensor:
        """The loss of another encoder's queries over the documents it finds: cut to its width, come half-way."""
        with torch.no_grad():
            queries = asker.queries.vectors(batch.queries)
            own = None if asker.documents is None else gather(asker.documents.vectors(batch.documents))
        found = torch.nn.functional.normalize(documents[:, : queries.shape[1]], dim=-1)
        if own is not None:
            found = torch.nn.functional.normalize(found + asker.share * own, dim=-1)
        return nce(queries, found, positives, same)

    def _nested(
        self,
        loss: Callable[..., torch.Tensor],
        queries: torch.Tensor,
        documents: torch.Tensor,
        positives: Any,
        same: Any,
    ) -> torch.Tensor:
        if not self.losses.dimensions:
            return loss(queries, documents, positives, same)
        nested = Matryoshka(self.losses.dimensions, self.losses.normalise)
        return nested(loss, queries, documents, positives=positives, same_text=same)

    def _backward(
        self, nce: InfoNCE, queries: torch.Tensor, documents: torch.Tensor, positives: Any, same: Any
    ) -> torch.Tensor:
        """Each document finds its query; over several processes the queries are gathered too."""
        first = world()[0] * len(queries)
        reverse = partial(nce.reverse, own=slice(first, first + len(queries)))
        return self._nested(reverse, gather(queries), documents, gather(positives), gather(same))


def right_columns(table: PairTable, queries: Ints, documents: Ints) -> npt.NDArray[np.bool_]:
    """Which documents of a batch are right for each query, by any of its rows: none of them is a negative."""
    right = np.zeros((len(queries), len(documents)), np.bool_)
    order = np.argsort(words := table.words[documents], kind="stable")
    ids, lengths = table.right.take(queries)
    first, last = np.searchsorted(words, ids, "left", order), np.searchsorted(words, ids, "right", order)
    right[np.arange(len(queries)).repeat(lengths).repeat(last - first), order[spans(first, last - first)]] = True
    return right


def _others(batch: Batch, device: torch.device) -> npt.NDArray[np.bool_]:
    """Which documents of a batch, of all processes, are hard negatives of another query than each of this process's."""
    rank, size = world()
    count, negative_of = len(batch.queries), batch.negative_of
    if size > 1:
        shifted = np.where(negative_of >= 0, negative_of + rank * count, negative_of)
        negative_of = gather(torch.from_numpy(shifted).to(device)).cpu().numpy()
    own = np.arange(count)[:, None] + rank * count
    return np.asarray((negative_of[None, :] != -1) & (negative_of[None, :] != own))


def _some(ids: npt.NDArray[Any], count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    if count <= 0 or len(ids) <= count:
        return ids[: max(count, 0)]
    return ids[rng.choice(len(ids), count, replace=False)]


def _evened(documents: Ints, wanted: int, table: PairTable, rng: np.random.Generator) -> Ints:
    """Fill up with random documents: over several processes each must hold as many as the others."""
    missing = wanted - len(documents)
    return np.concatenate([documents, rng.integers(len(table.documents), size=missing)]) if missing else documents
