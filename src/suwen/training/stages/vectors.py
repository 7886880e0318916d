"""The stage ``vectors``: the teacher's vectors of every text, computed once for all students, epochs and variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.data_files import COST, count_examples, count_kinds, mean_tokens
from suwen.training.recipe.key_groups import Forms, Name, Rows, later
from suwen.training.recipe.model_shapes import document_shape
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Stage
from suwen.training.recipe.stage_cost import Machine, StageEstimate
from suwen.training.recipe.stage_identity import vocabulary_identity

if TYPE_CHECKING:
    from suwen.encoders.prompts import Form, Prompts
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext
    from suwen.training.teacher_vectors import Job

#: Fewer texts than this are encoded before their encoder would be compiled.
_COMPILING_PAYS = 50_000


class VectorsStage(Stage):
    """Computes the teacher's vectors of the unlabelled texts once, for every student and epoch."""

    gives = frozenset({"vectors"})

    stage: Literal["vectors"]
    start: Annotated[Name, Needs("encoder")] = Field(
        description="whose vectors: a freeze stage (or a document stage, before joint training)"
    )
    forms: Forms = Field(default_factory=Forms, description="the forms of each kind of text")
    rows: Rows | None = Field(default=None, description="rows whose texts get vectors too, for Stage II; null = none")
    limit: int | None = Field(default=None, ge=1, description="number of texts; null = all")
    rewrites: Annotated[Name | None, Needs("rewrites")] = later(
        None, "the stage that has written the rows whose texts get vectors, in place of files of rows"
    )
    hypothetical: Annotated[Name | None, Needs("rewrites")] = later(
        None, "the stage that wrote documents for texts: in query form these get the vector that is fused with them"
    )
    weight: float = later(1.0, "of a text among its hypothetical documents", gt=0)
    token_budget: int = Field(default=65_536, ge=16, description="tokens per forward pass")
    compile: bool = Field(default=True, description="compile a frozen Qwen on a GPU, where there are many texts")

    @model_validator(mode="after")
    def _every_row(self) -> VectorsStage:
        if self.rows is not None:
            self.rows.require_whole()
        if self.rewrites is not None and self.rows is None:
            raise ValueError("`rewrites` are rows: say `rows: {}` beside them")
        return self

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.fused_vectors import PLAIN, fuse_texts
        from suwen.training.loop.processes import in_first
        from suwen.training.teacher_vectors import encode_texts, finish_vectors, require_room
        from suwen.training.trained_document import document_encoder

        encoder = document_encoder(context, self.start)
        jobs = self._jobs(context, encoder.space.prompts)
        count = sum(len(job.texts) for job in jobs.values())
        require_room(folder.path, count, encoder.dimension)
        # One that may still move is left alone: what is joined is only for encoding.
        if self.compile and count >= _COMPILING_PAYS and "space" in context.recipe.stage(self.start).gives:
            encoder.compile(self.token_budget)
        for name, job in jobs.items():
            plain = self.hypothetical is not None and name == "query"
            encode_texts(context, encoder, folder.path / (PLAIN if plain else name), job, self)
        if self.hypothetical is not None:
            fuse_texts(context, encoder, folder.path, jobs["query"], self)
        scores = in_first(lambda: finish_vectors(context, encoder, folder.path, self.token_budget))
        # Whoever needs it again loads it: students are trained next, and want the room.
        context.loaded.pop(f"encoder:{self.start}", None)
        return {f"texts.{name}": float(len(job.texts)) for name, job in jobs.items()} | (scores or {})

    def _jobs(self, context: RunContext, prompts: Prompts) -> dict[str, Job]:
        """What is encoded, by folder of vectors."""
        from suwen.training.pair_rows import read_table
        from suwen.training.students.student_tokenizer import token_texts
        from suwen.training.teacher_vectors import TOKENS, Job, row_jobs

        texts = context.texts(self.limit)
        forms: dict[Form, tuple[str, ...] | None] = {"query": self.forms.query, "document": self.forms.document}
        jobs: dict[str, Job] = {
            form: Job(form, [texts.texts[place] for place in texts.of_kinds(kinds)])
            for form, kinds in forms.items()
            if kinds is None or kinds
        }
        if self.rows is not None:
            table = read_table(context, self)
            jobs |= row_jobs(table, prompts)
        if context.recipe.wants_tokens:
            jobs[TOKENS] = Job("query", token_texts(context.tokenizer()))
        return jobs

    @property
    @override
    def reads_texts(self) -> bool:
        return True

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        return vocabulary_identity(recipe) if recipe.wants_tokens else {}

    @override
    def cost(self, recipe: Recipe, machine: Machine) -> StageEstimate:
        # Vectors on disk: texts x forms x dimension x 2 bytes, twice: the shards, and the one array they become.
        shape, kinds = document_shape(recipe), count_kinds(recipe)
        if kinds is None:
            return StageEstimate(self.name, self.stage, shape.parameters if shape else None, 0, unknown=True)
        whole = max(1, kinds.total())
        share, length = min(whole, self.limit or whole) / whole, getattr(recipe.decoder_stage, "max_length", 512)
        # A row brings a query and a document; negatives are mostly documents of other rows.
        texts = 2 * (count_examples(recipe, self) or 0)
        tokens = texts / 2 * sum(mean_tokens(recipe, self, side, length) for side in ("query", "document"))
        for form in (self.forms.query, self.forms.document):
            count = round(share * sum(kinds[kind] for kind in (kinds if form is None else form)))
            texts, tokens = texts + count, tokens + count * mean_tokens(recipe, self, "text", length, form)
        disk = 2 * texts * recipe.dimension_of(self.start) * 2
        if shape is None:
            return StageEstimate(self.name, self.stage, disk=disk, unknown=True)
        seconds = machine.start_seconds + machine.seconds(2 * shape.body * tokens, shape.width)
        memory = shape.parameters * 2 + self.token_budget * shape.width * 16
        # The texts themselves, as Python's strings: two bytes a Chinese character.
        host = int(machine.gpus * (machine.host + shape.parameters * 2 + whole * COST["bytes"]["text"] + 3 * tokens))
        return StageEstimate(
            self.name, self.stage, shape.parameters, 0, None, self.token_budget, memory, seconds, disk, host=host
        )

    @property
    @override
    def less_memory(self) -> str:
        return f"lower its token_budget (--set stages.{self.name}.token_budget=N)"

    @property
    @override
    def less_disk(self) -> str:
        return f"use fewer texts: --set stages.{self.name}.limit=N"

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        # A draw of a few could lack a kind that the recipe names.
        return small | {"limit": None}
