"""The stage ``align``: CARE's Stage I, for one student; and what every stage of an aligned student shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.key_groups import Blend, EarlyStop, Kind, Name, Prompts, Rows, later
from suwen.training.recipe.model_shapes import Shape
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, TrainingStage

if TYPE_CHECKING:
    from suwen.training.loop.best_kept import Watch
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext
    from suwen.training.teacher_vectors import TeacherVectors
    from suwen.training.trained_student import StudentModel

#: Copies of the scores of a batch against its near documents: of student and teacher, their softmax, and gradients.
_RANKED = 6


def prompt_problems(recipe: Recipe, stage: str, prompts: Prompts, where: str, served: Prompts) -> Iterator[str]:
    """A stage learns behind the prompt that serves; only the published code does not."""
    if prompts.query is not None and prompts.filled != served.filled and recipe.faithful != "code":
        yield (
            f"stages.{stage}.prompts: {prompts.query!r} is not what the encoder serves with, {served.query!r} of "
            f"{where}: say the same in both, or leave the stage's out"
        )


class AlignedStage(TrainingStage):
    """What the two stages share whose student lands in a space."""

    gives = frozenset({"student"})

    student: Name = Field(description="the student trained")
    start: Annotated[Name | None, Needs("student")] = Field(
        default=None, description="the stage its weights come from; null = the student's start"
    )
    vectors: Annotated[Name | None, Needs("vectors")] = Field(
        default=None, description="the vectors stage it is aligned to"
    )
    blend: Annotated[Blend, Needs("student")] = Field(
        default_factory=dict,
        description="stages of other students: share; it learns to be right together with them, as the export blends",
    )

    early_stop: EarlyStop | None = later(
        None, "keep the weights that are best for the questions of data.set_aside; null = the last ones"
    )
    prompts: Prompts = later(
        Prompts(), "what stands before its queries while it learns, where `faithful: code` parts it"
    )

    def watching(
        self, context: RunContext, student: StudentModel, vectors: TeacherVectors, halfway: float | None = None
    ) -> Watch | None:
        """What looks at the student on questions that were set aside, where the stage says so.

        Args:
            context: The run.
            student: The student as it is trained.
            vectors: The teacher's.
            halfway: The share of the student's own vectors with which documents come half-way; None where they stay.
        """
        from suwen.encoders.static import unit
        from suwen.training.loop.best_kept import Watch
        from suwen.training.set_aside import SetAside

        if self.early_stop is None:
            return None
        aside = SetAside.read(context, vectors)

        def score() -> float:
            theirs = student.encode(aside.documents, "document") if halfway is not None else None
            met = None if theirs is None else unit(aside.given + np.float32(halfway or 0) * theirs)
            found = aside.score(student.encode(aside.questions), met)
            student.model.train()
            return found

        return Watch(score, self.early_stop.every, self.early_stop.patience)

    @override
    def vectors_from(self, recipe: Recipe) -> str | None:
        if self.vectors is not None or self.start is None:
            return self.vectors
        before: str | None = recipe.stage(self.start).vectors_from(recipe)
        return before

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        yield from prompt_problems(
            recipe, self.name, self.prompts, f"students.{self.student}", recipe.students[self.student].prompts
        )
        if self.early_stop is not None:
            yield from self._early_problems(recipe)
        own = self.space_from(recipe)
        for other in self.blend:
            if (space := recipe.stage(other).space_from(recipe)) != own:
                yield (
                    f"stages.{self.name}.blend.{other}: it is aligned to '{space}', this stage to '{own}': another "
                    f"space; blend a student of the same space"
                )

    def _early_problems(self, recipe: Recipe) -> Iterator[str]:
        """There must be questions to look at, with the teacher's vectors of them and of their answers."""
        if not recipe.data.set_aside:
            yield f"stages.{self.name}.early_stop: no question is set aside; say `data.set_aside: 0.02`"
        vectors = self.vectors_from(recipe)
        if vectors is None or getattr(recipe.stage(vectors), "rows", None) is None:
            yield (
                f"stages.{self.name}.early_stop: the questions set aside have no vectors; say `rows: {{}}` in the "
                f"vectors stage '{vectors}', and name it as `vectors`"
            )

    def width_problems(self, recipe: Recipe, teacher: str) -> Iterator[str]:
        """A student gives vectors of its teacher's width."""
        student, wanted = recipe.students[self.student], recipe.dimension_of(teacher)
        own = recipe.dimension if student.projection or student.width is None else student.width
        if own != wanted and student.start != "layers-of-document":
            yield (
                f"stages.{self.name}: student '{self.student}' gives {own} dimensions, teacher '{teacher}' {wanted}; "
                f"say `students.{self.student}.projection: true` and `dimension: {wanted}`, or cut the teacher to {own}"
            )


class AlignStage(AlignedStage):
    """Stage I: a student learns to land where the fixed document encoder puts the same text."""

    starts_tables = True

    stage: Literal["align"]
    vectors: Annotated[Name, Needs("vectors")] = Field(description="the vectors stage it is aligned to")
    contrastive: float = Field(default=1.0, ge=0, description="weight of the contrastive loss")
    squared_l2: float = Field(default=1.0, ge=0, description="weight of the squared L2 distance")
    distil: float = Field(default=0.0, ge=0, description="weight of the KL loss towards the teacher's in-batch scores")
    leaf: float = Field(default=0.0, ge=0, description="weight of the LEAF loss (L2 distance alone)")
    ranking: float = Field(
        default=0.0, ge=0, description="weight of the KL loss towards the teacher's order of documents near the batch"
    )
    neighbours: int = Field(default=32, ge=2, description="how many nearest documents of each text, for `ranking`")
    temperature: float = Field(default=0.03, gt=0, description="of the contrastive and KL losses")
    target: Literal["prompted", "bare"] = later(
        "prompted",
        "the teacher's vector that a text in query form must land on: of it behind the query prompt, or bare",
    )
    supervised: bool = Field(default=False, description="align on labelled rows in place of unlabelled texts")
    rows: Rows = Field(default_factory=Rows, description="the rows, when supervised")
    kinds: tuple[Kind, ...] | None = Field(default=None, description="kinds of texts used; null = all")
    limit: int | None = Field(default=None, ge=1, description="number of texts; null = all")
    document_share: float = Field(default=0.0, ge=0, le=1, description="share of texts aligned in document form")
    learning_rates: dict[str, float] = Field(
        default_factory=dict, description="factors of the learning rate by part: embeddings, encoder, projection"
    )

    @model_validator(mode="after")
    def _some_loss(self) -> AlignStage:
        if not self.contrastive + self.squared_l2 + self.distil + self.leaf + self.ranking:
            raise ValueError(
                "no loss is left: give one of contrastive, squared_l2, distil, leaf and ranking a weight above 0"
            )
        if self.ranking and self.document_share == 1:
            raise ValueError("`ranking` is of texts in query form, and there are none: set `document_share` below 1")
        if self.ranking and self.supervised:
            raise ValueError("`ranking` is for unlabelled texts: say `supervised: false`, or a joint stage's `distil`")
        self.rows.require_whole()
        return self

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.alignment import alignment_task, row_parts, start_table, text_parts
        from suwen.training.teacher_vectors import TeacherVectors
        from suwen.training.trained_student import open_student

        vectors = TeacherVectors(context.folder_of(self.vectors))
        student = open_student(
            context, self.student, self.start, self.blend, training=self.training, prompts=self.prompts
        )
        seed = context.seed_of(self)
        if self.supervised:
            parts = row_parts(context, student, vectors, self)
        else:
            parts = text_parts(context, student, vectors, self, training=self.training, seed=seed)
        if self.start is None and student.shape.init == "vectors":
            start_table(student, parts[0], vectors)
        task = alignment_task(context, self, student, parts, vectors, batch=self.training.batch, seed=seed)
        student.model.train()
        watch = self.watching(context, student, vectors)
        context.optimise(task, folder, self.training, per_epoch=task.per_epoch, watch=watch)
        return folder.leave(student.save, lambda: vectors.measure(context, student.encode))

    @property
    @override
    def rows_read(self) -> Rows | None:
        return self.rows if self.supervised else None

    @override
    def space_from(self, recipe: Recipe) -> str | None:
        encoder: str | None = recipe.stage(self.vectors).encoder_from
        return encoder

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        yield from self.width_problems(recipe, str(self.space_from(recipe)))
        yield from super().problems(recipe)

    @override
    def more_memory(self, shape: Shape) -> int:
        return self.training.batch**2 * self.neighbours * 4 * _RANKED if self.ranking else 0
