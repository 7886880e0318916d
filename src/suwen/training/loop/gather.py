"""Vectors and gradients across processes. What is computed from them is in ``losses``; a launcher starts processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed

from suwen.errors import SuwenError

#: Gradients travel in buckets of this many numbers: enough to fill a link, far less than a copy of the model.
_BUCKET = 1 << 24
_MOST_DIMENSIONS = 7


class GatherError(SuwenError):
    """Processes that do not hold what the others hold."""


def world() -> tuple[int, int]:
    """This process's rank and the number of processes: (0, 1) where none were started.

    >>> world()
    (0, 1)
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def gather(tensor: Tensor) -> Tensor:
    """The rows of all processes, by rank, with a gradient; the tensor itself for one process.

    Row i of this process is row ``rank * len(tensor) + i`` of the result. In the backward pass each process gets the
    sum of all processes' gradients for its own rows. So, if every process takes the mean loss of its own queries over
    the gathered documents and then calls ``average_gradients``, the mean of the losses and the gradients, of either
    tower, are those of one process with the whole batch.

    Every process must call it equally often, in the same order and with the same shape. The shapes are compared on
    each call (a few bytes; on a GPU it waits for the device), because collectives over different shapes hang or
    return another process's rows shifted.

    Example:
        >>> import torch
        >>> documents = torch.ones(4, 8, requires_grad=True)
        >>> gather(documents) is documents  # one process
        True

    Raises:
        GatherError: a process holds a tensor of another shape.
    """
    rank, size = world()
    if size == 1:
        return tensor
    _same_shape(tensor, size)
    gathered: Tensor = _Gather.apply(tensor, rank, size)  # type: ignore[no-untyped-call]
    return gathered


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace each gradient by its mean over the processes; nothing to do for one process.

    Call it once a step, after the last backward pass and before clipping, with the same parameters in the same order
    everywhere. A parameter that got no gradient here counts as 0; one that got none anywhere keeps none, so that the
    optimiser goes on leaving it alone.
    """
    _, size = world()
    if size == 1:
        return
    for bucket in _buckets(one for one in parameters if one.requires_grad):
        _average(bucket, size)


class _Gather(torch.autograd.Function):
    """All-gather forwards; backwards the sum over the processes, of which each takes its own rows."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, rank: int, size: int) -> Tensor:
        ctx.rows = slice(rank * len(tensor), (rank + 1) * len(tensor))
        return _all_gather(tensor, size)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # A clone: autograd may hand the same tensor to another node, and all_reduce writes in place.
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total[ctx.rows], None, None


def _all_gather(tensor: Tensor, size: int) -> Tensor:
    own = tensor.detach().contiguous()
    parts = [torch.empty_like(own) for _ in range(size)]
    distributed.all_gather(parts, own)
    return torch.cat(parts)


def _same_shape(tensor: Tensor, size: int) -> None:
    if not 1 <= tensor.ndim <= _MOST_DIMENSIONS:
        raise GatherError(f"a tensor of {tensor.ndim} dimensions cannot be gathered: pass one row for each item")
    shape = torch.zeros(1, 1 + _MOST_DIMENSIONS, dtype=torch.long)
    shape[0, 0] = tensor.ndim
    shape[0, 1 : 1 + tensor.ndim] = torch.tensor(tensor.shape)
    shapes = [tuple(row[1 : 1 + row[0]]) for row in _all_gather(shape.to(tensor.device), size).tolist()]
    if len(set(shapes)) > 1:
        raise GatherError(
            f"processes hold different shapes, by rank {shapes}: give each the same number of rows "
            f"(drop the last, shorter batch) and the same number of hard negatives a query"
        )


def _buckets(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for one in parameters:
        kinds.setdefault((one.dtype, one.device), []).append(one)
    for kind in kinds.values():
        bucket, held = [], 0
        for one in kind:
            bucket.append(one)
            held += one.numel()
            if held >= _BUCKET:
                yield bucket
                bucket, held = [], 0
        if bucket:
            yield bucket


def _average(bucket: list[Tensor], size: int) -> None:
    first = bucket[0]
    wide = torch.promote_types(first.dtype, torch.float32)
    present = [one.grad is not None for one in bucket]
    parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in bucket]
    # The flags ride along, so that only a process that lacks a gradient has to wait and look.
    flags = torch.tensor(present, dtype=wide).to(first.device, non_blocking=True)
    flat = torch.cat([*(part.detach().flatten().to(wide) for part in parts), flags])
    distributed.all_reduce(flat)
    flat /= size
    anywhere = present if all(present) else (flat[-len(bucket) :] > 0).tolist()
    means = torch.split(flat[: -len(bucket)], [one.numel() for one in bucket])
    for one, mean, wanted in zip(bucket, means, anywhere, strict=True):
        if one.grad is not None:
            one.grad.copy_(mean.view_as(one))
        elif wanted:
            one.grad = mean.view_as(one).to(one.dtype, copy=True)
