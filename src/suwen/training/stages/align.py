"""The stage ``align``: CARE's Stage I, for one student."""

from __future__ import annotations

import numpy as np

from suwen.encoders.query import Vectors
from suwen.training.context import Context
from suwen.training.recipe.settings import AlignStage
from suwen.training.stages.aligned import StudentModel, alignment_task, finish_student, open_student, text_parts
from suwen.training.stages.vectors import TOKENS, TeacherVectors
from suwen.training.students.student_models import init_from_vectors
from suwen.training.students.student_tokenizer import DOCUMENT, QUERY
from suwen.training.tasks.align_task import Part
from suwen.training.tasks.row_tables import table_of
from suwen.training.tasks.towers import FrozenTower

#: Texts whose mean vector is that of their form.
_MEAN_OF = 20_000


def run_align(context: Context, stage: AlignStage) -> dict[str, float]:
    """Train a student towards the stored vectors of the document encoder; the document encoder never runs."""
    vectors = TeacherVectors(context.folder_of(stage.vectors))
    inputs = {"space": vectors.space} | context.data_hashes(texts=True)
    inputs |= context.student_hash(stage.student, stage.start)
    for name in stage.blend:
        inputs |= context.stage_hash(name)
    folder = context.open(stage, inputs)
    if folder.finished:
        return folder.metrics
    student = open_student(context, stage.student, stage.start, stage.blend, training=stage.training)
    seed = context.seed_of(stage)
    parts = (_supervised if stage.supervised else _texts)(context, stage, student, vectors)
    if stage.start is None and student.shape.init == "vectors":
        _start_table(student, parts[0], vectors)
    task = alignment_task(context, stage, student, parts, vectors, batch=stage.training.batch, seed=seed)
    student.model.train()
    context.optimise(task, folder, stage.training, per_epoch=task.per_epoch)
    return finish_student(context, folder, student, vectors)


def _start_table(student: StudentModel, part: Part, vectors: TeacherVectors) -> None:
    """Start a static student from what the teacher makes of each token, weighted by how often the texts hold it."""
    tokenizer = student.sides["query"].backend
    counts = np.bincount(part.tower.tokens.ids, minlength=tokenizer.get_vocab_size())
    # They choose the form, and are no part of the mean.
    counts[[tokenizer.token_to_id(QUERY), tokenizer.token_to_id(DOCUMENT)]] = 0
    # What all texts of a form share is the form's vector.
    forms = [("query", "rows-query"), ("document", "rows-document", "query", "rows-query")]
    shared = [_mean(vectors, next(name for name in names if vectors.has(name))) for names in forms]
    init_from_vectors(student.model, np.asarray(vectors.array(TOKENS)), counts=counts, form=np.stack(shared))


def _mean(vectors: TeacherVectors, name: str) -> Vectors:
    found = vectors.array(name)
    mean: Vectors = found[:: max(1, len(found) // _MEAN_OF)].mean(axis=0, dtype=np.float32)
    return mean


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
