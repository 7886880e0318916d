"""What every stage is: its keys, what it says of itself, and the register of all kinds. Each kind is in ``stages/``.

A stage is a subclass of :class:`Stage` with a ``stage: Literal["word"]`` key: defining it registers it. Everything
else in training (reading a recipe, its checks, identity, estimate and dry run, the runner) asks the stage, and knows no
kind by name. torch and the like are imported inside ``run``: a recipe is read and estimated without them.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from typing_extensions import override

from suwen.training.recipe.data_files import COST, mean_tokens
from suwen.training.recipe.key_groups import KeyGroup, Name, Rows, Training
from suwen.training.recipe.model_shapes import Shape, document_shape, encoder_shape
from suwen.training.recipe.stage_cost import Machine, Reading, StageEstimate, training_cost

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.recipe.recipe_model import Recipe
    from suwen.training.run_context import RunContext

#: What a stage leaves for others: a student; a document encoder, that can be trained on (an adapter), that others learn
#: from (a teacher), that was a decoder before (decoder), or that is fixed for good (a space); its stored vectors.
#: And what hypothetical documents are made with: queries of documents, rows with what was written for them, and the
#: adapter of the language model that writes. And what makes a reranker: a large cross-encoder, rows with its scores.
Gift = Literal[
    "student",
    "encoder",
    "adapter",
    "teacher",
    "decoder",
    "space",
    "vectors",
    "queries",
    "rewrites",
    "generator",
    "round",
    "cross",
    "scores",
    "reranker",
]
#: The class of each kind, by the word a recipe uses for it.
STAGES: dict[str, type[Stage]] = {}


@dataclass(frozen=True)
class Needs:
    """Marks a key that names other stages, and what they have to give: ``Annotated[Name, Needs("student")]``."""

    gift: Gift


class Reference(NamedTuple):
    """A key that names another stage, and what that stage has to give."""

    key: str
    stage: str
    needs: Gift


class Stage(KeyGroup):
    """One step of a recipe: its keys, and what the rest of training must know of it.

    The keys ``student``, ``training``, ``rows``, ``blend``, ``limit`` and ``dimension`` mean the same in every stage
    that has them. Everything below ``run`` has a default that suits a stage which only reads and writes its own files.

    Attributes:
        gives: What other stages may refer to it for.
        unsupervised: Whether the rows it takes by default are the unlabelled pairs, ``unsup-*``.
        starts_tables: Whether a student of ``init: vectors`` may start in it.
        ships: Whether it writes what is shipped; a variant is measured and leaves it out.
        padded: Whether its batches are padded to the longest text, which is as long as texts may be.
        runs_anyway: Whether it runs though a stage it reads has ended the rounds; others are then passed over.
        draws_at_random: Whether it depends on the run's seed though it trains nothing.
    """

    gives: ClassVar[frozenset[Gift]] = frozenset()
    unsupervised: ClassVar[bool] = False
    starts_tables: ClassVar[bool] = False
    ships: ClassVar[bool] = False
    padded: ClassVar[bool] = False
    runs_anyway: ClassVar[bool] = False
    draws_at_random: ClassVar[bool] = False

    stage: str = Field(description="its kind")
    name: Name = Field(description="its folder, and how later stages refer to it")

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Register a kind, by the word its ``stage`` key must be."""
        for word in typing.get_args(cls.model_fields["stage"].annotation):
            if STAGES.setdefault(word, cls) is not cls:
                raise TypeError(f"two stages are called {word!r}: {STAGES[word].__qualname__} and {cls.__qualname__}")

    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        """Do the work and give its metrics; of several processes, those of the first count.

        Args:
            context: The recipe, its data, and what earlier stages have left.
            folder: Where the model, the curves and the checkpoints go; it is finished with the metrics.
        """
        raise NotImplementedError(f"the stage {self.stage!r} does not say how it runs")

    @classmethod
    def needs_of(cls, key: str) -> Gift | None:
        """What the stages that a key names have to give; None where it names none."""
        field = cls.model_fields.get(key)
        return next((mark.gift for mark in field.metadata if isinstance(mark, Needs)), None) if field else None

    def references(self) -> list[Reference]:
        """Every stage that a key names: by itself, or in a mapping whose values, or else keys, are stages."""
        references = []
        for key in type(self).model_fields:
            needs, value = self.needs_of(key), getattr(self, key)
            if needs is not None and isinstance(value, dict):
                named = {one: other if isinstance(other, str) else one for one, other in value.items()}
                references += [Reference(f"{key}.{one}", stage, needs) for one, stage in named.items()]
            elif needs is not None and value is not None:
                references.append(Reference(key, value, needs))
        return references

    @property
    def student_trained(self) -> str | None:
        """The student it trains."""
        return getattr(self, "student", None)

    @property
    def how_trained(self) -> Training | None:
        """How it optimises what it trains; None where it trains nothing."""
        return getattr(self, "training", None)

    @property
    def rows_read(self) -> Rows | None:
        """The training rows it reads of the data; null where another stage has written them."""
        return getattr(self, "rows", None) if self.rewrites_read is None else None

    @property
    def rewrites_read(self) -> str | None:
        """The stage that has written its rows with a language model."""
        return getattr(self, "rewrites", None)

    @property
    def learns_from_texts(self) -> bool:
        """Whether it is trained on the unlabelled texts: it is, where it is not trained on rows."""
        return self.how_trained is not None and self.rows_read is None and self.rewrites_read is None

    @property
    def reads_texts(self) -> bool:
        """Whether it reads the unlabelled texts."""
        return self.learns_from_texts

    def texts_file(self, recipe: Recipe) -> str:
        """The file of the unlabelled texts that it reads."""
        return recipe.data.texts

    @property
    def encoder_from(self) -> str | None:
        """The stage whose document encoder it takes over; None where it has none."""
        return next((one.stage for one in self.references() if one.needs in ("adapter", "encoder")), None)

    @property
    def vectors_sought(self) -> str | None:
        """The stage whose stored vectors it looks for by itself, when no key names them."""
        return None

    def vectors_from(self, recipe: Recipe) -> str | None:
        """The vectors stage that its student was aligned to."""
        return None

    def space_from(self, recipe: Recipe) -> str | None:
        """The stage that fixes the space its student is aligned to; None when it is aligned to none."""
        return None

    def dimension_in(self, recipe: Recipe) -> int:
        """The width of the vectors of its document encoder: its own cut, or that of where it comes from."""
        inherited = recipe.dimension if self.encoder_from is None else recipe.dimension_of(self.encoder_from)
        return getattr(self, "dimension", None) or inherited

    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        """What its result depends on beside its keys, its student, its data and the stages it refers to."""
        return {}

    def problems(self, recipe: Recipe) -> Iterable[str]:
        """What does not fit the other stages, a line each; asked once every reference leads somewhere."""
        return ()

    def cost(self, recipe: Recipe, machine: Machine) -> StageEstimate:
        """What it will take; where it does not say, little, unless it fixes a space: then it may load the base."""
        shape = document_shape(recipe) if "space" in self.gives else None
        parameters = shape.parameters if shape is not None else 0
        seconds = machine.start_seconds + parameters / COST["making"]["loaded"]
        return StageEstimate(self.name, self.stage, seconds=seconds, host=int(machine.host + 2 * parameters))

    @property
    def less_memory(self) -> str:
        """What makes it need less memory."""
        return "take a larger device, or --device cpu"

    @property
    def less_disk(self) -> str:
        """What makes it write less; empty where nothing does."""
        return ""

    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        """Its keys for a dry run.

        Args:
            small: The keys, with lengths, counts, widths and steps made small already.
            builtin: Gives the path of a tiny model by its name, such as ``qwen2-tiny``.
        """
        return small


class TrainingStage(Stage):
    """A stage that optimises something."""

    training: Training = Field(description="how it is optimised")

    @override
    def cost(self, recipe: Recipe, machine: Machine) -> StageEstimate:
        return training_cost(recipe, self, machine)

    def readings(self, recipe: Recipe) -> list[Reading] | None:
        """What the encoders it trains read of a row, or of a text; None where the size of one is not known."""
        name, rows = self.student_trained, getattr(self, "rows", None)
        shape, trained = encoder_shape(recipe, name), recipe.students[name] if name else recipe.decoder_stage
        if shape is None:
            return None
        if rows is None or self.learns_from_texts:
            most = getattr(self, "max_length", None) or trained.max_length
            return [Reading(shape, most if self.padded else mean_tokens(recipe, self, "text", most))]
        query = mean_tokens(recipe, self, "query", getattr(trained, "query_length", None) or trained.max_length)
        length = getattr(trained, "document_length", None) or trained.max_length
        document = mean_tokens(recipe, self, "document", length)
        return [Reading(shape, query + (1 + rows.negatives) * document, 2 + rows.negatives, name is None)]

    def more_memory(self, shape: Shape) -> int:
        """Bytes beside weights, optimiser and what layers keep."""
        return 0

    @property
    @override
    def less_memory(self) -> str:
        pieces = f"cut its batches into smaller pieces (--set stages.{self.name}.training.token_budget=N)"
        return f"{pieces}, or {self.recomputing}"

    @property
    def recomputing(self) -> str:
        """How its layers are computed twice, to keep less."""
        return f"recompute its layers (--set stages.{self.name}.training.gradient_checkpointing=true)"
