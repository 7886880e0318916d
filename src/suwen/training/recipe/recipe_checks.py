"""What must hold between the parts of any recipe: names, students, references, order. The rest is each stage's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from suwen.training.recipe.recipe_errors import RecipeError, nearest
from suwen.training.recipe.recipe_model import Recipe, Student
from suwen.training.recipe.stage_base import STAGES, Stage


def check(recipe: Recipe) -> None:
    """Refuse a recipe whose stages do not fit together.

    Raises:
        RecipeError: with a line for everything that is wrong.
    """
    problems = [*_names(recipe), *_students(recipe), *_references(recipe), *_layers(recipe)]
    # The rest follows references: it means something only when they lead somewhere.
    problems = problems or [line for stage in recipe.stages for line in stage.problems(recipe)]
    if problems:
        raise RecipeError(f"the recipe '{recipe.name}' cannot be run:\n" + "\n".join(problems))


def _names(recipe: Recipe) -> Iterator[str]:
    for name, count in Counter(stage.name for stage in recipe.stages).items():
        if count > 1:
            yield f"stages.{name}: two stages have this name; rename one"


def _students(recipe: Recipe) -> Iterator[str]:
    for name, student in recipe.students.items():
        if student.source is not None:
            yield from _source(recipe, name, student, student.source)
        taken = student.start == "shrunk-document" and any(getattr(one, "pair", None) for one in recipe.giving("space"))
        if student.start in ("layers-of-document", "shrunk-document") and recipe.decoder_stage is None and not taken:
            yield f"students.{name}.start: there is no document stage to take layers of; add one, or say scratch"
        if student.start in ("scratch", "shrunk-document") and student.base is None and recipe.tokenizer is None:
            yield f"students.{name}: from scratch needs a vocabulary; add `tokenizer: {{vocabulary: 16000}}`"
    for stage in recipe.stages:
        wanted = stage.student_trained
        if wanted in recipe.students:
            yield from _token_start(recipe.students[wanted], stage)
        elif wanted is not None:
            yield f"stages.{stage.name}.student: unknown student '{wanted}'{nearest(wanted, recipe.students)}"


def _token_start(student: Student, stage: Stage) -> Iterator[str]:
    """A table starts from the teacher's vectors where there are some: in an align stage, and nowhere else."""
    if student.init == "vectors" and not stage.starts_tables and getattr(stage, "start", None) is None:
        yield (
            f"stages.{stage.name}: a student of `init: vectors` starts in an align stage; put one before and name it "
            f"as `start`, or say `init: random`"
        )


def _source(recipe: Recipe, name: str, student: Student, source: str) -> Iterator[str]:
    """A student that starts from another one's weights: they must fit, and have been trained before."""
    where = f"students.{name}." + ("start" if student.table_of is None else "init")
    if source not in recipe.students:
        yield f"{where}: unknown student '{source}'{nearest(source, recipe.students)}"
        return
    other = recipe.students[source]
    if student.table_of is not None and other.kind != "static":
        yield f"{where}: '{source}' is no static student; name one whose table can be taken, or say random"
    if student.table_of is None and student.layers > other.layers:
        yield f"students.{name}.layers: {student.layers} is more than '{source}' has; take at most that many"
    trained = [stage.student_trained for stage in recipe.stages]
    if name in trained and source not in trained[: trained.index(name)]:
        first = recipe.stages[trained.index(name)].name
        yield f"{where}: no stage before '{first}' trains '{source}'; move one there"


def _layers(recipe: Recipe) -> Iterator[str]:
    for stage in recipe.stages:
        student, training = recipe.students.get(stage.student_trained or ""), stage.how_trained
        if student and student.kind == "static" and training and training.gradient_checkpointing:
            yield (
                f"stages.{stage.name}.training.gradient_checkpointing: a static student has no layers to recompute; "
                "take it out"
            )


def _references(recipe: Recipe) -> Iterator[str]:
    place = {stage.name: number for number, stage in enumerate(recipe.stages)}
    for number, stage in enumerate(recipe.stages):
        for key, name, needs in stage.references():
            where = f"stages.{stage.name}.{key}"
            if name not in place:
                yield f"{where}: unknown stage '{name}'{nearest(name, place)}"
            elif place[name] >= number:
                yield f"{where}: '{name}' comes later than '{stage.name}' itself; move it before"
            elif needs not in (other := recipe.stages[place[name]]).gives:
                kinds = ", ".join(sorted(kind for kind, group in STAGES.items() if needs in group.gives))
                yield f"{where}: '{name}' is a stage of kind {other.stage}; name one of kind {kinds}"
