"""The stages ``contrastive`` and ``finetune``: one encoder on both sides, over unlabelled pairs or labelled rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.key_groups import Hyde, Mine, Name, Prompts, Rows, hyde_problem, later
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Reference, TrainingStage
from suwen.training.stages.align import prompt_problems

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class PairStage(TrainingStage):
    """What the two symmetric contrastive stages share."""

    gives = frozenset({"student", "encoder", "adapter"})

    student: Name | None = Field(default=None, description="the student trained; null with `document`")
    document: Annotated[Name | None, Needs("adapter")] = Field(
        default=None, description="the document stage trained on; null with `student`"
    )
    start: Annotated[Name | None, Needs("student")] = Field(
        default=None, description="the stage the weights come from; null = the student's start"
    )
    temperature: float = Field(default=0.02, gt=0, description="of the contrastive loss")
    learn_temperature: bool = Field(default=False, description="train the temperature too")
    prompts: Prompts = Field(
        default_factory=Prompts, description="what stands before texts, as its student or document stage says it too"
    )
    rows: Rows = Field(default_factory=Rows, description="the rows it is trained on")
    dimensions: tuple[int, ...] = Field(default=(), description="nested widths trained together; () = the full width")
    backward_weight: float = Field(default=0.0, ge=0, description="weight of the document-to-query loss")
    mine: Mine | None = Field(default=None, description="mine hard negatives with the vectors of the start")
    distil: float = Field(default=0.0, ge=0, description="weight of the KL loss towards the scores of `teacher`")
    teacher: Annotated[Name | None, Needs("teacher")] = Field(
        default=None, description="the document or freeze stage whose scores are distilled"
    )

    rewrites: Annotated[Name | None, Needs("rewrites")] = later(
        None, "the stage that has written its rows with a language model, in place of files of rows"
    )
    hyde: Hyde | None = later(None, "ask with the rows' hypothetical documents beside their queries; null = alone")

    @model_validator(mode="after")
    def _one_side(self) -> PairStage:
        if (self.student is None) == (self.document is None):
            raise ValueError("trains either a `student` or a `document` stage: name exactly one of them")
        if (self.distil > 0) != (self.teacher is not None):
            raise ValueError("`distil` above 0 and a `teacher` go together: give both, or neither")
        hyde_problem(self.hyde, self.rewrites, self.rows)
        return self

    @override
    def references(self) -> list[Reference]:
        goes_on = self.document is not None
        return [
            one._replace(needs="adapter") if goes_on and one.key == "start" else one for one in super().references()
        ]

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        student = self.student is not None
        where = f"students.{self.student}" if student else f"stages.{recipe.decoder_stage.name}"
        served = recipe.students[str(self.student)].prompts if student else recipe.decoder_stage.prompts
        yield from prompt_problems(recipe, self.name, self.prompts, where, served)

    @property
    @override
    def vectors_sought(self) -> str | None:
        return None if self.mine is None or self.document is None else self.start or self.document

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.pair_rows import mined, mined_by, read_table, stored_teacher, train_pairs
        from suwen.training.tasks.pair_task import PairLosses
        from suwen.training.teacher_vectors import vectors_of
        from suwen.training.trained_document import TrainedDocument
        from suwen.training.trained_student import open_student

        table = read_table(context, self)
        if self.mine is not None and self.document is not None:
            vectors = vectors_of(context, str(self.vectors_sought))
            table = mined(context, self, table, vectors)
        losses = PairLosses(
            self.temperature,
            self.learn_temperature,
            dimensions=self.dimensions,
            backward_weight=self.backward_weight,
            distil=self.distil,
        )
        if self.document is not None:
            document = TrainedDocument.load(context, self.start or self.document)
            queries, documents = document.towers(table, self.training)
            model, trained = document.model, document.trained
        else:
            name = str(self.student)
            student = open_student(context, name, self.start, training=self.training, prompts=self.prompts)
            queries, documents = student.queries(table, self.training), student.documents(table, self.training)
            if self.mine is not None:
                student.model.eval()
                table = mined_by(context, self, table, queries, documents)
            model = trained = student.model
        teacher = None
        if self.teacher is not None:
            teacher = stored_teacher(context, vectors_of(context, self.teacher), table)
        model.train()
        more: Any = {"teacher": teacher, "beside": documents if self.hyde is not None else None}
        train_pairs(context, self, folder, table, queries, documents, [(trained, 1.0)], losses, **more)
        if self.document is not None:
            return document.leave(context, folder)
        return folder.leave(student.save, lambda: student.measure(context))


class ContrastiveStage(PairStage):
    """Unsupervised contrastive pre-training on title-text, question-answer and crop pairs."""

    unsupervised = True

    stage: Literal["contrastive"]


class FinetuneStage(PairStage):
    """Supervised contrastive fine-tuning of one encoder on both sides."""

    stage: Literal["finetune"]
