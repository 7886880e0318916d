"""What a recipe may say: every key of every stage, with its type, default and meaning.

Only the shapes live here (groups that stages share: :mod:`suwen.training.recipe.options`); reading a file, ``--set``,
variants and the checks between stages are in :mod:`suwen.training.recipe.recipe_file`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from suwen.training.recipe.options import Blend as Blend
from suwen.training.recipe.options import Faithful as Faithful
from suwen.training.recipe.options import Forms as Forms
from suwen.training.recipe.options import Kind as Kind
from suwen.training.recipe.options import Lora as Lora
from suwen.training.recipe.options import Mine as Mine
from suwen.training.recipe.options import Name as Name
from suwen.training.recipe.options import Prompts as Prompts
from suwen.training.recipe.options import Rows as Rows
from suwen.training.recipe.options import Settings as Settings
from suwen.training.recipe.options import Training as Training

_BLEND = "stages of other students: share; it learns to be right together with them, as the export blends it"


class Stage(Settings):
    """What every stage has."""

    name: Name = Field(description="its folder, and how later stages refer to it")


class DocumentStage(Stage):
    """Trains the LLM document encoder: last token, LoRA, nested dimensions."""

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
    training: Training = Field(description="how it is optimised")


class FreezeStage(Stage):
    """Fixes the document encoder and mints its space: from here on nothing changes it."""

    stage: Literal["freeze"]
    start: Name = Field(description="the document or joint stage to freeze")
    dimension: int | None = Field(default=None, ge=1, description="where vectors are cut; null = as trained")
    rank: int | None = Field(default=None, ge=1, description="cut the adapter to this rank; null = as trained")
    bits: Literal[8, 16] = Field(default=16, description="bits of the adapter's numbers")
    measure: bool = Field(default=False, description="measure what the cut costs, on data.measure")


class VectorsStage(Stage):
    """Computes the teacher's vectors of the unlabelled texts once, for every student and epoch."""

    stage: Literal["vectors"]
    start: Name = Field(description="whose vectors: a freeze stage (or a document stage, before joint training)")
    forms: Forms = Field(default_factory=Forms, description="the forms of each kind of text")
    rows: Rows | None = Field(default=None, description="rows whose texts get vectors too, for Stage II; null = none")
    limit: int | None = Field(default=None, ge=1, description="number of texts; null = all")
    token_budget: int = Field(default=65_536, ge=16, description="tokens per forward pass")
    compile: bool = Field(default=True, description="compile a frozen Qwen on a GPU, where there are many texts")

    @model_validator(mode="after")
    def _every_row(self) -> VectorsStage:
        if self.rows is not None:
            self.rows.require_whole()
        return self


class RetromaeStage(Stage):
    """Masked auto-encoding of a student through a light decoder."""

    stage: Literal["retromae"]
    student: Name = Field(description="the student, from its own start")
    limit: int | None = Field(default=None, ge=1, description="number of texts; null = all")
    encoder_mask: float = Field(default=0.3, gt=0, lt=1, description="share of tokens the encoder does not see")
    decoder_mask: float = Field(default=0.5, gt=0, lt=1, description="share of tokens the decoder does not see")
    max_length: int | None = Field(default=None, ge=4, description="tokens of a text; null = the student's")
    training: Training = Field(description="how it is optimised")

    @model_validator(mode="after")
    def _whole_batches(self) -> RetromaeStage:
        for key in ("chunk", "token_budget"):
            if getattr(self.training, key) is not None:
                raise ValueError(
                    f"`training.{key}` has no effect here, a batch is taken whole: take it out, and lower `batch` or "
                    "set `gradient_checkpointing` to need less memory"
                )
        return self


class PairStage(Stage):
    """What the two symmetric contrastive stages share."""

    student: Name | None = Field(default=None, description="the student trained; null with `document`")
    document: Name | None = Field(default=None, description="the document stage trained on; null with `student`")
    start: Name | None = Field(default=None, description="the stage the weights come from; null = the student's start")
    temperature: float = Field(default=0.02, gt=0, description="of the contrastive loss")
    learn_temperature: bool = Field(default=False, description="train the temperature too")
    prompts: Prompts = Field(default_factory=Prompts, description="what stands before texts")
    rows: Rows = Field(default_factory=Rows, description="the rows it is trained on")
    dimensions: tuple[int, ...] = Field(default=(), description="nested widths trained together; () = the full width")
    backward_weight: float = Field(default=0.0, ge=0, description="weight of the document-to-query loss")
    mine: Mine | None = Field(default=None, description="mine hard negatives with the vectors of the start")
    distil: float = Field(default=0.0, ge=0, description="weight of the KL loss towards the scores of `teacher`")
    teacher: Name | None = Field(default=None, description="the document or freeze stage whose scores are distilled")
    training: Training = Field(description="how it is optimised")

    @model_validator(mode="after")
    def _one_side(self) -> PairStage:
        if (self.student is None) == (self.document is None):
            raise ValueError("trains either a `student` or a `document` stage: name exactly one of them")
        if (self.distil > 0) != (self.teacher is not None):
            raise ValueError("`distil` above 0 and a `teacher` go together: give both, or neither")
        return self


class ContrastiveStage(PairStage):
    """Unsupervised contrastive pre-training on title-text, question-answer and crop pairs."""

    stage: Literal["contrastive"]


class FinetuneStage(PairStage):
    """Supervised contrastive fine-tuning of one encoder on both sides."""

    stage: Literal["finetune"]


class AlignStage(Stage):
    """Stage I: a student learns to land where the fixed document encoder puts the same text."""

    stage: Literal["align"]
    student: Name = Field(description="the student aligned")
    start: Name | None = Field(default=None, description="the stage its weights come from; null = the student's start")
    vectors: Name = Field(description="the vectors stage it is aligned to")
    contrastive: float = Field(default=1.0, ge=0, description="weight of the contrastive loss")
    squared_l2: float = Field(default=1.0, ge=0, description="weight of the squared L2 distance")
    distil: float = Field(default=0.0, ge=0, description="weight of the KL loss towards the teacher's in-batch scores")
    leaf: float = Field(default=0.0, ge=0, description="weight of the LEAF loss (L2 distance alone)")
    ranking: float = Field(
        default=0.0, ge=0, description="weight of the KL loss towards the teacher's order of documents near the batch"
    )
    neighbours: int = Field(default=32, ge=2, description="how many nearest documents of each text, for `ranking`")
    temperature: float = Field(default=0.03, gt=0, description="of the contrastive and KL losses")
    supervised: bool = Field(default=False, description="align on labelled rows in place of unlabelled texts")
    rows: Rows = Field(default_factory=Rows, description="the rows, when supervised")
    kinds: tuple[Kind, ...] | None = Field(default=None, description="kinds of texts used; null = all")
    limit: int | None = Field(default=None, ge=1, description="number of texts; null = all")
    document_share: float = Field(default=0.0, ge=0, le=1, description="share of texts aligned in document form")
    learning_rates: dict[str, float] = Field(
        default_factory=dict, description="factors of the learning rate by part: embeddings, encoder, projection"
    )
    blend: Blend = Field(default_factory=dict, description=_BLEND)
    training: Training = Field(description="how it is optimised")

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


class JointStage(Stage):
    """Stage II: retrieval fine-tuning of both encoders, or of the query encoder alone over a frozen space."""

    stage: Literal["joint"]
    student: Name = Field(description="the student trained")
    start: Name | None = Field(default=None, description="the stage its weights come from; null = the student's start")
    document: Name = Field(description="the document encoder: a document stage, or a freeze stage when not trained")
    train_document: bool = Field(default=True, description="false: only the query encoder moves")
    rows: Rows = Field(default_factory=Rows, description="the rows it is trained on")
    negatives: int = Field(default=7, ge=0, description="hard negatives per row")
    mine: Mine | None = Field(default_factory=Mine, description="mine negatives first; null = labelled ones only")
    temperature: float = Field(default=0.02, gt=0, description="of the contrastive loss")
    keep_alignment: float = Field(default=0.0, ge=0, description="weight of the Stage-I loss kept in the mix")
    vectors: Name | None = Field(
        default=None, description="the vectors stage it mines and aligns with; null = of `document`"
    )
    distil: float = Field(default=0.0, ge=0, description="weight of the KL loss towards the document encoder's scores")
    document_learning_rate: float | None = Field(
        default=None, gt=0, description="of the document side; null = the same"
    )
    projection: bool = Field(default=False, description="project the student up to the document encoder's full width")
    blend: Blend = Field(default_factory=dict, description=_BLEND)
    training: Training = Field(description="how it is optimised")

    @model_validator(mode="after")
    def _consistent(self) -> JointStage:
        if self.rows.negatives:
            raise ValueError("`rows.negatives` has no effect here: say `negatives` on the stage itself")
        if self.keep_alignment > 0 and self.vectors is None:
            raise ValueError("`keep_alignment` above 0 needs `vectors`, the vectors stage it aligns to: name it")
        return self


class ExportStage(Stage):
    """Writes the light pair: ONNX query tiers, the adapter, the manifest."""

    stage: Literal["export"]
    start: Name = Field(description="the freeze stage whose space the pair is of")
    tiers: dict[Name, Name] = Field(min_length=1, description="tier name: the stage it comes from")
    default_tier: str | None = Field(default=None, description="the tier used when none is asked for; null = the first")
    blends: dict[Name, dict[Name, float]] = Field(
        default_factory=dict, description="tier: {other tier: its share of the vector}; the rest is the tier's own"
    )
    precision: Literal["int8", "fp32", "both"] = Field(default="int8", description="weights of the tiers")
    pair: str | None = Field(default=None, description="the pair's name; null = the recipe's")
    licence: str = Field(default="", description="the licence of the weights")

    @model_validator(mode="after")
    def _default_is_a_tier(self) -> ExportStage:
        if self.default_tier is not None and self.default_tier not in self.tiers:
            raise ValueError(f"default_tier '{self.default_tier}' is not one of the tiers: {', '.join(self.tiers)}")
        return self

    @model_validator(mode="after")
    def _blends_are_of_tiers(self) -> ExportStage:
        known = ", ".join(self.tiers)
        for tier, others in self.blends.items():
            if unknown := [name for name in (tier, *others) if name not in self.tiers]:
                raise ValueError(f"blends: '{unknown[0]}' is not one of the tiers: {known}")
            if chained := [name for name in others if name in self.blends]:
                raise ValueError(f"blends: '{chained[0]}' blends itself and cannot be part of '{tier}': name others")
            if not others or min(others.values()) <= 0 or sum(others.values()) >= 1:
                raise ValueError(f"blends: the shares in '{tier}' are above 0 and less than 1 in all, not {others}")
        return self


AnyStage = Annotated[
    DocumentStage
    | FreezeStage
    | VectorsStage
    | RetromaeStage
    | ContrastiveStage
    | FinetuneStage
    | AlignStage
    | JointStage
    | ExportStage,
    Field(discriminator="stage"),
]
#: The class of each stage kind, by the word a recipe uses.
STAGES: dict[str, type[Stage]] = {
    "document": DocumentStage,
    "freeze": FreezeStage,
    "vectors": VectorsStage,
    "retromae": RetromaeStage,
    "contrastive": ContrastiveStage,
    "finetune": FinetuneStage,
    "align": AlignStage,
    "joint": JointStage,
    "export": ExportStage,
}


class Student(Settings):
    """The shape and the start of one query encoder."""

    kind: Literal["transformer", "static"] = Field(default="transformer", description="static = token lookup and mean")
    base: str | None = Field(default=None, description="a pretrained encoder (hub id or folder) to start from")
    start: str = Field(
        default="scratch",
        pattern=r"^(scratch|layers-of-document|prune:[a-z0-9._-]+)$",
        description="scratch, layers-of-document (the LLM's first layers) or prune:STUDENT (every n-th layer of it)",
    )
    layers: int = Field(default=6, ge=1, description="transformer layers")
    width: int | None = Field(default=None, ge=8, description="hidden width; null = of what it starts from")
    heads: int = Field(default=6, ge=1, description="attention heads")
    intermediate: int | None = Field(default=None, ge=8, description="width inside a layer; null = 4 x width")
    max_length: int = Field(default=64, ge=4, description="tokens of a query")
    document_length: int | None = Field(default=None, ge=4, description="tokens in document form; null = max_length")
    projection: bool = Field(default=True, description="a linear layer from its width to the space's dimension")
    pooling: Literal["cls", "mean"] = Field(default="cls", description="how the states of tokens become one vector")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="of hidden states and attention, while it learns")
    init: str = Field(
        default="random",
        pattern=r"^(random|vectors|table:[a-z0-9._-]+)$",
        description="the start of its table; vectors = the teacher's vector of every token (static students), "
        "table:STUDENT = the main components of a static student's learnt table (transformers)",
    )
    train_table: bool = Field(
        default=True,
        description="false: the table of tokens stays as it started, and what is learnt must go through it",
    )
    prompts: Prompts = Field(default_factory=Prompts, description="what tells its query form from its document form")

    @model_validator(mode="after")
    def _whole_heads(self) -> Student:
        scratch = self.kind == "transformer" and self.start == "scratch" and self.base is None
        if scratch and self.width is None:
            raise ValueError("a student from scratch needs a `width`, such as 384")
        if self.kind == "transformer" and self.width is not None and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        if self.init == "vectors" and (self.kind, self.start, self.base) != ("static", "scratch", None):
            raise ValueError("`init: vectors` starts the table of a static student from scratch: say `init: random`")
        if not self.train_table and self.kind == "static":
            raise ValueError("a static student is its table: `train_table: false` leaves nothing to train")
        if not scratch and (self.pooling, self.dropout) != ("cls", 0.0):
            raise ValueError("`pooling` and `dropout` are for transformers from scratch: others keep their own")
        if self.table_of is not None and not scratch:
            raise ValueError("`init: table:STUDENT` starts a transformer from scratch: say `init: random`")
        return self

    @property
    def table_of(self) -> str | None:
        """The static student whose table it starts from."""
        return self.init.removeprefix("table:") if self.init.startswith("table:") else None

    @property
    def pruned_from(self) -> str | None:
        """The student whose layers it starts from."""
        return self.start.removeprefix("prune:") if self.start.startswith("prune:") else None

    @property
    def source(self) -> str | None:
        """The student that it takes weights from at its start."""
        return self.table_of or self.pruned_from


class Tokenizer(Settings):
    """The students' own vocabulary, trained on the data."""

    vocabulary: int = Field(default=14_000, ge=100, description="its size")
    limit: int | None = Field(default=None, ge=1, description="texts it is trained on; null = all")


class Data(Settings):
    """Where the data are; ${DATA} stands for `root`."""

    root: str | None = Field(
        default=None, description="a folder of make_training_data, or builtin:tiny; else SUWEN_DATA"
    )
    rows: str = Field(default="${DATA}/rows", description="the folder of <source>.jsonl.gz files")
    texts: str = Field(default="${DATA}/texts.jsonl.gz", description="unlabelled texts with their kinds")
    held_out: str | None = Field(default="${DATA}/held-out.jsonl.gz", description="texts that training must not hit")
    measure: str | None = Field(default=None, description="a suite file (.toml) of the development measures")


class Variant(Settings):
    """A recipe with something changed: an ablation or a baseline."""

    description: str = Field(description="what it means, in a sentence")
    paper: str = Field(default="", description="its row in the paper, such as `Table 4, w/o MSE`")
    set: dict[str, Any] = Field(
        default_factory=dict, description="dotted key: value, such as stages.align.squared_l2: 0"
    )
    remove: tuple[Name, ...] = Field(
        default=(), description="stages left out; what starts from them starts before them"
    )
    export: bool = Field(default=False, description="keep the export stages; a variant is measured, seldom shipped")
    insert_after: dict[str, list[dict[str, Any]]] = Field(
        default_factory=dict, description="stages put in after the named one"
    )


class Recipe(Settings):
    """The stages of one system, its data and its variants."""

    name: Name = Field(description="the folder of its runs")
    faithful: Faithful = Field(
        default="fixed",
        description="a label: what the keys follow where paper and code part (paper, code, or our correction)",
    )
    seed: int = Field(default=0, ge=0, description="seed of the run")
    dimension: int = Field(ge=1, description="width of the space's vectors")
    data: Data = Field(default_factory=Data, description="where the data are")
    tokenizer: Tokenizer | None = Field(default=None, description="the students' vocabulary, when any is from scratch")
    students: dict[Name, Student] = Field(default_factory=dict, description="the query encoders by name")
    stages: tuple[AnyStage, ...] = Field(min_length=1, description="what is done, in order")
    variants: dict[Name, Variant] = Field(default_factory=dict, description="ablations and baselines by name")

    @property
    def wants_tokens(self) -> bool:
        """Whether some student starts from the teacher's vectors of its tokens."""
        return any(student.init == "vectors" for student in self.students.values())

    def stage(self, name: str) -> AnyStage:
        """The stage of that name; KeyError when there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    def dimension_of(self, name: str) -> int:
        """The width of the vectors that a stage with a document encoder gives."""
        stage = self.stage(name)
        if isinstance(stage, DocumentStage):
            return stage.dimension or self.dimension
        if isinstance(stage, FreezeStage):
            return stage.dimension or self.dimension_of(stage.start)
        if isinstance(stage, JointStage | PairStage) and stage.document is not None:
            return self.dimension_of(stage.document)
        return self.dimension
