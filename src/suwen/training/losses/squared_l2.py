"""Alignment by the squared distance, the second half of CARE's Stage I; the unsquared one is in ``leaf.py``."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from suwen.training.losses.info_nce import LossError, full_precision


@dataclass(frozen=True)
class SquaredL2:
    r"""Squared L2 distance of the student's vectors to the teacher's (CARE eq. 2, there called MSE; also KALE).

    .. math:: L = \frac1B \sum_i \lVert s_i - t_i \rVert_2^2

    Summed over the dimensions and averaged over the batch only. The average over dimensions that is often meant by
    "MSE" is d times smaller, and at weight 1 would vanish beside InfoNCE. For normalised vectors the loss is
    :math:`2 - 2\cos`; nothing is normalised here, the caller does that. KALE's post-training alignment of a pruned
    query encoder minimises a distance to its unpruned self: the same call with that teacher.

    A gradient reaches the teacher too if its vectors carry one.

    Example:
        >>> import torch
        >>> SquaredL2()(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])).item()
        1.0
    """

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The mean squared distance over the rows of two B x d tensors.

        Raises:
            LossError: the shapes differ.
        """
        left, right = aligned(student, teacher)
        return (left - right).square().sum(dim=-1).mean()


def aligned(student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """Student and teacher vectors, row for row and dimension for dimension, in at least fp32.

    >>> import torch
    >>> aligned(torch.zeros(1, 384), torch.zeros(1, 512))
    Traceback (most recent call last):
    suwen.training.losses.info_nce.LossError: the student has 384 dimensions and the teacher 512: add a projection ...

    Raises:
        LossError: the rows or the dimensions differ, or there are none.
    """
    if student.ndim != 2 or teacher.ndim != 2 or not len(student) or len(student) != len(teacher):
        raise LossError(
            f"student is {tuple(student.shape)} and teacher {tuple(teacher.shape)}: pass the vectors of the same "
            f"texts, one a row, in the same order"
        )
    if student.shape[1] != teacher.shape[1]:
        raise LossError(
            f"the student has {student.shape[1]} dimensions and the teacher {teacher.shape[1]}: add a projection to "
            f"the student, or cut the teacher and renormalise it"
        )
    return full_precision(student, teacher)
