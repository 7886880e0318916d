"""Distillation of a teacher's ranking; distillation of its vectors is in ``squared_l2.py`` and ``leaf.py``."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from suwen.training.losses.info_nce import LossError, full_precision


@dataclass(frozen=True)
class DistilKL:
    r"""KL divergence of the student's distribution over candidates from the teacher's ("Distill"; Ren et al., 2021).

    .. math:: L = \frac1B \sum_i \sum_j t_{ij} \log\frac{t_{ij}}{p_{ij}}, \quad
              t_i = \mathrm{softmax}(T_i/\tau), \; p_i = \mathrm{softmax}(S_i/\tau)

    CARE's baseline of Table 3 adds it to InfoNCE on the same candidates. No factor :math:`\tau^2`: a recipe sets the
    weight. The teacher gets no gradient. Scores of half precision are compared in fp32; make the student's with
    ``info_nce.similarities``, which autocast leaves in fp32 too.

    Args:
        temperature: tau.

    Example:
        >>> import torch
        >>> loss = DistilKL(temperature=1.0)
        >>> even, sure = torch.tensor([[0.0, 0.0]]), torch.tensor([[50.0, 0.0]])
        >>> round(loss(even, sure).item(), 4), loss(sure, sure).item()
        (0.6931, 0.0)
    """

    temperature: float = 0.02

    def __post_init__(self) -> None:
        """Refuse a temperature that is not above 0."""
        if not self.temperature > 0:
            raise LossError(f"temperature is {self.temperature}: set it above 0, such as 0.02 for cosines")

    def __call__(self, student_scores: Tensor, teacher_scores: Tensor) -> Tensor:
        """The mean divergence over the queries.

        Args:
            student_scores: B x N.
            teacher_scores: B x N, of the same candidates.

        Raises:
            LossError: the shapes differ.
        """
        if teacher_scores.shape != student_scores.shape:
            raise LossError(
                f"teacher_scores are {tuple(teacher_scores.shape)} and student_scores {tuple(student_scores.shape)}: "
                f"score the same candidates, one query a row"
            )
        if student_scores.ndim != 2 or not student_scores.numel():
            raise LossError(f"scores are {tuple(student_scores.shape)}: pass at least one query and one candidate")
        both = full_precision(student_scores, teacher_scores.detach())
        student, teacher = (functional.log_softmax(scores / self.temperature, dim=-1) for scores in both)
        return (teacher.exp() * (teacher - student)).sum(dim=-1).mean()
