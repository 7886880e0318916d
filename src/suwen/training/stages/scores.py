"""The stage ``scores``: what a large cross-encoder makes of every candidate, written once as rows with scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from suwen.training.recipe.key_groups import Name
from suwen.training.recipe.stage_base import Needs
from suwen.training.stages.cross import CandidatesStage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class ScoresStage(CandidatesStage):
    """Writes the teacher's scores of rows and their mined negatives, in FlagEmbedding's shape."""

    gives = frozenset({"scores"})

    stage: Literal["scores"]
    teacher: Annotated[Name, Needs("cross")] = Field(description="the cross stage that scores")
    token_budget: int = Field(default=32_768, ge=16, description="padded tokens per forward pass")

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.corpora.training_rows import write_training_rows
        from suwen.training.cross_encoders import CrossEncoder, candidate_rows, candidates, score_all, scoring_tower
        from suwen.training.run_context import ROWS

        asked, teacher = context.recipe.stage(self.teacher), CrossEncoder.load(context, self.teacher)
        rows = candidate_rows(context, self)
        texts = candidates(rows, asked.template, asked.query_characters)
        teacher.settle()
        tower = scoring_tower(teacher.model, texts, asked.training, asked.max_length, context.common / "tokens")
        made = iter(score_all(tower, len(texts), tower.tokens, self.token_budget))
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
