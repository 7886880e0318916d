"""AdamW as the loop uses it: its groups, and its moments by name. Its settings are a recipe's, the steps the loop's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from suwen.training.loop.run_folder import RunError
from suwen.training.recipe.key_groups import Optimisation

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def adamw(groups: list[dict[str, Any]], settings: Optimisation) -> torch.optim.AdamW:
    """The optimiser of a task's groups."""
    everything = [one for group in groups for one in group["params"]]
    if not everything:
        raise RunError("the task has nothing to train: its groups hold no parameters")
    fused = all(one.is_cuda for one in everything) or None
    return torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=fused)


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
