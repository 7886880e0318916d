"""The stage ``joint``: CARE's Stage II, of both encoders, or of the query encoder alone over a frozen space."""

from __future__ import annotations

import numpy as np

from suwen.training.context import Context
from suwen.training.loop.processes import in_first
from suwen.training.loop.run_folder import RunFolder
from suwen.training.recipe.settings import AlignStage, JointStage
from suwen.training.stages.aligned import StudentModel, alignment_task, finish_student, open_student, text_parts
from suwen.training.stages.documents import TrainedDocument
from suwen.training.stages.pairs import mined, read_table, row_batches, vectors_of
from suwen.training.stages.vectors import TeacherVectors
from suwen.training.students.student_models import with_projection
from suwen.training.tasks.align_task import AlignLosses, AlignTask
from suwen.training.tasks.pair_task import PairLosses, PairTask, Teacher
from suwen.training.tasks.row_tables import PairTable
from suwen.training.tasks.towers import FrozenTower, Tower


def run_joint(context: Context, stage: JointStage) -> dict[str, float]:
    """Train on labelled rows with hard negatives."""
    inputs = context.data_hashes(rows=stage.rows.sources)
    inputs |= context.student_hash(stage.student, stage.start)
    for name in {stage.document, *stage.blend}:
        inputs |= context.stage_hash(name)
    folder = context.open(stage, inputs)
    if folder.finished:
        return folder.metrics
    table = read_table(context, stage.rows)
    vectors = vectors_of(context, stage.vectors or stage.document)
    if stage.mine is not None:
        table = mined(context, stage.mine, table, vectors, stage)
    student = _student(context, stage)
    return (_both if stage.train_document else _query_only)(context, stage, folder, table, student, vectors)


def _query_only(
    context: Context,
    stage: JointStage,
    folder: RunFolder,
    table: PairTable,
    student: StudentModel,
    vectors: TeacherVectors,
) -> dict[str, float]:
    places = vectors.places("rows-document", table.documents)
    documents = FrozenTower(np.asarray(vectors.array("rows-document")[places]), context.device)
    task = _task(context, stage, table, student, documents, [(student.model, 1.0)], vectors)
    student.model.train()
    context.optimise(task, folder, stage.training, per_epoch=task.batches.per_epoch)
    return finish_student(context, folder, student, vectors)


def _both(
    context: Context,
    stage: JointStage,
    folder: RunFolder,
    table: PairTable,
    student: StudentModel,
    vectors: TeacherVectors,
) -> dict[str, float]:
    """Both encoders move; the space does too, so what was aligned before belongs to no frozen space."""
    document = TrainedDocument.load(context, stage.document)
    _, documents = document.towers(table, stage.training, document.prompts, cut=True)
    rate = 1.0 if stage.document_learning_rate is None else stage.document_learning_rate / stage.training.learning_rate
    task = _task(context, stage, table, student, documents, [(student.model, 1.0), (document.trained, rate)], vectors)
    student.model.train()
    document.model.train()
    context.optimise(task, folder, stage.training, per_epoch=task.batches.per_epoch)
    return in_first(lambda: _finish(context, folder, student, document)) or {}


def _finish(context: Context, folder: RunFolder, student: StudentModel, document: TrainedDocument) -> dict[str, float]:
    student.model.eval()
    with folder.new_model() as temporary:
        student.save(temporary)
        document.save(temporary / "document")
    metrics = document.measure(context, student.encode, folder.model / "document")
    folder.finish(metrics)
    return metrics


def _task(
    context: Context,
    stage: JointStage,
    table: PairTable,
    student: StudentModel,
    documents: Tower,
    modules: list[tuple[object, float]],
    vectors: TeacherVectors,
) -> PairTask:
    training = stage.training
    teacher = None
    if stage.distil:
        queries = np.asarray(vectors.array("rows-query")[vectors.places("rows-query", table.queries)])
        known = np.asarray(vectors.array("rows-document")[vectors.places("rows-document", table.documents)])
        teacher = Teacher(FrozenTower(queries, context.device), FrozenTower(known, context.device))
    return PairTask(
        table,
        student.tower("query", table.queries, training),
        documents,
        modules,  # type: ignore[arg-type]
        row_batches(table, stage.rows, training.batch, context.seed_of(stage)),
        PairLosses(stage.temperature, distil=stage.distil, keep_alignment=stage.keep_alignment),
        negatives=stage.negatives,
        seed=context.seed_of(stage),
        teacher=teacher,
        alignment=_alignment(context, stage, student) if stage.keep_alignment else None,
    )


def _alignment(context: Context, stage: JointStage, student: StudentModel) -> AlignTask:
    """The Stage-I task of the stage this one starts from, kept in the mix so that the space is not forgotten."""
    before = context.recipe.stage(str(stage.start)) if stage.start is not None else None
    shape = before if isinstance(before, AlignStage) else None
    vectors = TeacherVectors(context.folder_of(str(stage.vectors)))
    parts = text_parts(
        context,
        student,
        vectors,
        stage.training,
        limit=shape.limit if shape else None,
        kinds=shape.kinds if shape else None,
        document_share=shape.document_share if shape else 0.0,
        seed=context.seed_of(stage),
    )
    batch, seed = stage.training.batch, context.seed_of(stage) + 1
    if shape is not None and not shape.supervised:
        return alignment_task(context, shape, student, parts, vectors, batch=batch, seed=seed)
    losses = AlignLosses(temperature=shape.temperature if shape else 0.03)
    return AlignTask(student.model, parts, batch, losses, seed=seed)


def _student(context: Context, stage: JointStage) -> StudentModel:
    student = open_student(context, stage.student, stage.start, stage.blend, training=stage.training)
    if not stage.projection:
        return student
    model = with_projection(student.model, context.recipe.dimension_of(stage.document)).to(context.device)
    return StudentModel(model, student.shape, cache=student.cache, blend=student.blend)
