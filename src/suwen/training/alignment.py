"""Stage I as stages set it up: the parts a student is aligned on, its start from token vectors, and its task.

The task itself, step by step, is in ``tasks/align_task``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from suwen.encoders.prompts import Form
from suwen.encoders.query import Vectors
from suwen.training.loop.batches import Ints, Lazy, Ragged
from suwen.training.pair_rows import read_table
from suwen.training.recipe.key_groups import Training
from suwen.training.run_context import RunContext
from suwen.training.set_aside import which
from suwen.training.students.student_models import init_from_vectors
from suwen.training.students.student_tokenizer import DOCUMENT, QUERY
from suwen.training.tasks.align_task import AlignLosses, AlignTask, Part
from suwen.training.teacher_vectors import TOKENS, TeacherVectors
from suwen.training.trained_student import StudentModel

if TYPE_CHECKING:
    from suwen.training.stages.align import AlignStage

#: Texts whose mean vector is that of their form.
_MEAN_OF = 20_000


def text_parts(
    context: RunContext,
    student: StudentModel,
    vectors: TeacherVectors,
    stage: AlignStage,
    *,
    training: Training,
    seed: int,
) -> list[Part]:
    """Unlabelled texts in query form, and a share of them in document form, with their targets."""
    stored = context.recipe.stage(vectors.folder.name)
    texts = context.texts(stored.limit)
    parts = []
    shares: dict[Form, float] = {"query": 1 - stage.document_share, "document": stage.document_share}
    for form, share in shares.items():
        if share <= 0:
            continue
        target: Form = "document" if stage.target == "bare" else form
        encoded = texts.of_kinds(getattr(stored.forms, target))
        wanted = np.flatnonzero(np.isin(encoded, texts.of_kinds(stage.kinds)))
        if share_aside := context.recipe.data.set_aside:
            wanted = wanted[~which([texts.texts[place] for place in encoded[wanted]], share_aside)]
        if stage.limit is not None and len(wanted) > stage.limit:
            wanted = np.sort(np.random.default_rng((seed, 13)).choice(wanted, stage.limit, replace=False))
        chosen: Ints = encoded[wanted]
        tower = student.tower(form, [texts.texts[place] for place in chosen], training)
        parts.append(Part(form, tower, vectors.targets(vectors.array(target), context.device), wanted, chosen, share))
    # The documents of the rows: whole answers and articles, which are rare among unlabelled texts.
    documents = read_table(context, stored).bare if stage.document_share > 0 and stored.rows is not None else []
    if documents:
        places = np.arange(len(documents))
        tower = student.tower("document", documents, training)
        targets = vectors.targets(vectors.array("rows-document"), context.device)
        # Numbered apart from the texts: the few that are both only lose a mask.
        parts.append(Part("document", tower, targets, places, places + (1 << 40), stage.document_share))
    return parts


def row_parts(context: RunContext, student: StudentModel, vectors: TeacherVectors, stage: AlignStage) -> list[Part]:
    """Labelled rows: a query must land where the teacher put its positive (the paper's Table 5, upper rows)."""
    table = read_table(context, stage)
    queries = np.concatenate([rows.queries for rows in table.sources.values()])
    documents = np.concatenate(
        [rows.positives.ids[rows.positives.offsets[:-1]] for rows in table.sources.values()], dtype=np.int64
    )
    asked = replace(
        table,
        queries=Lazy(len(queries), lambda row: table.queries[queries[row]]),
        instructions=Lazy(len(queries), lambda row: table.instructions[queries[row]]),
    )
    targets = vectors.targets(vectors.of_documents(table), context.device)
    return [Part("query", student.queries(asked, stage.training), targets, documents, documents, 1.0)]


def start_table(student: StudentModel, part: Part, vectors: TeacherVectors) -> None:
    """Start a static student from what the teacher makes of each token, weighted by how often the texts hold it."""
    tokenizer = student.sides["query"].backend
    tokens = part.tower.tokens
    assert isinstance(tokens, Ragged)
    counts = np.bincount(tokens.ids, minlength=tokenizer.get_vocab_size())
    # They choose the form, and are no part of the mean.
    counts[[tokenizer.token_to_id(QUERY), tokenizer.token_to_id(DOCUMENT)]] = 0
    # What all texts of a form share is the form's vector.
    forms = [("query", "rows-query"), ("document", "rows-document", "query", "rows-query")]
    shared = [_mean(vectors, next(name for name in names if vectors.has(name))) for names in forms]
    init_from_vectors(student.model, np.asarray(vectors.array(TOKENS)), counts=counts, form=np.stack(shared))


def _mean(vectors: TeacherVectors, name: str) -> Vectors:
    stored = vectors.array(name)
    return np.asarray(stored[:: max(1, len(stored) // _MEAN_OF)].mean(axis=0, dtype=np.float32))


def alignment_task(
    context: RunContext,
    stage: AlignStage,
    student: StudentModel,
    parts: Sequence[Part],
    vectors: TeacherVectors,
    *,
    batch: int,
    seed: int,
) -> AlignTask:
    """What an align stage optimises, for itself or inside a Stage II that keeps it in the mix."""
    bank = None
    if stage.ranking:
        # Each text in query form knows its nearest documents: their order is learnt.
        bank = vectors.candidates(vectors.documents(), context.device)
        near: Form = "document" if stage.target == "bare" else "query"
        parts = [
            replace(part, neighbours=vectors.nearest(near, part.places, stage.neighbours, device=context.device))
            if part.form == "query"
            else part
            for part in parts
        ]
    losses = AlignLosses(
        stage.contrastive, stage.squared_l2, stage.distil, stage.leaf, stage.ranking, stage.temperature
    )
    return AlignTask(student.model, parts, batch, losses, seed=seed, rates=stage.learning_rates, bank=bank)
