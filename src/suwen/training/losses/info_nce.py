"""The contrastive loss of both CARE stages, and its mask by text. Gathering over processes is in ``processes.py``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from suwen.errors import SuwenError


class LossError(SuwenError):
    """Inputs a loss cannot be computed from."""


@dataclass(frozen=True)
class InfoNCE:
    r"""Asymmetric InfoNCE with in-batch and hard negatives (CARE eq. 1 and 4; van den Oord et al., 2018).

    .. math:: L = -\frac1B \sum_i \log \frac{e^{s_{i,p(i)}/\tau}}
              {e^{s_{i,p(i)}/\tau} + \sum_{j \notin M_i} e^{s_{ij}/\tau}}, \quad s_{ij} = q_i^\top d_j

    :math:`p(i)` is the column of query i's positive; every other column, in-batch or mined, is a negative unless it
    is in :math:`M_i`: its text equals the positive's. Masking goes by text, never by the student's own similarity,
    which would hide exactly the negatives it has yet to learn.

    The similarity is the cosine **if the caller normalised the vectors**: nothing is normalised here. Vectors of
    half precision, under autocast too, are scored in fp32: at tau 0.02 a bf16 cosine is off by 0.2 in the exponent.

    Where a query has several right documents in the batch, ``others`` asks for each of those too, against the same
    negatives; their mean has this weight beside the positive's own.

    Args:
        temperature: tau. A tensor that requires a gradient makes it learnable (CARE, appendix C.1.1).
        others: the weight of the other columns of :math:`M_i`; 0 leaves them out, as CARE does.

    Example:
        >>> import torch
        >>> queries = torch.eye(2)
        >>> documents = torch.eye(2)[[0, 1, 0]]  # the third is the first's text once more, mined as a negative
        >>> positives = torch.tensor([0, 1])
        >>> loss = InfoNCE(temperature=0.1)
        >>> round(loss(queries, documents, positives).item(), 3)
        0.347
        >>> texts = torch.tensor([0, 1, 0])  # a number for each text
        >>> round(loss(queries, documents, positives, text_mask(texts, positives)).item(), 3)
        0.0
    """

    temperature: float | Tensor = 0.02
    others: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a temperature that is not above 0."""
        if not isinstance(self.temperature, Tensor) and not self.temperature > 0:
            raise LossError(f"temperature is {self.temperature}: set it above 0, such as 0.02")

    def __call__(
        self, queries: Tensor, documents: Tensor, positives: Tensor, same_text: Tensor | None = None
    ) -> Tensor:
        """The mean loss over the queries.

        Args:
            queries: B x d, normalised.
            documents: N x d, normalised: the positives of all queries and the hard negatives, in any order.
            positives: for each query, the column of its positive.
            same_text: B x N, true where a document's text equals the query's positive (``text_mask``). The positive
                itself may be true: it is never masked.

        Raises:
            LossError: the shapes do not fit.
        """
        _check(queries, documents, positives, same_text)
        logits = similarities(queries, documents) / self.temperature
        if same_text is None:
            return functional.cross_entropy(logits, positives)
        masked = same_text.to(torch.bool).scatter(1, positives[:, None], False)
        # After the temperature: a learnable one would get the gradient 0 x -inf.
        loss = functional.cross_entropy(logits.masked_fill(masked, float("-inf")), positives)
        return loss + self.others * _others(logits, positives, masked) if self.others else loss

    def reverse(
        self,
        queries: Tensor,
        documents: Tensor,
        positives: Tensor,
        same_text: Tensor | None = None,
        *,
        own: slice | None = None,
    ) -> Tensor:
        """The document-to-query direction: each positive document must find its query among all queries.

        Takes what the forward direction takes; the hard negatives play no part. Two queries with one positive text
        do not count against each other.

        Args:
            queries: all queries.
            documents: all documents.
            positives: for each query, the column of its positive.
            same_text: as in the forward direction, a row for each query.
            own: the queries this process answers for, where the arguments were gathered over several.

        Raises:
            LossError: the shapes do not fit.
        """
        _check(queries, documents, positives, same_text)
        rows = torch.arange(len(queries), device=queries.device)[own or slice(None)]
        among_queries = None if same_text is None else same_text[rows][:, positives]
        return self(documents[positives[rows]], queries, rows, among_queries)


def _others(logits: Tensor, positives: Tensor, right: Tensor) -> Tensor:
    """The mean over the queries of the mean loss of their other right documents, against the negatives alone."""
    every = right.scatter(1, positives[:, None], True)
    negatives = logits.masked_fill(every, torch.finfo(logits.dtype).min).logsumexp(dim=1, keepdim=True)
    each = functional.softplus(negatives - logits).masked_fill(~right, 0.0)
    return (each.sum(dim=1) / right.sum(dim=1).clamp_min(1)).mean()


def similarities(queries: Tensor, documents: Tensor) -> Tensor:
    """Dot products B x N in at least fp32, whatever autocast says.

    >>> import torch
    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     similarities(torch.eye(2), torch.eye(2)).dtype
    torch.float32
    """
    left, right = full_precision(queries, documents)
    with torch.autocast(device_type=queries.device.type, enabled=False):
        return left @ right.T


def full_precision(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both in their widest type, and in fp32 at least."""
    wide = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    return left.to(wide), right.to(wide)


def text_mask(texts: Tensor, positives: Tensor) -> Tensor:
    """Which documents carry the text of each query's positive, the positive included: B x N, bool.

    Args:
        texts: for each document, a number that is equal exactly where the texts are.
        positives: for each query, the column of its positive.

    >>> import torch
    >>> text_mask(torch.tensor([7, 8, 7]), torch.tensor([0, 1])).tolist()
    [[True, False, True], [False, True, False]]
    """
    return texts[positives][:, None] == texts[None, :]


def _check(queries: Tensor, documents: Tensor, positives: Tensor, same_text: Tensor | None) -> None:
    if queries.ndim != 2 or documents.ndim != 2 or not len(queries):
        raise LossError(
            f"queries are {tuple(queries.shape)} and documents {tuple(documents.shape)}: pass one vector a row, "
            f"and at least one query"
        )
    if queries.shape[1] != documents.shape[1]:
        raise LossError(
            f"queries have {queries.shape[1]} dimensions and documents {documents.shape[1]}: "
            f"add a projection to the smaller encoder, or cut both to one width"
        )
    if positives.shape != (len(queries),):
        raise LossError(
            f"positives are {tuple(positives.shape)} for {len(queries)} queries: pass one document column a query"
        )
    # Elsewhere the look would wait for the device at every step; there the kernel's own assertion remains.
    if positives.device.type == "cpu" and not bool(((positives >= 0) & (positives < len(documents))).all()):
        raise LossError(
            f"a positive lies outside the {len(documents)} documents: pass columns of `documents`, "
            f"offset by rank x documents a process after a gather"
        )
    if same_text is not None and same_text.shape != (len(queries), len(documents)):
        raise LossError(
            f"same_text is {tuple(same_text.shape)}: pass a row for each query, a column for each document, "
            f"{(len(queries), len(documents))}"
        )
