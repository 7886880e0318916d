"""The stage ``scores``: what a large model makes of every candidate, written once as rows with scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.key_groups import Name, later
from suwen.training.recipe.stage_base import Needs
from suwen.training.stages.cross import CandidatesStage

if TYPE_CHECKING:
    from suwen.corpora.training_rows import TrainingRow
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class ScoresStage(CandidatesStage):
    """Writes the teacher's scores of rows and their mined negatives, in FlagEmbedding's shape."""

    gives = frozenset({"scores"})

    stage: Literal["scores"]
    teacher: Annotated[Name | None, Needs("cross")] = Field(default=None, description="the cross stage that scores")
    document: Annotated[Name | None, Needs("encoder")] = later(
        None,
        "in its place, or beside it: whose document encoder scores, by the cosine of the two; it reads a text once, in "
        "however many lists it stands. With both, the score is the mean of theirs",
    )
    temperature: float = later(0.03, "with `document`: what a cosine is divided by", gt=0)
    token_budget: int = Field(default=32_768, ge=16, description="padded tokens per forward pass")

    @model_validator(mode="after")
    def _one_teacher(self) -> ScoresStage:
        if self.teacher is None and self.document is None:
            raise ValueError("say who scores: `teacher`, a cross stage, `document`, a document encoder, or both")
        return self

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.corpora.training_rows import write_training_rows
        from suwen.training.cross_encoders import candidate_rows, cosines
        from suwen.training.run_context import ROWS

        rows = candidate_rows(context, self)
        told = [self._read_together(context, rows)] if self.teacher is not None else []
        if self.document is not None:
            told.append(cosines(context, self, rows))
        made = (sum(ones) / len(ones) for ones in zip(*told, strict=True))
        scored = [
            row._replace(
                pos_scores=tuple(round(next(made), 4) for _ in row.pos),
                neg_scores=tuple(round(next(made), 4) for _ in row.neg),
            )
            for row in rows
        ]
        folder.leave(lambda out: write_training_rows(out / ROWS, scored))
        # The ceiling of a reranker that learns from these: how often the teacher itself puts the right one first.
        first = [row.pos_scores[0] > max(row.neg_scores) for row in scored]
        return {"lists": float(len(scored)), "right_first": sum(first) / max(1, len(first))}

    def _read_together(self, context: RunContext, rows: list[TrainingRow]) -> list[float]:
        from suwen.training.cross_encoders import CrossEncoder, candidates, score_all, scoring_tower

        asked, teacher = context.recipe.stage(str(self.teacher)), CrossEncoder.load(context, str(self.teacher))
        texts = candidates(rows, asked.template, asked.query_characters)
        teacher.settle()
        tower = scoring_tower(teacher.model, texts, asked.training, asked.max_length, context.common / "tokens")
        return score_all(tower, len(texts), tower.tokens, self.token_budget)
