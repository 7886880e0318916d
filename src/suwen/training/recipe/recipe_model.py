"""What a recipe may say beside its stages: students, vocabulary, data, variants. Reading a file is recipe_file's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from suwen.training.recipe.key_groups import Faithful, KeyGroup, Name, Prompts, later
from suwen.training.recipe.stage_base import STAGES, Gift, Stage


def _of_its_kind(value: Any, _: Any) -> Stage:
    """A stage of the class that is registered for its word; a kind may be registered at any time."""
    if isinstance(value, Stage):
        return value
    word = value.get("stage") if isinstance(value, dict) else None
    if word not in STAGES:
        raise PydanticCustomError("unknown_stage", "{word}", {"word": word})
    return STAGES[word].model_validate(value)


AnyStage = Annotated[SerializeAsAny[Stage], WrapValidator(_of_its_kind)]


class Student(KeyGroup):
    """The shape and the start of one query encoder."""

    kind: Literal["transformer", "static"] = Field(default="transformer", description="static = token lookup and mean")
    base: str | None = Field(
        default=None,
        description="a pretrained encoder to start from: hub id, folder, or pair:FOLDER#TIER, a tier of a pair "
        "(pair:default#l6)",
    )
    start: str = Field(
        default="scratch",
        pattern=r"^(scratch|layers-of-document|shrunk-document|prune:[a-z0-9._-]+)$",
        description="scratch, layers-of-document (the LLM's first layers), shrunk-document (those, projected down to "
        "its width, with its own vocabulary) or prune:STUDENT (every n-th layer of it)",
    )
    layers: int = Field(default=6, ge=1, description="transformer layers")
    width: int | None = Field(default=None, ge=8, description="hidden width; null = of what it starts from")
    heads: int = Field(default=6, ge=1, description="attention heads")
    intermediate: int | None = Field(default=None, ge=8, description="width inside a layer; null = 4 x width")
    max_length: int = Field(default=64, ge=4, description="tokens of a query")
    document_length: int | None = Field(default=None, ge=4, description="tokens in document form; null = max_length")
    projection: bool = Field(default=True, description="a linear layer from its width to the space's dimension")
    pooling: Literal["cls", "mean"] | None = Field(
        default=None,
        description="how the states of tokens become one vector; null = a pretrained encoder's own, cls from scratch",
    )
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
        shrunk = self.start == "shrunk-document"
        if (scratch or shrunk) and self.width is None:
            raise ValueError("a student from scratch, or of a shrunk document encoder, needs a `width`, such as 384")
        if shrunk and (self.kind, self.base, self.init) != ("transformer", None, "random"):
            raise ValueError("`start: shrunk-document` is of a transformer, without `base` and `init`: take them out")
        if self.kind == "transformer" and self.width is not None and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        if self.init == "vectors" and (self.kind, self.start, self.base) != ("static", "scratch", None):
            raise ValueError("`init: vectors` starts the table of a static student from scratch: say `init: random`")
        if not self.train_table and self.kind == "static":
            raise ValueError("a static student is its table: `train_table: false` leaves nothing to train")
        if not scratch and self.dropout:
            raise ValueError("`dropout` is for transformers from scratch: others keep their own")
        if not (scratch or shrunk) and self.base is None and self.pooling not in (None, "cls"):
            raise ValueError("`pooling` is for transformers from scratch or a `base`: others keep their own")
        if (self.base or "").startswith("pair:") and self.tier_of is None:
            raise ValueError(f"`base: {self.base}` names no tier; say pair:FOLDER#TIER, such as pair:default#l6")
        if self.table_of is not None and not scratch:
            raise ValueError("`init: table:STUDENT` starts a transformer from scratch: say `init: random`")
        return self

    @property
    def table_of(self) -> str | None:
        """The static student whose table it starts from."""
        return self.init.removeprefix("table:") if self.init.startswith("table:") else None

    @property
    def tier_of(self) -> tuple[str, str] | None:
        """The pair, and the tier of it, that it starts from."""
        pair, _, tier = (self.base or "").removeprefix("pair:").rpartition("#")
        return (pair, tier) if pair and tier and (self.base or "").startswith("pair:") else None

    @property
    def pruned_from(self) -> str | None:
        """The student whose layers it starts from."""
        return self.start.removeprefix("prune:") if self.start.startswith("prune:") else None

    @property
    def source(self) -> str | None:
        """The student that it takes weights from at its start."""
        return self.table_of or self.pruned_from


class Tokenizer(KeyGroup):
    """The students' own vocabulary, trained on the data."""

    vocabulary: int = Field(default=14_000, ge=100, description="its size")
    limit: int | None = Field(default=None, ge=1, description="texts it is trained on; null = all")


class Data(KeyGroup):
    """Where the data are; ${DATA} stands for `root`."""

    root: str | None = Field(
        default=None, description="a folder of make_training_data, or builtin:tiny; else SUWEN_DATA"
    )
    rows: str = Field(default="${DATA}/rows", description="the folder of <source>.jsonl.gz files")
    texts: str = Field(default="${DATA}/texts.jsonl.gz", description="unlabelled texts with their kinds")
    held_out: str | None = Field(default="${DATA}/held-out.jsonl.gz", description="texts that training must not hit")
    measure: str | None = Field(default=None, description="a suite file (.toml) of the development measures")
    set_aside: float = later(
        0.0,
        "share of the questions that no stage trains on, to choose by; the same ones everywhere",
        ge=0,
        le=0.5,
    )
    expected: dict[Literal["rows", "pairs", "texts", "query_tokens", "document_tokens", "text_tokens"], float] = Field(
        default_factory=dict, description="how much there will be: an estimate goes by it where files are not there yet"
    )


class Variant(KeyGroup):
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


class Difference(KeyGroup):
    """A key that the paper, its published code and our correction do not agree on; null: it says nothing of it."""

    why: str = Field(description="what parts them, in a sentence")
    paper: Any = Field(default=None, description="the paper's value; null = ours")
    code: Any = Field(default=None, description="the published code's value; null = ours")
    fixed: Any = Field(description="our value")

    def under(self, faithful: Faithful) -> Any:
        """The value that a recipe takes."""
        said = getattr(self, faithful)
        return self.fixed if said is None else said


class Recipe(KeyGroup):
    """The stages of one system, its data and its variants."""

    name: Name = Field(description="the folder of its runs")
    faithful: Faithful = Field(
        default="fixed",
        description="whom the keys of `differs` follow: the paper, its published code, or our correction",
    )
    seed: int = Field(default=0, ge=0, description="seed of the run")
    dimension: int = Field(ge=1, description="width of the space's vectors")
    data: Data = Field(default_factory=Data, description="where the data are")
    tokenizer: Tokenizer | None = Field(default=None, description="the students' vocabulary, when any is from scratch")
    students: dict[Name, Student] = Field(default_factory=dict, description="the query encoders by name")
    stages: tuple[AnyStage, ...] = Field(min_length=1, description="what is done, in order")
    variants: dict[Name, Variant] = Field(default_factory=dict, description="ablations and baselines by name")
    differs: dict[str, Difference] = Field(
        default_factory=dict,
        description="dotted key: its value by paper, code and our correction, as `faithful` chooses",
    )

    @property
    def wants_tokens(self) -> bool:
        """Whether some student starts from the teacher's vectors of its tokens."""
        return any(student.init == "vectors" for student in self.students.values())

    def stage(self, name: str) -> Any:
        """The stage of that name; KeyError when there is none."""
        return {stage.name: stage for stage in self.stages}[name]

    def first_of(self, name: str) -> Any:
        """The stage in which a decoder first became the document encoder of another stage."""
        stage = self.stage(name)
        while "decoder" not in stage.gives and stage.encoder_from is not None:
            stage = self.stage(stage.encoder_from)
        return stage

    def dimension_of(self, name: str) -> int:
        """The width of the vectors that a stage with a document encoder gives."""
        return int(self.stage(name).dimension_in(self))

    def giving(self, gift: Gift) -> list[Stage]:
        """The stages that leave such a thing, in order."""
        return [stage for stage in self.stages if gift in stage.gives]

    @property
    def decoder_stage(self) -> Any:
        """The last stage in which a decoder becomes the document encoder; None without one."""
        return next(reversed(self.giving("decoder")), None)
