"""The stage ``queries``: a language model writes a query for each document; and what stages that write share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.data_files import model_files
from suwen.training.recipe.key_groups import Draws, Kind, Name
from suwen.training.recipe.model_shapes import shape_of
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, Stage
from suwen.training.recipe.stage_cost import Machine, StageEstimate

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


T = TypeVar("T")


def drawn(every: Sequence[T], limit: int | None, dice: np.random.Generator) -> list[T]:
    """As many as a stage takes, in their order: files are sorted by source, and the first of them are one source's."""
    return [every[place] for place in sorted(dice.permutation(len(every))[:limit])]


class WritingStage(Stage):
    """What the stages share in which a language model writes: which one, about what, in which language."""

    draws_at_random = True

    base: str | None = Field(
        default=None, description="the language model: hub id, folder, GGUF file, or builtin:NAME; null with `model`"
    )
    model: str | None = Field(default=None, description="a model of suwen.toml, at an endpoint; null with `base`")
    generator: Annotated[Name | None, Needs("generator")] = Field(
        default=None, description="the stage whose adapter the base has; null = as it is"
    )
    language: Literal["zh", "en"] = Field(default="zh", description="of the prompts and of what is written")
    domain: str = Field(default="", description="what the texts are about; empty = medicine, in the language")
    context: int = Field(default=4096, ge=16, description="tokens of prompt and reply together; longer texts are cut")

    @model_validator(mode="after")
    def _one_model(self) -> WritingStage:
        if (self.base is None) == (self.model is None):
            raise ValueError("say `base`, a model of this process, or `model`, one of suwen.toml: exactly one of them")
        if self.generator is not None and self.base is None:
            raise ValueError("`generator` is an adapter on a `base`: name the base it was trained on")
        return self

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        return {"base": model_files(self.base)} if self.base else {}

    @override
    def cost(self, recipe: Recipe, machine: Machine) -> StageEstimate:
        # How long texts will be is the model's to say; what it holds is known.
        shape = shape_of(self.base) if self.base else None
        parameters = shape.parameters if shape else 0
        return StageEstimate(self.name, self.stage, parameters or None, 0, memory=2 * parameters, unknown=True)

    def texts_of(
        self, context: RunContext, kinds: tuple[Kind, ...] | None, counts: Counter[str], path: str | None = None
    ) -> list[str]:
        """The distinct texts of some kinds in the stage's language; what is in another one is counted."""
        from suwen.text.segment import language_of

        texts = context.texts(path=path)
        every = list(dict.fromkeys(texts.texts[place] for place in texts.of_kinds(kinds)))
        own = [text for text in every if language_of(text) == self.language]
        counts.update(other_language=len(every) - len(own))
        return own

    @property
    @override
    def less_memory(self) -> str:
        return f"write shorter texts (--set stages.{self.name}.draws.max_tokens=N)"

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        return small | {"base": builtin("writer-tiny"), "model": None, "context": 512}


class QueriesStage(WritingStage):
    """Writes the query that each unlabelled document answers, and sets some aside to tell rounds apart by."""

    gives = frozenset({"queries"})

    stage: Literal["queries"]
    texts: str | None = Field(default=None, description="a file of documents of its own; null = data.texts")
    kinds: tuple[Kind, ...] | None = Field(default=None, description="kinds of texts that are documents; null = all")
    limit: int | None = Field(default=None, ge=2, description="number of documents; null = all")
    held_out_share: float = Field(default=0.1, gt=0, lt=1, description="share of documents that nothing is trained on")
    draws: Draws = Field(
        default=Draws(temperature=1.0, top_p=0.8, max_tokens=64), description="how queries are drawn: the code's"
    )

    @property
    @override
    def reads_texts(self) -> bool:
        return True

    @override
    def texts_file(self, recipe: Recipe) -> str:
        return self.texts or super().texts_file(recipe)

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        return super().stand_in(small, builtin) | {"texts": None, "kinds": ["answer"], "held_out_share": 0.3}

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.curate.hypothetical import asked_of
        from suwen.durable import write_lines
        from suwen.training.hypothetical_writing import QUERIES, draws_of, open_writer
        from suwen.training.tasks.row_tables import DataError

        counts: Counter[str] = Counter()
        every = self.texts_of(context, self.kinds, counts, self.texts)
        dice = np.random.default_rng((context.seed, 19))
        documents = drawn(every, self.limit, dice)
        if len(documents) < 2:
            raise DataError(
                f"stage {self.name!r} has {len(documents)} distinct documents: nothing can be ranked among them"
            )
        counts.update(documents=len(documents))
        with open_writer(context, self) as writer:
            found = dict(asked_of(documents, writer, context.held_out, counts, draws_of(self.draws, context.seed)))
        aside = set(dice.permutation(len(documents))[: max(1, round(self.held_out_share * len(documents)))].tolist())
        lines = [
            {"query": found.get(place), "doc": text, "held_out": place in aside} for place, text in enumerate(documents)
        ]
        folder.leave(lambda out: write_lines(out / QUERIES, lines))
        counts.update(queries=len(found))
        return {key: float(value) for key, value in (counts + writer.counts).items()}
