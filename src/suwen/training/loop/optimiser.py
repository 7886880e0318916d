"""AdamW as the loop uses it: its settings, its learning rate, and its moments by name. The steps are the loop's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from suwen.training.loop.run_folder import RunError

Schedule = Literal["linear", "cosine", "constant"]
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True)
class Optimisation:
    """AdamW and its learning rate.

    Attributes:
        learning_rate: The highest.
        weight_decay: For groups that do not bring their own.
        warmup: The part of the training in which the learning rate climbs.
        schedule: What follows the climb.
        clip: The largest global norm of the gradients, or None.
    """

    learning_rate: float
    weight_decay: float = 0.01
    warmup: float = 0.05
    schedule: Schedule = "linear"
    clip: float | None = 1.0

    def factor(self, fraction: float) -> float:
        """The part of the learning rate to use when a fraction of the training is done.

        >>> plan = Optimisation(1e-4, warmup=0.5)
        >>> [plan.factor(fraction) for fraction in (0.0, 0.25, 0.5, 0.75, 1.0)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        """
        if fraction < self.warmup:
            return max(0.0, fraction / self.warmup)
        past = min(1.0, (fraction - self.warmup) / (1 - self.warmup)) if self.warmup < 1 else 1.0
        shapes = {"linear": 1 - past, "cosine": (1 + math.cos(math.pi * past)) / 2, "constant": 1.0}
        return shapes[self.schedule]


def adamw(groups: list[dict[str, Any]], settings: Optimisation) -> torch.optim.AdamW:
    """The optimiser of a task's groups; each keeps its factor on the learning rate as ``factor``."""
    ready = [{**group, "params": list(group["params"]), "factor": group.get("learning_rate", 1.0)} for group in groups]
    for group in ready:
        group.pop("learning_rate", None)
    everything = [one for group in ready for one in group["params"]]
    if not everything:
        raise RunError("the task has nothing to train: its groups hold no parameters")
    fused = all(one.is_cuda for one in everything) or None
    return torch.optim.AdamW(ready, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=fused)


def names_of(parameters: list[Tensor], state: Mapping[str, Tensor]) -> list[str]:
    """The name of each parameter in the task's state; one that has none would be lost at a resume."""
    known = {(one.data_ptr(), one.shape): name for name, one in state.items()}
    names = [known.get((one.data_ptr(), one.shape), "") for one in parameters]
    if "" in names:
        shape = tuple(parameters[names.index("")].shape)
        raise RunError(
            f"a trained parameter of shape {shape} is not in Task.state(), so a checkpoint would lose it:"
            " state() has to name the parameters themselves, without copies"
        )
    return names


def load_moments(optimiser: torch.optim.AdamW, names: list[str], saved: Mapping[str, Tensor]) -> None:
    """Give an optimiser back what :func:`moments` took from it."""
    remembered = {
        place: {moment: saved[f"{name}/{moment}"] for moment in _MOMENTS}
        for place, name in enumerate(names)
        if f"{name}/{_MOMENTS[0]}" in saved
    }
    optimiser.load_state_dict({"state": remembered, "param_groups": optimiser.state_dict()["param_groups"]})


def moments(optimiser: torch.optim.AdamW, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """What AdamW remembers of each parameter, as ``<name>/exp_avg`` and so on."""
    parameters = [one for group in optimiser.param_groups for one in group["params"]]
    for parameter, name in zip(parameters, names, strict=True):
        for moment, value in optimiser.state.get(parameter, {}).items():
            yield f"{name}/{moment}", value


def checkpoint_size(state: Iterable[Tensor], parameters: Iterable[Tensor]) -> int:
    """The bytes of one checkpoint: the tensors, and two moments of each parameter."""
    own = sum(one.numel() * one.element_size() for one in state)
    return own + 2 * sum(one.numel() * one.element_size() for one in parameters)
