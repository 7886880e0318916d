"""What several training processes have to agree on: stops, run folders, starting weights. Gradients live in ``gather``.

Every function is the identity for one process, so that callers need no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from suwen.errors import SuwenError
from suwen.training.loop.gather import world

_Result = TypeVar("_Result")


class ProcessError(SuwenError):
    """Another process of this run has failed."""


def _device() -> torch.device:
    # NCCL moves only what is on a GPU; every other back end takes CPU tensors.
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def agree(values: Sequence[float]) -> list[float]:
    """The largest of each value over all processes: what one of them knows, all then know."""
    if world()[1] == 1:
        return list(values)
    shared = torch.tensor(values, dtype=torch.float64, device=_device())
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return [float(value) for value in shared.tolist()]


def average(values: Sequence[float]) -> list[float]:
    """The mean of each value over all processes."""
    size = world()[1]
    if size == 1:
        return list(values)
    shared = torch.tensor(values, dtype=torch.float64, device=_device())
    dist.all_reduce(shared)
    return [float(value) / size for value in shared.tolist()]


def wait_for_all() -> None:
    """Go on when every process has come so far."""
    agree([0.0])


def gather_bytes(data: bytes) -> list[bytes]:
    """The bytes of every process, in the order of their ranks, in every process."""
    size = world()[1]
    if size == 1:
        return [data]
    room = int(agree([len(data)])[0])
    own = torch.zeros(room + 8, dtype=torch.uint8)
    framed = len(data).to_bytes(8, "big") + data
    own[: len(framed)] = torch.frombuffer(bytearray(framed), dtype=torch.uint8)
    parts = [torch.empty_like(own, device=_device()) for _ in range(size)]
    dist.all_gather(parts, own.to(_device()))
    raw = [bytes(part.cpu().numpy()) for part in parts]
    return [one[8 : 8 + int.from_bytes(one[:8], "big")] for one in raw]


def share_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite the tensors of every process, in place, with those of the first."""
    if world()[1] == 1:
        return
    with torch.no_grad():
        for tensor in tensors:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
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
        raise ProcessError("the first process has failed: look for what it says, and mend that")
    return result
