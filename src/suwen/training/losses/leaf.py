"""Alignment by the distance alone, as LEAF does; the squared one of CARE is in ``squared_l2.py``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from suwen.training.losses.squared_l2 import aligned


@dataclass(frozen=True)
class Leaf:
    r"""L2 distance of the student's vectors to the teacher's, and nothing else (LEAF; Vujanic and Rueckstiess, 2025).

    .. math:: L = \frac1B \sum_i \lVert s_i - t_i \rVert_2

    What is implemented is the norm, **not** its square: every text pulls with the same force however near it is, so
    near texts go on improving where ``SquaredL2`` lets go. LEAF needs no negatives, no labels and no large batch.
    For the squared reading of an "L2 loss" use ``SquaredL2``. Nothing is normalised here, the caller does that.

    At a distance of 0 the gradient is taken as 0.

    Example:
        >>> import torch
        >>> Leaf()(torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]])).item()
        2.5
    """

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The mean distance over the rows of two B x d tensors.

        Raises:
            LossError: the shapes differ.
        """
        left, right = aligned(student, teacher)
        distances: Tensor = torch.linalg.vector_norm(left - right, dim=-1)
        return distances.mean()
