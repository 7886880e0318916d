"""Queries fused with hypothetical documents inside a training step: what ``hyde/fusion`` does, with gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from suwen.encoders.packed import to_device
from suwen.training.loop.batches import Ints
from suwen.training.tasks.towers import Tower


@dataclass(frozen=True)
class Beside:
    """The hypothetical documents that queries are fused with, as they are when a search is asked with them.

    Attributes:
        tower: Encodes the table's documents, the hypothetical ones among them.
        weight: How many documents the query counts for.
        most: How many of a row's documents a step takes.
    """

    tower: Tower
    weight: float = 1.0
    most: int = 1


def fused(queries: torch.Tensor, documents: torch.Tensor, owners: Ints, weight: float) -> torch.Tensor:
    """What :func:`suwen.hyde.fusion.fuse` makes of the same vectors, with gradients through all of them.

    >>> q, d = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0]])
    >>> fused(q, d, np.array([0]), 1.0)
    tensor([[0.7071, 0.7071],
            [0.0000, 1.0000]])
    """
    own = to_device(np.asarray(owners, np.int64), queries.device)
    sums = (weight * queries).index_add(0, own, documents)
    return torch.nn.functional.normalize(sums, dim=-1)
