"""The stage ``round``: whether a round of generator and retriever has gained, told by generated queries set aside."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from suwen.training.recipe.key_groups import Name
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs
from suwen.training.stages.rewrites import LookingStage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext

#: Weights of the query are tried on every other query that was set aside; what is reported is of the rest.
_TRIED = 2


class RoundStage(LookingStage):
    """Leaves this round's generator and retriever if they find more than the round before, else those, and stops.

    The measure is the mean reciprocal rank, times 100, of the documents that queries were generated from and that
    nothing was trained on: no label is looked at.
    """

    gives = frozenset({"student", "encoder", "adapter", "generator", "round"})
    runs_anyway = True

    stage: Literal["round"]
    queries: Annotated[Name, Needs("queries")] = Field(description="the stage of the queries, with those set aside")
    before: Annotated[Name | None, Needs("round")] = Field(
        default=None, description="the round it must be better than; null = it is the start"
    )
    count: int = Field(default=1, ge=1, description="documents written for each query")
    weight: float | None = Field(
        default=None, gt=0, description="of the query among its documents; null = the best of some on half the queries"
    )
    least_gain: float = Field(default=0.0, ge=0, description="points it must be better by, or the rounds end")

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        return super().stand_in(small, builtin) | {"count": 1}

    @property
    @override
    def encoder_from(self) -> str | None:
        """Of a pair, whose document encoder it takes over; a student on both sides is its own."""
        return self.document

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        yield from super().problems(recipe)
        if not (self.student or self.retriever or self.document or self.pair):
            yield f"stages.{self.name}: no retriever; say `student`, `retriever`, `document` or `pair`"
        before = recipe.stage(self.before) if self.before else None
        if before is not None and (before.encoder_from is None) != (self.document is None):
            yield (
                f"stages.{self.name}.document: '{self.before}' is a round of another kind of retriever, of one encoder "
                "on both sides or of two: name `document` in both, or in neither"
            )

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        before = self._read(context, self.before)
        passed_over = any(self._read(context, one.stage).get("skipped") for one in self.references())
        metrics = {} if passed_over else self._measured(context)
        score, gained = metrics.get("fused", 0.0), 0.0
        if before:
            gained = 0.0 if passed_over else score - before["score"]
        stopped = self.before is not None and (passed_over or gained <= self.least_gain)
        left = self.before if stopped else None
        folder.leave(lambda out: self._leave(context, out, left))
        return metrics | {
            "score": before["score"] if stopped else score,
            "gain": gained,
            "stopped": float(stopped),
        }

    def _read(self, context: RunContext, name: str | None) -> dict[str, Any]:
        from suwen.training.loop.run_folder import RunFolder

        return {} if name is None else RunFolder(context.folder_of(name), finished=True).metrics

    def _leave(self, context: RunContext, out: Path, left: str | None) -> None:
        """Write the retriever and the generator: this round's, or the ones before."""
        from suwen.training.hypothetical_writing import ADAPTER, GENERATOR, generator_folder
        from suwen.training.trained_student import open_student

        if left is not None:
            shutil.copytree(context.model_of(left), out, dirs_exist_ok=True)
            return
        if self.retriever is not None:
            without = shutil.ignore_patterns(GENERATOR)
            shutil.copytree(context.model_of(self.retriever), out, dirs_exist_ok=True, ignore=without)
        elif self.student is not None:
            open_student(context, self.student, None).save(out)
        self._leave_document(context, out)
        if (adapter := generator_folder(context, self.generator)) is not None:
            shutil.copytree(adapter, out / GENERATOR / ADAPTER)

    def _leave_document(self, context: RunContext, out: Path) -> None:
        """Of a pair, the document encoder too, as a joint stage leaves it; one that is frozen stays where it is."""
        from suwen.training.ship.freezing import ADAPTER
        from suwen.training.trained_document import document_folder

        if self.document is None or "space" in context.recipe.stage(self.document).gives:
            return
        place = out / "document" / ADAPTER
        if not place.is_dir():
            shutil.copytree(document_folder(context, self.document) / ADAPTER, place)

    def _measured(self, context: RunContext) -> dict[str, float]:
        """How well the generated queries that were set aside find their documents, alone and with what is written."""
        import numpy as np

        from suwen.hyde.fusion import choose_weight, fuse, ranks
        from suwen.training.hypothetical_writing import draws_of, open_retriever, open_writer, read_queries

        asked = read_queries(context, self.queries)
        aside = [(one.query, place) for place, one in enumerate(asked) if one.query and one.held_out]
        queries, targets = [query for query, _ in aside], np.array([place for _, place in aside], np.int64)
        with open_writer(context, self) as writer:
            draws = draws_of(self.draws, context.seed)
            written = writer.documents(queries, self.count, kind=self.kind, draws=draws)
        retriever = open_retriever(context, self)
        pool = retriever.encode_documents([one.document for one in asked])
        alone = retriever.encode_queries(queries)
        texts = [text for own in written for text in own]
        owners = np.repeat(np.arange(len(written)), [len(own) for own in written])
        beside = retriever.encode_documents(texts) if texts else alone[:0]

        def part(rows: Any) -> tuple[Any, Any, Any]:
            mine = np.isin(owners, rows)
            return alone[rows], beside[mine], np.searchsorted(rows, owners[mine])

        tried = np.arange(0, len(queries), _TRIED)
        scored = np.setdiff1d(np.arange(len(queries)), tried) if len(queries) > 1 else tried
        weight = self.weight
        if weight is None:
            weight = choose_weight(*part(tried), targets=targets[tried], pool=pool)[0]

        def found(vectors: Any) -> float:
            return 100 * float(np.mean(1 / ranks(vectors, targets[scored], pool)))

        own = part(scored)
        # JSON knows no infinity: the query alone was best.
        said = weight if np.isfinite(weight) else -1.0
        counts = {key: float(value) for key, value in writer.counts.items()}
        return counts | {
            "alone": found(own[0]),
            "written": found(fuse(*own, fusion="documents")),
            "fused": found(fuse(*own, weight=weight)),
            "weight": said,
        }
