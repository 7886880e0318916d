"""What the stages share that are trained on rows: their table, their hard negatives, and the training itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suwen.training.loop.batches import OneSourceBatches
from suwen.training.loop.run_folder import RunFolder
from suwen.training.recipe.key_groups import Mine, Rows
from suwen.training.run_context import RunContext
from suwen.training.tasks.align_task import AlignTask
from suwen.training.tasks.pair_task import PairLosses, PairTask, Teacher
from suwen.training.tasks.row_negatives import mine_rows
from suwen.training.tasks.row_tables import PairTable, drawn_rows, table_of
from suwen.training.tasks.towers import Tower
from suwen.training.teacher_vectors import TeacherVectors


def read_table(context: RunContext, stage: Any) -> PairTable:
    """The rows of a stage, by text ids."""
    rows: Rows = stage.rows
    table = table_of(
        context.sources(rows.sources, unsupervised=stage.unsupervised and rows.sources is None, prompts=rows.prompts)
    )
    return table if rows.share == 1 else drawn_rows(table, rows.share)


def mined(context: RunContext, settings: Mine, table: PairTable, vectors: TeacherVectors, seed: int) -> PairTable:
    """The rows with hard negatives from the document encoder's own ranking."""
    asked, given = vectors.of_queries(table), vectors.of_documents(table)
    return mine_rows(table, asked, given, settings, device=context.device, seed=seed, by_dot=vectors.by_dot)


def stored_teacher(context: RunContext, vectors: TeacherVectors, table: PairTable) -> Teacher:
    """Stored vectors whose scores are distilled (Ren et al., 2021)."""
    queries = vectors.targets(vectors.of_queries(table), context.device)
    return Teacher(queries, vectors.candidates(vectors.of_documents(table), context.device))


def train_pairs(
    context: RunContext,
    stage: Any,
    folder: RunFolder,
    table: PairTable,
    queries: Tower,
    documents: Tower,
    modules: Sequence[tuple[Any, float]],
    losses: PairLosses,
    *,
    negatives: int | None = None,
    teacher: Teacher | None = None,
    alignment: AlignTask | None = None,
) -> None:
    """Optimise over rows as a stage says, in batches of one source each.

    Args:
        context: The run.
        stage: The stage, with its ``rows`` and ``training``.
        folder: Its folder.
        table: The rows.
        queries: Encodes their queries.
        documents: Encodes their documents.
        modules: What is trained, with the factor of the learning rate of each.
        losses: What is minimised.
        negatives: Negatives of a row; as the stage's ``rows`` say where none are given.
        teacher: Whose scores are distilled.
        alignment: A Stage-I task that is kept in the mix.
    """
    rows, seed = stage.rows, context.seed_of(stage)
    batches = OneSourceBatches(
        table.sizes(), stage.training.batch, seed, limit=rows.limit_per_source, weights=rows.weights
    )
    task = PairTask(
        table,
        queries,
        documents,
        modules,
        batches,
        losses,
        negatives=rows.negatives if negatives is None else negatives,
        seed=seed,
        teacher=teacher,
        alignment=alignment,
    )
    context.optimise(task, folder, stage.training, per_epoch=batches.per_epoch)
