"""The average of a loss over nested widths. The losses themselves are in their own files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional

from suwen.training.losses.info_nce import LossError, full_precision


@dataclass(frozen=True)
class Matryoshka:
    r"""The mean of a loss over vectors cut to each of several widths (CARE eq. 5; Kusupati et al., 2022).

    .. math:: L = \frac{1}{|M|} \sum_{m \in M} L(Q_{:m} / \lVert Q_{:m} \rVert, \; D_{:m} / \lVert D_{:m} \rVert)

    Vectors are cut and **then renormalised**, so that every width is trained on cosines; ``truncate_dim`` of
    sentence-transformers cuts only, which lets the model answer with the length of the cut part. What a width is
    trained on must be what it is served with: normalise after the cut there too.

    Args:
        dimensions: the widths, such as 896, 768, 512, 256, 128; the full one is not added by itself.
        normalise: false where vectors are compared by their inner product, and keep their lengths at every width.

    Example:
        >>> import torch
        >>> from suwen.training.losses.info_nce import InfoNCE
        >>> queries = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), dim=-1)
        >>> positives = torch.arange(2)
        >>> loss = Matryoshka((2, 3))(InfoNCE(temperature=0.5), queries, queries, positives=positives)
        >>> alone = [Matryoshka((m,))(InfoNCE(temperature=0.5), queries, queries, positives=positives) for m in (2, 3)]
        >>> torch.allclose(loss, sum(alone) / 2)
        True
    """

    dimensions: tuple[int, ...]
    normalise: bool = True

    def __post_init__(self) -> None:
        """Refuse an empty or doubtful list of widths."""
        object.__setattr__(self, "dimensions", tuple(self.dimensions))
        if not self.dimensions or min(self.dimensions) < 1 or len(set(self.dimensions)) < len(self.dimensions):
            raise LossError(f"dimensions are {list(self.dimensions)}: name at least one width, each once and above 0")

    def __call__(self, loss: Callable[..., Tensor], queries: Tensor, documents: Tensor, **others: Any) -> Tensor:
        """The mean of ``loss(queries, documents, **others)`` over the widths.

        Any loss of two sets of vectors will do: ``InfoNCE``, its ``reverse``, ``SquaredL2`` (student and teacher).

        Raises:
            LossError: a width is larger than the vectors are.
        """
        widest, width = max(self.dimensions), min(queries.shape[-1], documents.shape[-1])
        if widest > width:
            raise LossError(f"vectors have {width} dimensions: take {widest} out of the Matryoshka dimensions")
        piece = cut if self.normalise else lambda vectors, m: vectors[..., :m]
        losses = [loss(piece(queries, m), piece(documents, m), **others) for m in self.dimensions]
        return sum(losses[1:], start=losses[0]) / len(losses)


def cut(vectors: Tensor, dimension: int) -> Tensor:
    """The first dimensions of each vector, renormalised, in at least fp32.

    >>> import torch
    >>> cut(torch.tensor([[3.0, 4.0, 12.0]]), 2)
    tensor([[0.6000, 0.8000]])
    """
    wide, _ = full_precision(vectors[..., :dimension], vectors[..., :0])
    return functional.normalize(wide, dim=-1)
