"""The contrastive loss of both CARE stages, and its mask by text. Gathering over processes is in ``gather.py``."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
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
    is in :math:`M_i`: its text equals the positive's, or the teacher scores it too near the positive (the false
    negatives; ``mask_share`` is the TopK-PercPos rule of NV-Retriever). Masking goes by text, never by the student's
    own similarity, which would hide exactly the negatives it has yet to learn.

    The similarity is the cosine **if the caller normalised the vectors**: nothing is normalised here. Vectors of
    half precision, under autocast too, are scored in fp32: at tau 0.02 a bf16 cosine is off by 0.2 in the exponent.

    Args:
        temperature: tau. A tensor that requires a gradient makes it learnable (CARE, appendix C.1.1).
        mask_margin: drop negatives whose teacher score is above the positive's less this.
        mask_share: drop negatives whose teacher score is above this share of the positive's, such as 0.95.

    Example:
        >>> import torch
        >>> queries = torch.eye(2)
        >>> documents = torch.eye(2)[[0, 1, 0]]  # the third is the first's text once more, mined as a negative
        >>> positives = torch.tensor([0, 1])
        >>> loss = InfoNCE(temperature=0.1)
        >>> round(loss(queries, documents, positives).item(), 3)
        0.347
        >>> round(loss(queries, documents, positives, text_mask(["咳嗽", "发热", "咳嗽"], positives)).item(), 3)
        0.0
    """

    temperature: float | Tensor = 0.02
    mask_margin: float | None = None
    mask_share: float | None = None

    def __post_init__(self) -> None:
        """Refuse settings without a meaning."""
        if not isinstance(self.temperature, Tensor) and not self.temperature > 0:
            raise LossError(f"temperature is {self.temperature}: set it above 0, such as 0.02")
        if self.mask_margin is not None and self.mask_share is not None:
            raise LossError("mask_margin and mask_share are both set: keep one, they answer the same question")
        if self.mask_share is not None and not 0 < self.mask_share <= 1:
            raise LossError(f"mask_share is {self.mask_share}: set it above 0 and at most 1, such as 0.95")

    def __call__(
        self,
        queries: Tensor,
        documents: Tensor,
        positives: Tensor,
        same_text: Tensor | None = None,
        teacher_scores: Tensor | None = None,
    ) -> Tensor:
        """The mean loss over the queries.

        Args:
            queries: B x d, normalised.
            documents: N x d, normalised: the positives of all queries and the hard negatives, in any order.
            positives: for each query, the column of its positive.
            same_text: B x N, true where a document's text equals the query's positive (``text_mask``). The positive
                itself may be true: it is never masked.
            teacher_scores: B x N, read only if a margin or a share is set.

        Raises:
            LossError: the shapes do not fit, or a mask was asked for without teacher scores.
        """
        _check(queries, documents, positives)
        logits = similarities(queries, documents) / self.temperature
        masked = self._masked(logits.shape, positives, same_text, teacher_scores)
        if masked is not None:
            # After the temperature: a learnable one would get the gradient 0 x -inf.
            logits = logits.masked_fill(masked, float("-inf"))
        return functional.cross_entropy(logits, positives)

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
        _check(queries, documents, positives)
        rows = torch.arange(len(queries), device=queries.device)[own or slice(None)]
        if same_text is not None:
            _check_table("same_text", same_text, (len(queries), len(documents)))
            same_text = same_text[rows][:, positives]
        found = InfoNCE(self.temperature)
        return found(documents[positives[rows]], queries, rows, same_text)

    def _masked(
        self, shape: torch.Size, positives: Tensor, same_text: Tensor | None, teacher: Tensor | None
    ) -> Tensor | None:
        masked = None
        if same_text is not None:
            _check_table("same_text", same_text, shape)
            masked = same_text.to(torch.bool)
        if self.mask_margin is not None or self.mask_share is not None:
            if teacher is None:
                raise LossError(
                    "masking by the teacher needs teacher_scores: pass them, or unset mask_margin/mask_share"
                )
            _check_table("teacher_scores", teacher, shape)
            false_negative = self._too_near(teacher, positives)
            masked = false_negative if masked is None else masked | false_negative
        if masked is None:
            return None
        return masked.scatter(1, positives[:, None], False)

    def _too_near(self, teacher: Tensor, positives: Tensor) -> Tensor:
        positive = teacher.gather(1, positives[:, None])
        if self.mask_margin is not None:
            return teacher > positive - self.mask_margin
        # By the distance, so that a share of a negative score still lies below it.
        return teacher > positive - (1 - (self.mask_share or 0)) * positive.abs()


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


def text_mask(ids: Sequence[Hashable] | Tensor, positives: Sequence[int] | Tensor) -> Tensor:
    """Which documents carry the text of each query's positive, the positive included: B x N, bool.

    Args:
        ids: for each document, its text, or anything equal exactly where the texts are (see ``text_ids``).
        positives: for each query, the column of its positive; the mask is made on its device.

    >>> text_mask(["头痛", "头疼", "头痛"], [0, 1]).tolist()
    [[True, False, True], [False, True, False]]
    """
    columns = torch.as_tensor(positives, dtype=torch.long)
    if not isinstance(ids, Tensor):
        numbers: dict[Hashable, int] = {}
        ids = torch.tensor([numbers.setdefault(one, len(numbers)) for one in ids], dtype=torch.long)
    ids = ids.to(columns.device)
    return ids[columns][:, None] == ids[None, :]


def text_ids(texts: Sequence[str]) -> Tensor:
    """A 64-bit number for each text, the same in every process, so that it can be gathered like the vectors.

    >>> ids = text_ids(["头痛", "头疼", "头痛"])
    >>> bool(ids[0] == ids[2]), bool(ids[0] == ids[1])
    (True, False)
    """
    digests = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts]
    return torch.tensor([int.from_bytes(digest, "big", signed=True) for digest in digests], dtype=torch.long)


def _check(queries: Tensor, documents: Tensor, positives: Tensor) -> None:
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


def _check_table(name: str, table: Tensor, shape: Sequence[int]) -> None:
    if tuple(table.shape) != tuple(shape):
        raise LossError(f"{name} is {tuple(table.shape)}: pass a row for each query, a column for each document, "
                        f"{tuple(shape)}")  # fmt: skip
