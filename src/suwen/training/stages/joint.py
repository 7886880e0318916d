"""The stage ``joint``: CARE's Stage II, of both encoders, or of the query encoder alone over a frozen space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.data_files import mean_tokens
from suwen.training.recipe.key_groups import Hyde, Mine, Name, Rows, hyde_problem, later
from suwen.training.recipe.model_shapes import encoder_shape
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs
from suwen.training.recipe.stage_cost import Reading
from suwen.training.stages.align import AlignedStage, AlignStage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext
    from suwen.training.tasks.align_task import AlignTask
    from suwen.training.tasks.row_tables import PairTable
    from suwen.training.tasks.towers import Tower
    from suwen.training.teacher_vectors import TeacherVectors
    from suwen.training.trained_document import TrainedDocument
    from suwen.training.trained_student import StudentModel


class JointStage(AlignedStage):
    """Stage II: retrieval fine-tuning of both encoders, or of the query encoder alone over a frozen space."""

    gives = frozenset({"student", "encoder", "adapter"})

    stage: Literal["joint"]
    document: Annotated[Name, Needs("encoder")] = Field(
        description="the document encoder: a document stage, or a freeze stage when not trained"
    )
    train_document: bool = Field(default=True, description="false: only the query encoder moves")
    rows: Rows = Field(default_factory=Rows, description="the rows it is trained on")
    negatives: int = Field(default=7, ge=0, description="hard negatives per row")
    mine: Mine | None = Field(default_factory=Mine, description="mine negatives first; null = labelled ones only")
    temperature: float = Field(default=0.02, gt=0, description="of the contrastive loss")
    keep_alignment: float = Field(default=0.0, ge=0, description="weight of the Stage-I loss kept in the mix")
    vectors: Annotated[Name | None, Needs("vectors")] = Field(
        default=None, description="the vectors stage it mines and aligns with; null = of `document`"
    )
    distil: float = Field(default=0.0, ge=0, description="weight of the KL loss towards the document encoder's scores")
    document_learning_rate: float | None = Field(
        default=None, gt=0, description="of the document side; null = the same"
    )
    projection: bool = Field(default=False, description="project the student up to the document encoder's full width")

    halfway: float | None = later(
        None,
        "documents come half-way while it learns: this share of the student's own vector, which learns too, is added "
        "to theirs, as the export's `halfway` does; null = they stay",
        gt=0,
        le=1,
    )
    rewrites: Annotated[Name | None, Needs("rewrites")] = later(
        None, "the stage that has written its rows with a language model, in place of files of rows"
    )
    hyde: Hyde | None = later(None, "ask with the rows' hypothetical documents beside their queries; null = alone")

    @model_validator(mode="after")
    def _consistent(self) -> JointStage:
        if self.rows.negatives:
            raise ValueError("`rows.negatives` has no effect here: say `negatives` on the stage itself")
        if self.keep_alignment > 0 and self.vectors is None:
            raise ValueError("`keep_alignment` above 0 needs `vectors`, the vectors stage it aligns to: name it")
        if self.halfway is not None and self.train_document:
            raise ValueError("with `halfway` documents keep their own vectors: say `train_document: false`")
        if self.halfway is not None and self.blend:
            raise ValueError("`halfway` is to the student alone: take it or `blend` out")
        hyde_problem(self.hyde, self.rewrites, self.rows)
        return self

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.pair_rows import mined, read_table, stored_teacher, train_pairs
        from suwen.training.students.student_models import with_projection
        from suwen.training.tasks.pair_task import PairLosses
        from suwen.training.teacher_vectors import vectors_of
        from suwen.training.trained_document import TrainedDocument
        from suwen.training.trained_student import StudentModel, open_student

        table = read_table(context, self)
        vectors = vectors_of(context, self.vectors or self.document)
        if self.mine is not None:
            table = mined(context, self, table, vectors)
        student = open_student(
            context, self.student, self.start, self.blend, training=self.training, prompts=self.prompts
        )
        if self.projection:
            model = with_projection(student.model, context.recipe.dimension_of(self.document)).to(context.device)
            student = StudentModel(
                model,
                student.shape,
                prompts=student.served,
                learning=student.prompts,
                cache=student.cache,
                blend=student.blend,
            )
        modules = [(student.model, 1.0)]
        document = TrainedDocument.load(context, self.document) if self.train_document else None
        if document is not None:
            documents: Tower = document.towers(table, self.training, cut=True)[1]
            rate = self.document_learning_rate or self.training.learning_rate
            modules.append((document.trained, rate / self.training.learning_rate))
            document.model.train()
        else:
            documents = self._stored(context, table, vectors, student)
        losses = PairLosses(self.temperature, distil=self.distil, keep_alignment=self.keep_alignment)
        student.model.train()
        beside = (
            documents if self.hyde is None or self.hyde.by == "document" else student.documents(table, self.training)
        )
        train_pairs(
            context,
            self,
            folder,
            table,
            student.queries(table, self.training),
            documents,
            modules,
            losses,
            negatives=self.negatives,
            teacher=stored_teacher(context, vectors, table) if self.distil else None,
            alignment=self.kept_alignment(context, student) if self.keep_alignment else None,
            beside=beside if self.hyde is not None else None,
            watch=self.watching(context, student, vectors, self.halfway),
        )
        if document is None:
            return folder.leave(student.save, lambda: vectors.measure(context, student.encode))
        return self._leave_both(context, folder, student, document)

    def _stored(self, context: RunContext, table: PairTable, vectors: TeacherVectors, student: StudentModel) -> Tower:
        """The documents of a frozen space, come half-way to the student where the stage says so."""
        from suwen.training.tasks.row_tables import DataError

        stored = vectors.candidates(vectors.of_documents(table), context.device)
        if self.halfway is None:
            return stored
        if vectors.by_dot:
            raise DataError(f"stages.{self.name}.halfway: vectors of this space have no common length: take it out")
        return student.documents(table, self.training).beside(stored, self.halfway)

    def _leave_both(
        self, context: RunContext, folder: RunFolder, student: StudentModel, document: TrainedDocument
    ) -> Mapping[str, Any]:
        """Both encoders have moved, and the space too: what was aligned before belongs to no frozen space."""

        def save(out: Path) -> None:
            student.save(out)
            document.save(out / "document")

        return folder.leave(save, lambda: document.measure(context, student.encode, folder.model / "document"))

    def kept_alignment(self, context: RunContext, student: StudentModel) -> AlignTask:
        """The Stage-I task of the stage this one starts from, kept in the mix so that the space is not forgotten."""
        from suwen.training.alignment import alignment_task, text_parts
        from suwen.training.teacher_vectors import TeacherVectors

        before = context.recipe.stage(self.start) if self.start is not None else None
        plain = AlignStage(
            stage="align", name=self.name, student=self.student, vectors=str(self.vectors), training=self.training
        )
        shape = before if isinstance(before, AlignStage) else plain
        if shape.supervised:  # its texts, and the losses of unlabelled ones
            kept = {key: getattr(shape, key) for key in ("limit", "kinds", "document_share", "temperature")}
            shape = plain.model_copy(update=kept)
        vectors, seed = TeacherVectors(context.folder_of(str(self.vectors))), context.seed_of(self)
        parts = text_parts(context, student, vectors, shape, training=self.training, seed=seed)
        return alignment_task(context, shape, student, parts, vectors, batch=self.training.batch, seed=seed + 1)

    @property
    @override
    def vectors_sought(self) -> str | None:
        return self.document if self.vectors is None else None

    @property
    @override
    def reads_texts(self) -> bool:
        return self.keep_alignment > 0

    @override
    def space_from(self, recipe: Recipe) -> str:
        return self.name if self.train_document else self.document

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        if not self.projection:
            yield from self.width_problems(recipe, self.document)
        document = recipe.stage(self.document)
        frozen = "space" in document.gives
        if self.early_stop is not None and self.train_document:
            yield (
                f"stages.{self.name}.early_stop: it looks at stored vectors of documents, which `train_document` "
                f"leaves behind; say `train_document: false`, or take it out"
            )
        if self.train_document and frozen:
            yield (
                f"stages.{self.name}.train_document: '{self.document}' is frozen, training it makes another space; say "
                "`train_document: false`, or train the stage before it, then freeze and align again"
            )
        aligned = recipe.stage(self.start).space_from(recipe) if self.start else None
        # Trained together with the very document encoder that was then frozen: it goes on in the frozen space.
        together = frozen and aligned == document.encoder_from == self.start
        if aligned not in (None, self.document) and not self.train_document and not together:
            yield (
                f"stages.{self.name}.document: '{self.start}' is aligned to '{aligned}', not to '{self.document}': "
                f"another space; say `document: {aligned}`, or align to the vectors of '{self.document}'"
            )
        yield from super().problems(recipe)

    @override
    def readings(self, recipe: Recipe) -> list[Reading] | None:
        student, document = encoder_shape(recipe, self.student), encoder_shape(recipe, None)
        if student is None or (self.train_document and document is None):
            return None
        most, sides = recipe.students[self.student].max_length, ["query", "text"][: 1 + (self.keep_alignment > 0)]
        readings = [Reading(student, mean_tokens(recipe, self, side, most)) for side in sides]
        if self.train_document and document is not None:
            tokens = mean_tokens(recipe, self, "document", recipe.decoder_stage.max_length)
            readings.append(Reading(document, (1 + self.negatives) * tokens, 1 + self.negatives, True))
        return readings
