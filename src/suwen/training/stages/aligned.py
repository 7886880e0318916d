"""What align and joint share: a student with its two forms, the parts it is aligned on, and its measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from suwen.encoders.query import Vectors
from suwen.encoders.side import Side
from suwen.encoders.space import Form
from suwen.training.context import Context
from suwen.training.loop.batches import Ints, tokenise
from suwen.training.loop.processes import in_first
from suwen.training.recipe.options import Kind, Training
from suwen.training.recipe.settings import AlignStage, Student
from suwen.training.stages.vectors import TeacherVectors, measure_student
from suwen.training.tasks.align_task import AlignLosses, AlignTask, Part
from suwen.training.tasks.row_tables import table_of
from suwen.training.tasks.towers import FrozenTower, Precision, TrainedTower, recompute_layers

_ENCODED_AT_ONCE = 512


class StudentModel:
    """A student in memory, in its two forms.

    Args:
        model: The ``SentenceTransformer``.
        shape: What the recipe says of it.
        cache: Where token ids are kept.
        blend: Students that stay as they are, each with its share of every vector.
    """

    def __init__(
        self,
        model: Any,
        shape: Student,
        *,
        cache: Path | None = None,
        blend: Sequence[tuple[StudentModel, float]] = (),
    ) -> None:
        self.model, self.shape, self.cache, self.blend = model, shape, cache, tuple(blend)
        if shape.prompts.query is not None:
            model.prompts = {"query": shape.prompts.query, "document": shape.prompts.document_prompt}
        self.sides: dict[Form, Side] = {"query": Side(model, "query"), "document": Side(model, "document")}

    def length(self, form: Form) -> int:
        """The most tokens of a text in a form."""
        return self.shape.max_length if form == "query" else (self.shape.document_length or self.shape.max_length)

    def tower(self, form: Form, texts: Sequence[str], training: Training) -> TrainedTower:
        """The student as a tower over these texts."""
        return self._tower(
            form, texts, training.precision, cache=self.cache, tokens=training.token_budget, rows=training.chunk
        )

    def _tower(
        self,
        form: Form,
        texts: Sequence[str],
        precision: Precision,
        *,
        cache: Path | None = None,
        tokens: int | None = None,
        rows: int | None = None,
    ) -> TrainedTower:
        return TrainedTower(
            self.sides[form],
            tokenise(self.sides[form], texts, max_length=self.length(form), cache=cache),
            precision=precision,
            token_budget=tokens,
            rows_budget=rows,
            blend=[(other._tower(form, texts, precision, cache=cache), share) for other, share in self.blend],
        )

    def encode(self, texts: Sequence[str], form: Form = "query", precision: Precision = "fp32") -> Vectors:
        """Vectors of texts, without gradients."""
        self.model.eval()
        tower = self._tower(form, texts, precision)
        with torch.inference_mode():
            parts = [
                tower.vectors(np.arange(start, min(start + _ENCODED_AT_ONCE, len(texts)))).cpu().numpy()
                for start in range(0, len(texts), _ENCODED_AT_ONCE)
            ]
        found: Vectors = np.concatenate(parts)
        return found

    def save(self, folder: Path) -> None:
        """Write it as a sentence-transformers folder."""
        self.model.save(str(folder))


def open_student(
    context: Context,
    name: str,
    start: str | None,
    blend: Mapping[str, float] | None = None,
    *,
    training: Training | None = None,
) -> StudentModel:
    """A student of the recipe, with the weights of a stage or its own start, and those that it is blended with.

    Args:
        context: The run.
        name: The student.
        start: The stage whose weights it has; None for its own start.
        blend: The stages of those it is blended with, with their shares.
        training: How it is about to be trained.
    """
    others = [
        (open_student(context, getattr(context.recipe.stage(stage), "student"), stage), share)  # noqa: B009 - checked
        for stage, share in (blend or {}).items()
    ]
    for other, _ in others:
        other.model.eval()
    cache = (context.shared or context.root) / "tokens"
    model = context.student(name, start)
    if training is not None:
        recompute_layers(model, training.gradient_checkpointing)
    return StudentModel(model, context.recipe.students[name], cache=cache, blend=others)


def text_parts(
    context: Context,
    student: StudentModel,
    vectors: TeacherVectors,
    training: Training,
    *,
    limit: int | None,
    kinds: Sequence[Kind] | None,
    document_share: float,
    seed: int,
) -> list[Part]:
    """Unlabelled texts in query form, and a share of them in document form, with their targets."""
    stage = context.recipe.stage(vectors.folder.name)
    texts = context.texts(stage.limit)  # type: ignore[union-attr]
    parts = []
    shares: dict[Form, float] = {"query": 1 - document_share, "document": document_share}
    for form, share in shares.items():
        if share <= 0:
            continue
        encoded = texts.of_kinds(getattr(stage.forms, form))  # type: ignore[union-attr]
        wanted = np.flatnonzero(np.isin(encoded, texts.of_kinds(kinds)))
        if limit is not None and len(wanted) > limit:
            wanted = np.sort(np.random.default_rng((seed, 13)).choice(wanted, limit, replace=False))
        chosen: Ints = encoded[wanted]
        parts.append(
            Part(
                form,
                student.tower(form, [texts.texts[place] for place in chosen], training),
                FrozenTower(vectors.array(form), context.device),
                wanted,
                chosen,
                share,
            )
        )
    if document_share > 0 and stage.rows is not None:  # type: ignore[union-attr]
        parts.append(_row_documents(context, student, vectors, training, stage, document_share))
    return parts


def _row_documents(
    context: Context, student: StudentModel, vectors: TeacherVectors, training: Training, stage: Any, share: float
) -> Part:
    """The documents of the rows: whole answers and articles, which are rare among unlabelled texts."""
    documents = table_of(context.sources(stage.rows.sources), prompts=stage.rows.prompts).documents
    places = np.arange(len(documents))
    targets = FrozenTower(vectors.array("rows-document"), context.device)
    # Numbered apart from the texts: the few that are both only lose a mask.
    return Part("document", student.tower("document", documents, training), targets, places, places + (1 << 40), share)


def alignment_task(
    context: Context,
    stage: AlignStage,
    student: StudentModel,
    parts: Sequence[Part],
    vectors: TeacherVectors,
    *,
    batch: int,
    seed: int,
) -> AlignTask:
    """What an align stage optimises, for itself or inside a Stage II that keeps it in the mix."""
    parts, bank = _with_neighbours(context, stage, parts, vectors)
    losses = AlignLosses(
        stage.contrastive, stage.squared_l2, stage.distil, stage.leaf, stage.ranking, stage.temperature
    )
    return AlignTask(student.model, parts, batch, losses, seed=seed, rates=stage.learning_rates, bank=bank)


def _with_neighbours(
    context: Context, stage: AlignStage, parts: Sequence[Part], vectors: TeacherVectors
) -> tuple[Sequence[Part], FrozenTower | None]:
    """Where an align stage learns their order, tell each text in query form its nearest documents, and give those."""
    if not stage.ranking:
        return parts, None

    def near(part: Part) -> Any:
        return vectors.nearest(part.places, stage.neighbours, device=context.device)

    found = [replace(part, neighbours=near(part)) if part.form == "query" else part for part in parts]
    return found, FrozenTower(vectors.documents(), context.device)


def finish_student(
    context: Context,
    folder: Any,
    student: StudentModel,
    vectors: TeacherVectors | None,
    metrics: dict[str, float] | None = None,
) -> dict[str, float]:
    """Save a trained student, measure it over the teacher's documents (where there are any) and close the stage."""
    return in_first(lambda: _finish(context, folder, student, vectors, metrics)) or {}


def _finish(
    context: Context,
    folder: Any,
    student: StudentModel,
    vectors: TeacherVectors | None,
    metrics: dict[str, float] | None,
) -> dict[str, float]:
    student.model.eval()
    metrics = dict(metrics or {})
    if vectors is not None:
        metrics |= measure_student(context, vectors, student.encode)
    if not folder.model.exists():
        with folder.new_model() as temporary:
            student.save(temporary)
    folder.finish(metrics)
    return metrics
