"""What several training processes share: their vectors, gradients, decisions and folders. A launcher starts them.

Every function is the identity for one process, so that callers need no branch. What is computed is in ``losses``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from suwen.errors import SuwenError
from suwen.training.loop.batches import Ints

_Result = TypeVar("_Result")
#: Gradients travel in buckets of this many numbers: enough to fill a link, far less than a copy of the model.
_BUCKET = 1 << 24
_MOST_DIMENSIONS = 7


class ProcessError(SuwenError):
    """Another process of this run has failed, or holds something else than this one."""


def world() -> tuple[int, int]:
    """This process's rank and the number of processes: (0, 1) where none were started.

    >>> world()
    (0, 1)
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def own_share(rows: Ints) -> Ints:
    """This process's share of a batch: as many rows as every other takes."""
    rank, size = world()
    each = len(rows) // size
    return rows[rank * each : (rank + 1) * each]


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
        ProcessError: a process holds a tensor of another shape.
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
        raise ProcessError(f"a tensor of {tensor.ndim} dimensions cannot be gathered: pass one row for each item")
    shape = torch.tensor([[tensor.ndim, *tensor.shape, *[0] * (_MOST_DIMENSIONS - tensor.ndim)]])
    shapes = [tuple(row[1 : 1 + row[0]]) for row in _all_gather(shape.to(tensor.device), size).tolist()]
    if len(set(shapes)) > 1:
        raise ProcessError(
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


def _device() -> torch.device:
    # NCCL moves only what is on a GPU; every other back end takes CPU tensors.
    if distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _over_all(values: Sequence[float], operation: Any) -> list[float]:
    if world()[1] == 1:
        return list(values)
    shared = torch.tensor(values, dtype=torch.float64, device=_device())
    distributed.all_reduce(shared, op=operation)
    return [float(value) for value in shared.tolist()]


def agree(values: Sequence[float]) -> list[float]:
    """The largest of each value over all processes: what one of them knows, all then know."""
    return _over_all(values, distributed.ReduceOp.MAX)


def average(values: Sequence[float]) -> list[float]:
    """The mean of each value over all processes."""
    return [total / world()[1] for total in _over_all(values, distributed.ReduceOp.SUM)]


def wait_for_all() -> None:
    """Go on when every process has come so far."""
    agree([0.0])


def gather_bytes(data: bytes) -> list[bytes]:
    """The bytes of every process, in the order of their ranks, in every process."""
    parts = [data] * world()[1]
    if len(parts) > 1:
        distributed.all_gather_object(parts, data)
    return parts


def share_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite the tensors of every process, in place, with those of the first."""
    if world()[1] == 1:
        return
    with torch.no_grad():
        for tensor in tensors:
            whole = tensor.detach().contiguous()
            distributed.broadcast(whole, src=0)
            tensor.detach().copy_(whole)


def in_first(action: Callable[[], _Result]) -> _Result | None:
    """Do something in the first process alone; the others wait, and fail with it instead of waiting for ever.

    Returns:
        What came of it in the first process, None in the others.

    Raises:
        ProcessError: It failed, and this is another process; the first raises what went wrong.
    """
    problem: Exception | None = None
    result: _Result | None = None
    if world()[0] == 0:
        try:
            result = action()
        except Exception as raised:
            problem = raised
    failed = agree([float(problem is not None)])[0]
    if problem is not None:
        raise problem
    if failed:
        raise ProcessError("the first process has failed: look for its message, and fix that")
    return result
