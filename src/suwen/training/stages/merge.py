"""The stage ``merge``: the mean of one student's weights in several stages that went apart from one start.

Each has errors of its own, which the mean has less of (Wortsman et al., 2022, "Model soups"); a query costs the same.
With a share of the start itself, less of what that could is forgotten ("Robust fine-tuning", by the same in that year).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.key_groups import Name, later
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Stage

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class MergeStage(Stage):
    """Takes the mean of a student's weights."""

    gives = frozenset({"student"})
    starts_tables = True

    stage: Literal["merge"]
    student: Name = Field(description="the student")
    of: Annotated[dict[Name, float], Needs("student")] = Field(
        min_length=1, description="stages of that student, each with its share; the shares make 1 with `base`"
    )
    base: float = later(0.0, "the share of the student's own `base`, as it began", ge=0, lt=1)

    @model_validator(mode="after")
    def _shares_make_one(self) -> MergeStage:
        if min(self.of.values()) <= 0 or abs(sum(self.of.values()) + self.base - 1) > 1e-6:
            beside = f" and {self.base} of the base" if self.base else ""
            raise ValueError(f"shares are above 0 and make 1, not {self.of}{beside}")
        return self

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.teacher_vectors import vectors_of_student
        from suwen.training.trained_student import open_student

        first, *others = self.of
        student = open_student(context, self.student, first)
        state = {name: self.of[first] * tensor for name, tensor in student.model.state_dict().items()}
        parts: list[tuple[str | None, float]] = [(stage, self.of[stage]) for stage in others]
        if self.base:
            parts.append((None, self.base))
        for stage, share in parts:
            for name, tensor in context.student(self.student, stage).state_dict().items():
                state[name] = state[name] + share * tensor
        kinds = {name: tensor.dtype for name, tensor in student.model.state_dict().items()}
        student.model.load_state_dict({name: tensor.to(kinds[name]) for name, tensor in state.items()})
        vectors = vectors_of_student(context, self.name)
        return folder.leave(student.save, lambda: vectors.measure(context, student.encode))

    @override
    def vectors_from(self, recipe: Recipe) -> str | None:
        found: str | None = recipe.stage(next(iter(self.of))).vectors_from(recipe)
        return found

    @override
    def space_from(self, recipe: Recipe) -> str | None:
        found: str | None = recipe.stage(next(iter(self.of))).space_from(recipe)
        return found

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        return {"of": list(self.of.values())}

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        if self.base and recipe.students[self.student].base is None:
            where = f"students.{self.student}.base"
            yield f"stages.{self.name}.base: '{self.student}' begins with no model: name one in {where}"
        own = self.space_from(recipe)
        for name in self.of:
            stage = recipe.stage(name)
            if stage.student_trained != self.student:
                yield f"stages.{self.name}.of.{name}: it is of '{stage.student_trained}', not of '{self.student}'"
            elif stage.space_from(recipe) != own:
                yield f"stages.{self.name}.of.{name}: it is aligned to another space than the first; take it out"
