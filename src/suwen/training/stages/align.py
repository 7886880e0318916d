"""The stage ``align``: CARE's Stage I, for one student."""

from __future__ import annotations

import numpy as np

from suwen.training.align_task import AlignLosses, AlignTask, Part
from suwen.training.context import Context
from suwen.training.data import table_of
from suwen.training.settings import AlignStage
from suwen.training.stages.aligned import StudentModel, finish_student, open_student, text_parts
from suwen.training.stages.vectors import TeacherVectors
from suwen.training.towers import FrozenTower


def run_align(context: Context, stage: AlignStage) -> dict[str, float]:
    """Train a student towards the stored vectors of the document encoder; the document encoder never runs."""
    vectors = TeacherVectors(context.folder_of(stage.vectors))
    inputs = {"space": vectors.space} | context.data_hashes(texts=True)
    if stage.start is not None:
        inputs |= context.stage_hash(stage.start)
    folder = context.open(stage, inputs)
    if folder.finished:
        return folder.metrics
    student = open_student(context, stage.student, stage.start)
    seed = context.seed_of(stage)
    task = AlignTask(
        student.model,
        _supervised(context, stage, student, vectors) if stage.supervised else _texts(context, stage, student, vectors),
        stage.training.batch,
        AlignLosses(stage.contrastive, stage.squared_l2, stage.distil, stage.leaf, stage.temperature),
        seed=seed,
        rates=stage.learning_rates,
    )
    student.model.train()
    context.optimise(task, folder, stage.training, per_epoch=task.per_epoch)
    return finish_student(context, folder, student, vectors)


def _texts(context: Context, stage: AlignStage, student: StudentModel, vectors: TeacherVectors) -> list[Part]:
    return text_parts(
        context,
        student,
        vectors,
        stage.training,
        limit=stage.limit,
        kinds=stage.kinds,
        document_share=stage.document_share,
        seed=context.seed_of(stage),
    )


def _supervised(context: Context, stage: AlignStage, student: StudentModel, vectors: TeacherVectors) -> list[Part]:
    """Labelled rows: a query must land where the teacher put its positive (the paper's Table 5, upper rows)."""
    sources = context.sources(stage.rows.sources)
    table = table_of(sources, prompts=False)
    rows = [(row[0], row[1][0]) for found in table.sources.values() for row in found]
    places = vectors.places("rows-document", table.documents)
    queries = [table.queries[query] for query, _ in rows]
    documents = np.array([document for _, document in rows], np.int64)
    tower = student.tower("query", queries, stage.training)
    return [
        Part(
            "query",
            tower,
            FrozenTower(vectors.array("rows-document"), context.device),
            places[documents],
            documents,
            1.0,
        )
    ]
