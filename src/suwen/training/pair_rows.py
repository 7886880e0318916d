"""What the stages share that are trained on rows: their table, their hard negatives, and the training itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suwen.training.loop.batches import OneSourceBatches
from suwen.training.loop.best_kept import Watch
from suwen.training.loop.run_folder import RunFolder
from suwen.training.recipe.key_groups import Rows
from suwen.training.run_context import RunContext
from suwen.training.set_aside import without_set_aside
from suwen.training.tasks.align_task import AlignTask
from suwen.training.tasks.fused_queries import Beside
from suwen.training.tasks.pair_task import Asker, PairLosses, PairTask, Teacher
from suwen.training.tasks.row_negatives import mine_rows
from suwen.training.tasks.row_tables import PairTable, drawn_rows, table_of
from suwen.training.tasks.towers import Tower, TrainedTower
from suwen.training.teacher_vectors import TeacherVectors

_ENCODED_AT_ONCE = 512


def read_table(context: RunContext, stage: Any) -> PairTable:
    """The rows of a stage, by text ids: without the questions set aside, but where all get the teacher's vectors."""
    rows: Rows = stage.rows
    if stage.rewrites_read is not None:
        table = table_of(context.rewritten(stage.rewrites_read))
    else:
        unsupervised = stage.unsupervised and rows.sources is None
        table = table_of(context.sources(rows.sources, unsupervised=unsupervised, prompts=rows.prompts))
    if "vectors" not in stage.gives:
        table = without_set_aside(table, context.recipe.data.set_aside)
    return table if rows.share == 1 else drawn_rows(table, rows.share)


def mined(context: RunContext, stage: Any, table: PairTable, vectors: TeacherVectors) -> PairTable:
    """The rows with hard negatives from the document encoder's own ranking."""
    asked, given = vectors.of_queries(table), vectors.of_documents(table)
    return _mined(context, stage, table, asked, given, by_dot=vectors.by_dot)


def mined_by(context: RunContext, stage: Any, table: PairTable, queries: Tower, documents: Tower) -> PairTable:
    """The rows with hard negatives from the ranking of the towers that are about to be trained."""
    asked, given = _encoded(queries, len(table.queries)), _encoded(documents, len(table.documents))
    return _mined(context, stage, table, asked, given)


def _mined(
    context: RunContext, stage: Any, table: PairTable, asked: Any, given: Any, *, by_dot: bool = False
) -> PairTable:
    weight = None if stage.hyde is None else stage.hyde.weight
    settings: dict[str, Any] = {
        "device": context.device,
        "seed": context.seed_of(stage),
        "by_dot": by_dot,
        "weight": weight,
    }
    return mine_rows(table, asked, given, stage.mine, **settings)


def _encoded(tower: Tower, count: int) -> npt.NDArray[np.float32]:
    """All vectors of a tower, without gradients."""
    with torch.inference_mode():
        parts = [
            tower.vectors(np.arange(start, min(start + _ENCODED_AT_ONCE, count))).cpu().numpy()
            for start in range(0, count, _ENCODED_AT_ONCE)
        ]
    return np.concatenate(parts)


def stored_teacher(context: RunContext, vectors: TeacherVectors, table: PairTable) -> Teacher:
    """Stored vectors whose scores are distilled (Ren et al., 2021)."""
    queries = vectors.targets(vectors.of_queries(table), context.device)
    return Teacher(queries, vectors.candidates(vectors.of_documents(table), context.device))


def _takes_instructions(context: RunContext, stage: Any) -> bool:
    """Whether the query prompt of what is trained has a place for a row's instruction."""
    student = stage.student_trained
    prompts = context.recipe.students[student].prompts if student is not None else getattr(stage, "prompts", None)
    return prompts is not None and "{instruction}" in (prompts.query or "")


def _odd(table: PairTable, queries: Tower, documents: Tower, *, asked: bool) -> dict[str, int]:
    """What the reader of a run's report should know of its rows: how many, and what is odd; nothing where nothing is.

    Where instructions are not ``asked`` for, none is missing.
    """
    found = {name: count for name, count in table.counts().items() if asked or name != "without_an_instruction"}
    # Its positive would have no negatives of its own source beside it.
    found["left_out_as_the_only_row_of_a_source"] = [*table.sizes().values()].count(1)
    every = table.sources.values()
    asked_for = [rows.queries for rows in every]
    given = [some.take(np.arange(len(some)))[0] for rows in every for some in (rows.positives, rows.negatives)]
    for name, tower, ids in (("queries_cut", queries, asked_for), ("documents_cut", documents, given)):
        found[name] = tower.tokens.full(np.unique(np.concatenate(ids))) if isinstance(tower, TrainedTower) else 0
    found = {name: count for name, count in found.items() if count}
    return {"rows": sum(table.sizes().values()), **found} if found else {}


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
    beside: Tower | None = None,
    asker: Asker | None = None,
    watch: Watch | None = None,
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
        beside: Encodes the hypothetical documents, where the stage asks with them (its ``hyde``).
        asker: Who asks the same queries beside, and learns nothing.
        watch: Looks at what is not trained on, and keeps the weights that are best there.
    """
    rows, seed = stage.rows, context.seed_of(stage)
    batches = OneSourceBatches(
        table.sizes(), stage.training.batch, seed, limit=rows.limit_per_source, weights=rows.weights
    )
    folder.rows = _odd(table, queries, documents, asked=_takes_instructions(context, stage))
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
        beside=None if beside is None else Beside(beside, stage.hyde.weight, stage.hyde.documents),
        asker=asker,
    )
    context.optimise(task, folder, stage.training, per_epoch=batches.per_epoch, watch=watch)
