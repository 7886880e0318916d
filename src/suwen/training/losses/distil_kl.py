"""Distillation of a teacher's ranking; distillation of its vectors is in ``squared_l2.py`` and ``leaf.py``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from suwen.training.losses.info_nce import LossError, full_precision


@dataclass(frozen=True)
class DistilKL:
    r"""KL divergence of the student's distribution over candidates from the teacher's ("Distill"; Ren et al., 2021).

    .. math:: L = \frac1B \sum_i \sum_j t_{ij} \log\frac{t_{ij}}{p_{ij}}, \quad
              t_i = \mathrm{softmax}(T_i/\tau_t), \; p_i = \mathrm{softmax}(S_i/\tau)

    CARE's baseline of Table 3 adds it to InfoNCE on the same candidates. No factor :math:`\tau^2`: a recipe sets the
    weight. The teacher gets no gradient. Scores of half precision are compared in fp32; make the student's with
    ``info_nce.similarities``, which autocast leaves in fp32 too.

    Args:
        temperature: tau of the student, and of the teacher unless it has its own.
        teacher_temperature: tau of a teacher whose scores have another scale, such as a cross-encoder.

    Example:
        >>> import torch
        >>> loss = DistilKL(temperature=1.0)
        >>> even, sure = torch.tensor([[0.0, 0.0]]), torch.tensor([[50.0, 0.0]])
        >>> round(loss(even, sure).item(), 4), loss(sure, sure).item()
        (0.6931, 0.0)
    """

    temperature: float = 0.02
    teacher_temperature: float | None = None

    def __post_init__(self) -> None:
        """Refuse temperatures that are not above 0."""
        for name, value in (("temperature", self.temperature), ("teacher_temperature", self.teacher_temperature)):
            if value is not None and not value > 0:
                raise LossError(f"{name} is {value}: set it above 0, such as 0.02 for cosines")

    def __call__(self, student_scores: Tensor, teacher_scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The mean divergence over the queries.

        Args:
            student_scores: B x N.
            teacher_scores: B x N, of the same candidates.
            mask: B x N, true for candidates left out on both sides; a query with none left counts as 0.

        Raises:
            LossError: the shapes differ.
        """
        for name, table in (("teacher_scores", teacher_scores), ("mask", mask)):
            if table is not None and table.shape != student_scores.shape:
                raise LossError(
                    f"{name} is {tuple(table.shape)} and student_scores {tuple(student_scores.shape)}: "
                    f"score the same candidates, one query a row"
                )
        if student_scores.ndim != 2 or not student_scores.numel():
            raise LossError(f"scores are {tuple(student_scores.shape)}: pass at least one query and one candidate")
        student, teacher = full_precision(student_scores, teacher_scores.detach())
        student_log = _log_softmax(student / self.temperature, mask)
        teacher_log = _log_softmax(teacher / (self.teacher_temperature or self.temperature), mask)
        return (teacher_log.exp() * (teacher_log - student_log)).sum(dim=-1).mean()


def _log_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    # Half the lowest number, not -inf: 0 x (-inf + inf) would be NaN, and so would a row that is masked whole.
    if mask is not None:
        scores = scores.masked_fill(mask.to(torch.bool), torch.finfo(scores.dtype).min / 2)
    return functional.log_softmax(scores, dim=-1)
