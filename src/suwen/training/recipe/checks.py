"""What must hold between the stages of a recipe: references, order, dimensions, spaces. Single keys are in settings."""

from __future__ import annotations

from collections.abc import Iterator

from suwen.training.recipe.complaints import RecipeError, nearest
from suwen.training.recipe.options import Training
from suwen.training.recipe.settings import (
    AlignStage,
    AnyStage,
    ContrastiveStage,
    DocumentStage,
    ExportStage,
    FinetuneStage,
    FreezeStage,
    JointStage,
    PairStage,
    Recipe,
    RetromaeStage,
    Student,
    VectorsStage,
)

#: What may stand behind each kind of reference.
_ENCODERS = (DocumentStage, JointStage, FreezeStage, ContrastiveStage, FinetuneStage)
_STUDENTS = (RetromaeStage, ContrastiveStage, FinetuneStage, AlignStage, JointStage)
_TRAINED = (DocumentStage, JointStage, ContrastiveStage, FinetuneStage)
_TEACHERS = (DocumentStage, FreezeStage)
_Reference = tuple[str, str, tuple[type, ...]]


def check(recipe: Recipe) -> None:
    """Refuse a recipe whose stages do not fit together.

    Raises:
        RecipeError: with a line for everything that is wrong.
    """
    problems = [*_names(recipe), *_students(recipe), *_references(recipe), *_layers(recipe)]
    # The rest follows references: it means something only when they lead somewhere.
    problems = problems or [*_dimensions(recipe), *_spaces(recipe)]
    if problems:
        raise RecipeError(f"the recipe '{recipe.name}' cannot be run:\n" + "\n".join(problems))


def references(stage: AnyStage) -> list[_Reference]:
    """Each reference of a stage: the key, the stage it names, the kinds that may stand there."""
    found: list[tuple[str, str | None, tuple[type, ...]]] = []
    if isinstance(stage, FreezeStage):
        found = [("start", stage.start, _TRAINED)]
    elif isinstance(stage, VectorsStage):
        found = [("start", stage.start, _ENCODERS)]
    elif isinstance(stage, PairStage):
        begins = _STUDENTS if stage.student else _TRAINED
        found = [("start", stage.start, begins), ("document", stage.document, _TRAINED)]
        found.append(("teacher", stage.teacher, _TEACHERS))
    elif isinstance(stage, AlignStage):
        found = [("start", stage.start, _STUDENTS), ("vectors", stage.vectors, (VectorsStage,))]
        found += [(f"blend.{name}", name, _STUDENTS) for name in stage.blend]
    elif isinstance(stage, JointStage):
        found = [("start", stage.start, _STUDENTS), ("document", stage.document, _ENCODERS)]
        found.append(("vectors", stage.vectors, (VectorsStage,)))
        found += [(f"blend.{name}", name, _STUDENTS) for name in stage.blend]
    elif isinstance(stage, ExportStage):
        found = [("start", stage.start, (FreezeStage,))]
        found += [(f"tiers.{tier}", name, _STUDENTS) for tier, name in stage.tiers.items()]
    return [(key, name, kinds) for key, name, kinds in found if name is not None]


def space_of(recipe: Recipe, name: str) -> str | None:
    """The stage that fixes the space a student of that stage is aligned to; None when it is aligned to none."""
    stage = recipe.stage(name)
    if isinstance(stage, AlignStage):
        vectors = recipe.stage(stage.vectors)
        return vectors.start if isinstance(vectors, VectorsStage) else None
    if isinstance(stage, JointStage):
        return stage.name if stage.train_document else stage.document
    return None


def _names(recipe: Recipe) -> Iterator[str]:
    seen: set[str] = set()
    for stage in recipe.stages:
        if stage.name in seen:
            yield f"stages.{stage.name}: two stages have this name; rename one"
        seen.add(stage.name)


def _students(recipe: Recipe) -> Iterator[str]:
    for name, student in recipe.students.items():
        if student.source is not None:
            yield from _source(recipe, name, student, student.source)
        layers = student.start == "layers-of-document"
        if layers and not any(isinstance(stage, DocumentStage) for stage in recipe.stages):
            yield f"students.{name}.start: there is no document stage to take layers of; add one, or say scratch"
        if student.start == "scratch" and student.base is None and recipe.tokenizer is None:
            yield f"students.{name}: from scratch needs a vocabulary; add `tokenizer: {{vocabulary: 16000}}`"
    for stage in recipe.stages:
        yield from _token_start(recipe, stage)
        wanted = getattr(stage, "student", None)
        if wanted is not None and wanted not in recipe.students:
            yield f"stages.{stage.name}.student: unknown student '{wanted}'{nearest(wanted, recipe.students)}"


def _token_start(recipe: Recipe, stage: AnyStage) -> Iterator[str]:
    """A table starts from the teacher's vectors where there are some: in an align stage, and nowhere else."""
    student = recipe.students.get(getattr(stage, "student", None) or "")
    if student is None or student.init != "vectors" or isinstance(stage, AlignStage):
        return
    if getattr(stage, "start", None) is None:
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
    learnt = [n for n, stage in enumerate(recipe.stages) if getattr(stage, "student", None) == source]
    wanted = [n for n, stage in enumerate(recipe.stages) if getattr(stage, "student", None) == name]
    if wanted and (not learnt or learnt[0] >= wanted[0]):
        first = recipe.stages[wanted[0]].name
        yield f"{where}: no stage before '{first}' trains '{source}'; move one there"


def _layers(recipe: Recipe) -> Iterator[str]:
    for stage in recipe.stages:
        training: Training | None = getattr(stage, "training", None)
        student = recipe.students.get(getattr(stage, "student", None) or "")
        if (
            training is not None
            and training.gradient_checkpointing
            and student is not None
            and student.kind == "static"
        ):
            yield (
                f"stages.{stage.name}.training.gradient_checkpointing: a static student has no layers to recompute; "
                "take it out"
            )


def _references(recipe: Recipe) -> Iterator[str]:
    place = {stage.name: number for number, stage in enumerate(recipe.stages)}
    for number, stage in enumerate(recipe.stages):
        for key, name, kinds in references(stage):
            where = f"stages.{stage.name}.{key}"
            if name not in place:
                yield f"{where}: unknown stage '{name}'{nearest(name, place)}"
            elif place[name] >= number:
                yield f"{where}: '{name}' comes later than '{stage.name}' itself; move it before"
            elif not isinstance(recipe.stage(name), kinds):
                allowed = ", ".join(sorted(kind.__name__.removesuffix("Stage").lower() for kind in kinds))
                yield f"{where}: '{name}' is a stage of kind {recipe.stage(name).stage}; name one of kind {allowed}"


def _dimensions(recipe: Recipe) -> Iterator[str]:
    for stage in recipe.stages:
        yield from _nested(recipe, stage)
        if isinstance(stage, AlignStage):
            vectors = recipe.stage(stage.vectors)
            assert isinstance(vectors, VectorsStage)
            yield from _same_width(recipe, stage, vectors.start, projected=False)
        if isinstance(stage, JointStage):
            yield from _same_width(recipe, stage, stage.document, projected=stage.projection)


def _nested(recipe: Recipe, stage: AnyStage) -> Iterator[str]:
    if isinstance(stage, DocumentStage) and stage.dimensions:
        cut = recipe.dimension_of(stage.name)
        if cut not in stage.dimensions:
            yield (
                f"stages.{stage.name}.dimensions: vectors are cut to {cut}, which is not among the trained widths "
                f"{list(stage.dimensions)}; add it"
            )
    if isinstance(stage, FreezeStage) and stage.dimension and stage.dimension > recipe.dimension_of(stage.start):
        yield f"stages.{stage.name}.dimension: wider than '{stage.start}' gives; take at most that width"


def _same_width(recipe: Recipe, stage: AlignStage | JointStage, teacher: str, *, projected: bool) -> Iterator[str]:
    student, wanted = recipe.students[stage.student], recipe.dimension_of(teacher)
    if projected or student.start == "layers-of-document":
        return
    own = recipe.dimension if student.projection or student.width is None else student.width
    if own != wanted:
        yield (
            f"stages.{stage.name}: student '{stage.student}' gives {own} dimensions, teacher '{teacher}' {wanted}; "
            f"say `students.{stage.student}.projection: true` and `dimension: {wanted}`, or cut the teacher to {own}"
        )


def _spaces(recipe: Recipe) -> Iterator[str]:
    for stage in recipe.stages:
        if isinstance(stage, JointStage):
            yield from _joint_space(recipe, stage)
        if isinstance(stage, AlignStage | JointStage):
            yield from _blend_space(recipe, stage)
        if isinstance(stage, ExportStage):
            for tier, name in stage.tiers.items():
                yield from _tier_space(recipe, stage, tier, name)
                yield from _tier_blend(recipe, stage, tier, name)


def _blend_space(recipe: Recipe, stage: AlignStage | JointStage) -> Iterator[str]:
    own = space_of(recipe, stage.name)
    for other in stage.blend:
        if (space := space_of(recipe, other)) != own:
            yield (
                f"stages.{stage.name}.blend.{other}: it is aligned to '{space}', this stage to '{own}': another space; "
                f"blend a student of the same space"
            )


def _tier_blend(recipe: Recipe, export: ExportStage, tier: str, name: str) -> Iterator[str]:
    """A student that learnt to be right together with others is wrong alone."""
    learnt: dict[str, float] = getattr(recipe.stage(name), "blend", {})
    given = {export.tiers[other]: share for other, share in export.blends.get(tier, {}).items()}
    if learnt and learnt != given:
        yield (
            f"stages.{export.name}.blends.{tier}: '{name}' was trained blended with {learnt}, the export blends "
            f"{given or 'nothing'}; say the same shares, with the tiers made of those stages"
        )


def _joint_space(recipe: Recipe, stage: JointStage) -> Iterator[str]:
    if stage.train_document and isinstance(recipe.stage(stage.document), FreezeStage):
        yield (
            f"stages.{stage.name}.train_document: '{stage.document}' is frozen, training it makes another space; say "
            "`train_document: false`, or train the stage before it, then freeze and align again"
        )
    aligned = space_of(recipe, stage.start) if stage.start else None
    document = recipe.stage(stage.document)
    if isinstance(document, FreezeStage) and aligned == document.start == stage.start:
        # Trained together with the very document encoder that was then frozen: it goes on in the frozen space.
        return
    if aligned is not None and aligned != stage.document and not stage.train_document:
        yield (
            f"stages.{stage.name}.document: '{stage.start}' is aligned to '{aligned}', not to '{stage.document}': "
            f"another space; say `document: {aligned}`, or align to the vectors of '{stage.document}'"
        )


def _tier_space(recipe: Recipe, export: ExportStage, tier: str, name: str) -> Iterator[str]:
    space = space_of(recipe, name)
    if space == export.start:
        return
    where = f"stages.{export.name}.tiers.{tier}"
    if space is None:
        yield f"{where}: '{name}' is aligned to no space; add an align stage to the vectors of '{export.start}'"
    else:
        yield (
            f"{where}: '{name}' is aligned to '{space}', the pair is of '{export.start}': another space; "
            f"align it to vectors that start from '{export.start}'"
        )
