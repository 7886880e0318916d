"""Several losses as one number, with the parts kept for the curves. The losses are in their own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from torch import Tensor

from suwen.training.losses.info_nce import LossError


class WeightedSum(NamedTuple):
    """The total, to call ``backward`` on, and each part before its weight, detached, for the curves."""

    total: Tensor
    parts: dict[str, Tensor]


@dataclass(frozen=True)
class Weighted:
    r"""The weighted sum of named losses (CARE eq. 3, with both weights 1).

    .. math:: L = \lambda_1 L_{\mathrm{InfoNCE}} + \lambda_2 L_{\mathrm{MSE}} + \dots

    A part of weight 0 is left out, not multiplied: an ablation neither computes it (pass a function) nor inherits
    its NaN.

    Args:
        weights: the weight of each part, by name.

    Example:
        >>> import torch
        >>> stage_1 = Weighted({"contrastive": 1.0, "squared_l2": 0.5})
        >>> loss = stage_1({"contrastive": torch.tensor(2.0), "squared_l2": lambda: torch.tensor(4.0)})
        >>> loss.total.item(), {name: part.item() for name, part in loss.parts.items()}
        (4.0, {'contrastive': 2.0, 'squared_l2': 4.0})
    """

    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        """Refuse weights that could not train anything."""
        bad = {name: weight for name, weight in self.weights.items() if not (isfinite(weight) and weight >= 0)}
        if bad:
            raise LossError(f"weights {bad} are not numbers of 0 or more: change them, or leave the losses out")
        if not any(self.weights.values()):
            raise LossError("every loss has weight 0: give at least one a weight, such as 1.0")

    def __call__(self, losses: Mapping[str, Tensor | Callable[[], Tensor]]) -> WeightedSum:
        """Total and parts. A loss given as a function is called only if its weight is above 0.

        Raises:
            LossError: a loss has no weight, or a weight no loss.
        """
        used = {name: weight for name, weight in self.weights.items() if weight}
        missing, unknown = sorted(set(used) - set(losses)), sorted(set(losses) - set(self.weights))
        if missing or unknown:
            raise LossError(
                f"losses without a weight: {unknown}; weights without a loss: {missing}: "
                f"name both alike, and give 0 to what is left out"
            )
        values = {name: loss() if callable(loss) else loss for name, loss in losses.items() if name in used}
        terms = [used[name] * value for name, value in values.items()]
        return WeightedSum(sum(terms[1:], start=terms[0]), {name: value.detach() for name, value in values.items()})
