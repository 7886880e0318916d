"""The stage ``document``: a decoder becomes the document encoder, by LoRA, over nested widths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from suwen.encoders.pair import pair_folder
from suwen.encoders.space import AdapterDocument, load_manifest
from suwen.training.recipe.data_files import model_files
from suwen.training.recipe.key_groups import Lora, Name, Prompts, Rows, later
from suwen.training.recipe.model_shapes import Shape
from suwen.training.recipe.recipe_errors import nearest
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, TrainingStage
from suwen.training.recipe.stage_cost import BYTES
from suwen.training.recipe.stage_identity import tier_identity

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext
    from suwen.training.tasks.pair_task import Asker
    from suwen.training.tasks.row_tables import PairTable

#: The tiny model of the same architecture, by a part of a base's name.
_TINY = {
    "pythia": "neox-tiny",
    "neox": "neox-tiny",
    "gemma": "gemma-tiny",
    "mistral": "mistral-tiny",
    "qwen2": "qwen2-tiny",
}


class DocumentStage(TrainingStage):
    """Trains the LLM document encoder: last token, LoRA, nested dimensions."""

    gives = frozenset({"encoder", "adapter", "teacher", "decoder"})

    stage: Literal["document"]
    base: str = Field(min_length=1, description="the LLM: hub id, folder, GGUF file, or builtin:NAME")
    hub_id: str | None = Field(default=None, description="the base's official name, when `base` is a copy of it")
    lora: Lora = Field(default_factory=Lora, description="the adapter")
    dimensions: tuple[int, ...] = Field(default=(), description="nested widths trained together; () = the full width")
    dimension: int | None = Field(default=None, ge=1, description="where vectors are cut; null = the recipe's")
    max_length: int = Field(default=512, ge=4, description="tokens of a document")
    query_length: int | None = Field(default=None, ge=4, description="tokens of a query; null = max_length")
    prompts: Prompts = Field(default_factory=Prompts, description="what stands before texts")
    temperature: float = Field(default=0.02, gt=0, description="of the contrastive loss")
    backward_weight: float = Field(default=0.0, ge=0, description="weight of the document-to-query loss")
    rows: Rows = Field(default_factory=Rows, description="the rows it is trained on")
    start: Annotated[Name | None, Needs("decoder")] = later(
        None, "the document stage whose adapter it goes on with; null = a fresh one"
    )
    others: float = later(0.0, "weight of a query's other right documents in the batch, beside its row's own", ge=0)
    similarity: Literal["cosine", "dot"] = later(
        "cosine", "how vectors are compared; by dot they keep their lengths, in training and in the space"
    )
    pair: str | None = later(None, "the pair whose adapter it goes on with: its folder, or `default`; null = none")
    share_negatives: bool = later(
        True, "a row's negatives are negatives of the whole batch; false: its own alone, and others' positives"
    )
    base_bits: Literal[8] | None = later(
        None, "8 holds the base's matrices as int8 while the adapter learns; null = training.precision"
    )
    asked_by: Name | None = later(
        None, "a student with a `base`, which stays as it is; documents learn to be found by its queries too"
    )
    halfway: float | None = later(
        None, "for those queries documents come half-way, as the export's `halfway` does: by this share", gt=0, le=1
    )

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.training.pair_rows import read_table, train_pairs
        from suwen.training.tasks.pair_task import PairLosses
        from suwen.training.trained_document import TrainedDocument

        table = read_table(context, self)
        document = TrainedDocument.create(context, self)
        queries, documents = document.towers(table, self.training)
        losses = PairLosses(
            self.temperature,
            dimensions=self.dimensions,
            backward_weight=self.backward_weight,
            normalise=self.similarity == "cosine",
            others=self.others,
            share_negatives=self.share_negatives,
        )
        document.model.train()
        trained, asker = [(document.trained, 1.0)], self._asker(context, table)
        train_pairs(context, self, folder, table, queries, documents, trained, losses, asker=asker)
        return document.leave(context, folder)

    def _asker(self, context: RunContext, table: PairTable) -> Asker | None:
        from suwen.training.tasks.pair_task import Asker
        from suwen.training.trained_student import open_student

        if self.asked_by is None:
            return None
        student = open_student(context, self.asked_by, None)
        student.model.eval()
        met = None if self.halfway is None else student.documents(table, self.training)
        return Asker(student.queries(table, self.training), met, self.halfway or 0.0)

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        depends: dict[str, Any] = {"base": model_files(self.base)}
        if self.pair is not None:
            depends["pair"] = load_manifest(pair_folder(self.pair)).space.id
        if self.asked_by is not None:
            student = recipe.students[self.asked_by]
            began = model_files(str(student.base)) if student.tier_of is None else tier_identity(*student.tier_of)
            depends["asked_by"] = {"length": [student.max_length, student.document_length], "began": began}
        return depends

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        cut = self.dimension_in(recipe)
        if self.dimensions and cut not in self.dimensions:
            yield (
                f"stages.{self.name}.dimensions: vectors are cut to {cut}, which is not among the trained widths "
                f"{list(self.dimensions)}; add it"
            )
        if self.others and not self.share_negatives:
            yield f"stages.{self.name}.others: not with `share_negatives: false`, which leaves them out: take one"
        yield from self._problems_with_the_pair()
        yield from self._problems_with_the_asker(recipe)
        before = self if self.start is None else recipe.stage(self.start)
        for key in ("base", "lora", "similarity"):
            if getattr(self, key) != getattr(before, key):
                yield f"stages.{self.name}.{key}: not that of '{self.start}', whose adapter goes on here; say the same"

    def _problems_with_the_pair(self) -> Iterator[str]:
        if self.pair is None:
            return
        if self.start is not None:
            yield f"stages.{self.name}.pair: `start` has an adapter already; say one of the two"
        manifest = load_manifest(pair_folder(self.pair))
        if not isinstance(manifest.document, AdapterDocument):
            yield f"stages.{self.name}.pair: {self.pair} has no adapter; name a pair that a stage `export` wrote"
        # What an adapter learnt of texts put otherwise is of little use.
        elif (said := manifest.space.prompts) != self.prompts.filled:
            yield f"stages.{self.name}.prompts: not those of {self.pair}; say {said.query!r} and {said.document!r}"

    def _problems_with_the_asker(self, recipe: Recipe) -> Iterator[str]:
        where, name = f"stages.{self.name}.asked_by", self.asked_by
        if name is None:
            if self.halfway is not None:
                yield f"stages.{self.name}.halfway: to nobody; say `asked_by: STUDENT`, or take it out"
            return
        if self.similarity == "dot":
            yield f"{where}: its vectors have length one; say `similarity: cosine`"
        student = recipe.students.get(name)
        if student is None:
            yield f"{where}: unknown student '{name}'{nearest(name, recipe.students)}"
        elif student.base is None:
            yield f"{where}: '{name}' begins with no model; say `students.{name}.base: pair:default#l6`"
        elif student.tier_of is not None and student.tier_of[0] != (self.pair or student.tier_of[0]):
            yield f"{where}: '{name}' is of the pair {student.tier_of[0]}, this goes on with {self.pair}; say the same"

    @override
    def more_memory(self, shape: Shape) -> int:
        size = BYTES[self.training.precision]
        if self.base_bits is not None:
            return -shape.body * (size - self.base_bits // 8)
        # Without dropout the adapter is merged once a step: the base apart, and its gradients.
        return 0 if self.lora.dropout else 2 * shape.body * size

    @property
    def apart(self) -> bool:
        """Whether the adapter stays beside the base's matrices: dropout needs that, and so do rounded matrices."""
        return self.lora.dropout > 0 or self.base_bits is not None

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        named = f"{self.base} {self.hub_id}".lower()
        base = builtin(next((tiny for part, tiny in _TINY.items() if part in named), "qwen3-tiny"))
        # In fp32: it encodes much, and halves are slow on a CPU.
        lora = small["lora"] | {"rank": min(self.lora.rank, 4)}
        if self.pair is not None:
            small |= {"pair": builtin("pair-tiny/pair"), "prompts": {"query": "", "document": ""}}
            base = builtin("pair-tiny/base")
        return small | {"base": base, "lora": lora, "training": small["training"] | {"precision": "fp32"}}
