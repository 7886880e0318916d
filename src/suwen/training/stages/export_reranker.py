"""The stage ``export-reranker``: the small cross-encoder as an int8 graph, and whether it gains anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from suwen.training.recipe.key_groups import Name
from suwen.training.recipe.stage_base import Needs, Stage

if TYPE_CHECKING:
    from suwen.encoders.reranker import RerankerManifest
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext

#: Lists whose candidates the graphs are held against torch on.
_LISTS = 24


class ExportRerankerStage(Stage):
    """Writes the reranker's folder; measured, it is not offered where it loses to hybrid search."""

    ships = True

    stage: Literal["export-reranker"]
    start: Annotated[Name, Needs("reranker")] = Field(description="the reranker stage")
    measure: str | None = Field(
        default=None,
        description="a tier of its pair: over hybrid search with that one on both sides its gain is measured, on "
        "data.measure; null = not measured here",
    )
    reranker: str | None = Field(default=None, description="its name; null = the recipe's")
    licence: str = Field(default="", description="the licence of the weights")

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        metrics: dict[str, float] = {}
        folder.leave(lambda out: self._export(context, out, metrics))
        return metrics

    def _export(self, context: RunContext, out: Path, metrics: dict[str, float]) -> None:
        from suwen.corpora.training_rows import read_training_rows
        from suwen.training.cross_encoders import candidates
        from suwen.training.run_context import ROWS
        from suwen.training.ship.reranker_export import Contract, export_reranker

        made = context.recipe.stage(self.start)
        rows = list(read_training_rows(context.model_of(made.scores) / ROWS))
        texts = candidates(rows[:: max(1, len(rows) // _LISTS)][:_LISTS], made.template, made.query_characters)
        name = self.reranker or context.recipe.name
        contract = Contract(name, made.template, made.query_characters, made.max_length, self.licence)
        manifest = export_reranker(context.model_of(self.start), out, contract, texts)
        metrics |= {"bytes": float(sum(file.stat().st_size for file in out.iterdir())), **manifest.parity}
        if self.measure is not None:
            metrics |= self._measure(context, out, manifest, made.pair)

    def _measure(self, context: RunContext, out: Path, manifest: RerankerManifest, pair: str) -> dict[str, float]:
        from suwen.bench.dense_systems import PairSystem
        from suwen.bench.ranking_systems import BM25, Hybrid
        from suwen.bench.reranked import HITS, Reading, gains, read_again
        from suwen.bench.suite_tasks import load_suite
        from suwen.bench.systems import RankingContext, Setting
        from suwen.bench.vector_cache import VectorCache
        from suwen.durable import write_json
        from suwen.encoders.reranker import DESCRIPTION, Reranker

        suite = load_suite(Path(str(context.recipe.data.measure)))
        described = {task.name: task for task in suite.tasks}
        system = Hybrid("hybrid", PairSystem.open("pair", pair, self.measure)[0], BM25("bm25:bigrams", "bigrams"))
        # Twice as deep as metrics look: what is not read again stands behind what is.
        asked, reranker = RankingContext(VectorCache(None), 2 * HITS), Reranker.load(out)
        tasks = {}
        for task in context.measures:
            ranks = system.rank(task.data, Setting(described[task.name], suite.templates), asked)
            tasks[task.name] = Reading(task.data, ranks, read_again(reranker, task.data, ranks, HITS))
        weight, gained = gains(tasks)
        known = manifest.model_copy(update={"hybrid_weight": weight, "measured": gained})
        write_json(out / DESCRIPTION, known.model_dump())
        return {f"{name}.{key}": getattr(one, key) for name, one in gained.items() for key in ("hybrid", "precise")}
