"""What turns text ids into vectors in a training step: a model that learns, or frozen vectors. And what is trained."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

import numpy as np
import torch

from suwen.encoders.base_model import torch_dtype
from suwen.encoders.packed import to_device
from suwen.encoders.side import Side
from suwen.errors import SuwenError
from suwen.training.loop.batches import Ints, Ragged, chunks
from suwen.training.loop.gradient_cache import cached_backward
from suwen.training.loop.joined_texts import JoinedTexts
from suwen.training.recipe.key_groups import Precision


class Tower(Protocol):
    """Vectors of texts by their ids, in fp32: of length one, but in a space of inner product."""

    def vectors(self, rows: Ints) -> torch.Tensor:
        """The vectors of these texts."""
        ...

    def pieces(self, rows: Ints) -> list[Callable[[], torch.Tensor]]:
        """The same in pieces that each fit into memory, for gradient caching."""
        ...


class TrainedTower:
    """A side of a model that is being trained.

    Args:
        side: The modules.
        tokens: The token ids of all texts.
        precision: Of the forward pass; the loss is always computed in fp32.
        token_budget: The most tokens in one piece, for gradient caching.
        rows_budget: The most texts in one piece.
        dimension: Cut vectors to this width, then normalise them again.
        normalise: Give vectors length one, after the cut.
        blend: Towers over the same texts that stay as they are, each with its share of every vector; the rest is the
            side's own, which so learns to be right together with them.
    """

    def __init__(
        self,
        side: Side,
        tokens: Ragged | JoinedTexts,
        *,
        precision: Precision = "fp32",
        token_budget: int | None = None,
        rows_budget: int | None = None,
        dimension: int | None = None,
        normalise: bool = True,
        blend: Sequence[tuple[Tower, float]] = (),
    ) -> None:
        self.side, self.tokens, self.precision, self.dimension = side, tokens, precision, dimension
        self.token_budget, self.rows_budget, self.blend = token_budget, rows_budget, tuple(blend)
        self.normalise = normalise

    def beside(self, stored: Tower, share: float) -> TrainedTower:
        """The same over vectors that stay: each comes half-way, by this share of the side's own vector."""
        met = copy.copy(self)
        met.blend = ((stored, 1 / (1 + share)),)
        return met

    def vectors(self, rows: Ints) -> torch.Tensor:
        """The vectors of these texts, with the gradients of the side."""
        with autocast(self.side.device, self.precision):
            embedded = self.side.embed_flat(*self.tokens.take(rows))
        with torch.no_grad():
            others = [tower.vectors(rows) for tower, _ in self.blend]
        return self._blended(embedded, others)

    def _blended(self, embedded: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
        own = embedded.float()[:, : self.dimension]
        if not self.normalise:
            return own
        own = torch.nn.functional.normalize(own, dim=-1)
        if not self.blend:
            return own
        shares = [share for _, share in self.blend]
        rest = sum(share * other for share, other in zip(shares, others, strict=True))
        return torch.nn.functional.normalize((1 - sum(shares)) * own + rest, dim=-1)

    def runs_with(self, other: Tower) -> bool:
        """Whether texts of both may share one pass: the same modules, used alike, over texts that need no padding."""
        with autocast(self.side.device, self.precision):  # what packs is decided by the precision of the pass
            unpadded = self.side.packs or self.side.is_static
        return (
            isinstance(other, TrainedTower)
            and unpadded
            and all(mine is its for mine, its in zip(self.side.modules, other.side.modules, strict=True))
            and (self.precision, self.dimension) == (other.precision, other.dimension)
            and [share for _, share in self.blend] == [share for _, share in other.blend]
        )

    def pieces(self, rows: Ints) -> list[Callable[[], torch.Tensor]]:
        """Pieces within the budgets, in the order of the rows."""
        cuts = chunks(self.tokens.lengths(rows), self.token_budget, self.rows_budget)
        return [lambda part=rows[cut]: self.vectors(part) for cut in cuts]  # type: ignore[misc]


def vectors_of(pieces: Sequence[tuple[Tower, Ints]]) -> torch.Tensor:
    """The vectors of texts of several towers, one after the other, in one pass where the towers are one model.

    A small model's pass costs more in launches than in work: a pass for each part of a batch would take as much again.
    """
    first = pieces[0][0]
    if not isinstance(first, TrainedTower) or not all(first.runs_with(tower) for tower, _ in pieces):
        return torch.cat([tower.vectors(rows) for tower, rows in pieces])
    towers = [tower for tower, _ in pieces if isinstance(tower, TrainedTower)]
    taken = [tower.tokens.take(rows) for tower, (_, rows) in zip(towers, pieces, strict=True)]
    with autocast(first.side.device, first.precision):
        embedded = first.side.embed_flat(
            np.concatenate([flat for flat, _ in taken]), np.concatenate([lengths for _, lengths in taken])
        )
    with torch.no_grad():
        others = [
            vectors_of([(tower.blend[place][0], rows) for tower, (_, rows) in zip(towers, pieces, strict=True)])
            for place in range(len(first.blend))
        ]
    return first._blended(embedded, others)


def backward_through(
    asked: Sequence[tuple[Tower, Ints]], loss: Callable[[torch.Tensor], torch.Tensor], *, together: bool = False
) -> torch.Tensor:
    """Forward and backward of a step, in the pieces the towers make where they make several.

    Args:
        asked: The towers, and the texts each is to encode.
        loss: The loss of all their vectors, one after the other.
        together: Encode in one pass where the towers are one model; see :func:`vectors_of`.

    Returns:
        The loss, detached.
    """
    pieces = [piece for tower, rows in asked for piece in tower.pieces(rows)]
    if len(pieces) > len(asked):
        return cached_backward(pieces, lambda vectors: loss(torch.cat(vectors)))
    # A batch that fits whole need not be encoded twice.
    whole = vectors_of(asked) if together else torch.cat([tower.vectors(rows) for tower, rows in asked])
    value = loss(whole)
    value.backward()  # type: ignore[no-untyped-call]
    return value.detach()


class FrozenTower:
    """Vectors that were computed before: nothing is encoded in the loop.

    Args:
        vectors: A row per text; an array, or what gives one for some rows and knows its length: it may be on disk.
        device: Where to hand them out; all of them are kept there where they fit.
        length: They are handed out divided by it; ``own`` gives each length one.
    """

    def __init__(self, vectors: Any, device: Any, *, length: float | Literal["own"] = 1.0) -> None:
        self._device, self._stored, self._length = torch.device(device), vectors, length
        size = len(vectors) * vectors[np.arange(min(len(vectors), 1))].nbytes
        # A CPU reads the file itself; on a GPU they may take a quarter of what is free.
        fits = self._device.type == "cuda" and size * 4 < torch.cuda.mem_get_info(self._device)[0]
        self._resident = torch.from_numpy(vectors[np.arange(len(vectors))]).to(self._device) if fits else None

    def vectors(self, rows: Ints) -> torch.Tensor:
        """The vectors of these texts; no gradient."""
        if self._resident is not None:
            taken = self._resident[to_device(rows, self._device)].float()
        else:
            taken = torch.from_numpy(np.ascontiguousarray(self._stored[rows])).to(self._device).float()
        if self._length == "own":
            return torch.nn.functional.normalize(taken, dim=-1)
        return taken if self._length == 1 else taken / self._length

    def pieces(self, rows: Ints) -> list[Callable[[], torch.Tensor]]:
        """One piece: they cost no memory to make again."""
        return [lambda: self.vectors(rows)]


def recompute_layers(model: Any, wanted: bool) -> None:
    """Have a ``SentenceTransformer``'s layers make their activations again in the backward pass, or keep them.

    Raises:
        SuwenError: It has no layers that could.
    """
    body: Any = getattr(model[0], "model", None)
    if wanted and not getattr(body, "supports_gradient_checkpointing", False):
        raise SuwenError(
            f"{type(body or model[0]).__name__} cannot recompute its layers: take training.gradient_checkpointing out"
        )
    if wanted and not body.is_gradient_checkpointing:
        body.gradient_checkpointing_enable({"use_reentrant": False})
        if hasattr(body, "_require_grads_hook"):  # of use where the checkpoints are re-entrant alone, and it would stay
            body.disable_input_require_grads()
    elif not wanted and getattr(body, "is_gradient_checkpointing", False):
        body.gradient_checkpointing_disable()


def autocast(device: Any, precision: Precision) -> AbstractContextManager[Any]:
    """Mixed precision for a forward pass, where it is asked for."""
    if precision == "fp32":
        return nullcontext()
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch_dtype(precision, kind))


def parameter_groups(modules: Sequence[torch.nn.Module], *, rate: float = 1.0) -> list[dict[str, Any]]:
    """Trainable parameters for AdamW: vectors and biases are not decayed."""
    trained = [p for module in modules for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "factor": rate},
        {"params": [p for p in trained if p.ndim < 2], "factor": rate, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class ModuleTask:
    """The part of a :class:`~suwen.training.loop.training_loop.Task` that follows from the module it trains.

    Args:
        module: All that is trained.

    Attributes:
        scaler: Scales the loss of a pass in fp16.
    """

    scaler: torch.amp.GradScaler | None = None

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def groups(self) -> list[dict[str, Any]]:
        """AdamW's groups."""
        return parameter_groups([self.module])

    def state(self) -> dict[str, torch.Tensor]:
        """The trainable tensors by name."""
        return {name: p.detach() for name, p in self.module.named_parameters() if p.requires_grad}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Put tensors of :meth:`state` back."""
        with torch.no_grad():
            for name, tensor in self.state().items():
                tensor.copy_(state[name])

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss as it goes into the backward pass."""
        return loss if self.scaler is None else self.scaler.scale(loss)
