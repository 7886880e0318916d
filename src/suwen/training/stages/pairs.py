"""The stages ``contrastive`` and ``finetune``: one encoder on both sides, over unlabelled pairs or labelled rows."""

from __future__ import annotations

import numpy as np

from suwen.training.context import Context
from suwen.training.loop.batches import OneSourceBatches, tokenise
from suwen.training.measure import measure
from suwen.training.recipe.options import Mine, Rows
from suwen.training.recipe.settings import ContrastiveStage, FinetuneStage, Stage, VectorsStage
from suwen.training.stages.aligned import StudentModel, finish_student, open_student
from suwen.training.stages.documents import TrainedDocument, finish_document
from suwen.training.stages.vectors import TeacherVectors
from suwen.training.tasks.pair_task import PairLosses, PairTask, Teacher
from suwen.training.tasks.row_negatives import mine_rows
from suwen.training.tasks.row_tables import DataError, PairTable, table_of
from suwen.training.tasks.towers import FrozenTower, TrainedTower


def run_pairs(context: Context, stage: ContrastiveStage | FinetuneStage) -> dict[str, float]:
    """Train a student, or go on with a document encoder, on pairs."""
    inputs = context.data_hashes(rows=stage.rows.sources)
    inputs |= context.student_hash(stage.student, stage.start)
    for name in {stage.document, stage.teacher} - {None}:
        inputs |= context.stage_hash(str(name))
    folder = context.open(stage, inputs)
    if folder.finished:
        return folder.metrics
    unsupervised = stage.stage == "contrastive" and stage.rows.sources is None
    table = read_table(context, stage.rows, unsupervised=unsupervised)
    if stage.mine is not None:
        table = mined(context, stage.mine, table, vectors_of(context, str(stage.start or stage.document)), stage)
    losses = PairLosses(
        stage.temperature,
        stage.learn_temperature,
        dimensions=stage.dimensions,
        backward_weight=stage.backward_weight,
        distil=stage.distil,
    )
    if stage.document is not None:
        document = TrainedDocument.load(context, stage.start or stage.document)
        queries, documents = document.towers(table, stage.training, stage.prompts)
        model, trained = document.model, document.trained
    else:
        student = open_student(context, str(stage.student), stage.start, training=stage.training)
        queries = student_queries(student, table, stage)
        documents = student.tower("document", table.documents, stage.training)
        model = trained = student.model
    task = PairTask(
        table,
        queries,
        documents,
        [(trained, 1.0)],
        row_batches(table, stage.rows, stage.training.batch, context.seed_of(stage)),
        losses,
        negatives=stage.rows.negatives,
        seed=context.seed_of(stage),
        teacher=_teacher(context, stage, table),
    )
    model.train()
    context.optimise(task, folder, stage.training, per_epoch=task.batches.per_epoch)
    if stage.document is not None:
        return finish_document(context, folder, document)
    metrics = measure(
        context.measures,
        student.encode,
        lambda task: student.encode(task.data.documents, "document"),
        device=context.device,
    )
    return finish_student(context, folder, student, None, metrics)


def vectors_of(context: Context, name: str) -> TeacherVectors:
    """The stored vectors of a document encoder.

    Raises:
        DataError: No vectors stage has computed them.
    """
    for stage in context.recipe.stages:
        if isinstance(stage, VectorsStage) and (name in (stage.start, stage.name)):
            return TeacherVectors(context.folder_of(stage.name))
    raise DataError(f"there are no vectors of {name!r}: put a vectors stage with `start: {name}` and `rows` after it")


def mined(context: Context, settings: Mine, table: PairTable, vectors: TeacherVectors, stage: Stage) -> PairTable:
    """The rows with hard negatives from the document encoder's own ranking."""
    return mine_rows(
        table,
        np.asarray(vectors.array("rows-query")[vectors.places("rows-query", table.queries)]),
        np.asarray(vectors.array("rows-document")[vectors.places("rows-document", table.documents)]),
        settings,
        device=context.device,
        seed=context.seed_of(stage),
    )


def read_table(context: Context, rows: Rows, *, unsupervised: bool = False) -> PairTable:
    """The rows a stage is trained on, by text ids."""
    sources = context.sources(rows.sources, unsupervised=unsupervised)
    return table_of(sources, prompts=rows.prompts)


def row_batches(table: PairTable, rows: Rows, batch: int, seed: int) -> OneSourceBatches:
    """Batches of one source each, as the recipe weighs them."""
    return OneSourceBatches(table.sizes(), batch, seed, limit=rows.limit_per_source, weights=rows.weights)


def student_queries(student: StudentModel, table: PairTable, stage: ContrastiveStage | FinetuneStage) -> TrainedTower:
    """The student's queries: a stage's own prompt takes the place of the student's."""
    if stage.prompts.query is None:
        return student.tower("query", table.queries, stage.training)
    texts = [
        stage.prompts.query_prompt(instruction) + query
        for instruction, query in zip(table.instructions, table.queries, strict=True)
    ]
    tokens = tokenise(student.sides["query"], texts, prompt="", max_length=student.length("query"))
    training = stage.training
    return TrainedTower(
        student.sides["query"],
        tokens,
        precision=training.precision,
        token_budget=training.token_budget,
        rows_budget=training.chunk,
    )


def _teacher(context: Context, stage: ContrastiveStage | FinetuneStage, table: PairTable) -> Teacher | None:
    """Stored vectors whose scores are distilled (Ren et al., 2021)."""
    if stage.teacher is None:
        return None
    vectors = vectors_of(context, stage.teacher)
    return Teacher(
        FrozenTower(vectors.array("rows-query")[vectors.places("rows-query", table.queries)], context.device),
        FrozenTower(vectors.array("rows-document")[vectors.places("rows-document", table.documents)], context.device),
    )
