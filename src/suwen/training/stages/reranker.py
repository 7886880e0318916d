"""The stage ``reranker``: a small encoder learns to score a query and a passage together, from labels and a teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.data_files import model_files
from suwen.training.recipe.key_groups import Name, later
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs, TrainingStage
from suwen.training.recipe.stage_cost import Reading
from suwen.training.recipe.stage_identity import tier_identity

if TYPE_CHECKING:
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext

#: How our own students are told the two apart; any other encoder by its separator.
TEMPLATE = "[Q]{query}[SEP][D]{document}"
#: What stands between two texts that are read apart.
BETWEEN = "{query}[SEP][CLS]"


class RerankerStage(TrainingStage):
    """Trains the small cross-encoder that ships: on labels, and on the teacher's scores of the same candidates."""

    gives = frozenset({"reranker"})

    stage: Literal["reranker"]
    scores: Annotated[Name, Needs("scores")] = Field(description="the stage that has written the teacher's scores")
    pair: str = Field(default="default", description="the pair whose tier it starts from: its folder, or default")
    tier: str | None = Field(default="l6", description="that tier; null with `base`")
    base: str | None = Field(default=None, description="a small pretrained encoder to start from, in place of a tier")
    layers: int | None = Field(default=None, ge=1, description="layers kept, from the first to the last; null = all")
    apart: int | None = Field(
        default=None,
        ge=0,
        description="of a tier, how many of its layers see the query and the passage each by itself; it begins as the "
        "tier's own cosine, more or less. null = it reads both as one text from the first layer on, and begins anew",
    )
    words: bool = later(False, "with `apart`: what each word of the query finds in the passage counts beside it")
    drawn: int | None = later(
        None, "candidates that a step draws of each list, the right one among them; null = all of them", ge=2
    )
    max_length: int = Field(default=192, ge=16, description="tokens of a query and a document together")
    query_characters: int = Field(default=128, ge=8, description="characters of a query; the rest is cut")
    template: str = Field(
        default=TEMPLATE, pattern=r"\{query\}[\s\S]*\{document\}", description="how the two become one text"
    )
    labels: float = Field(default=0.5, ge=0, description="weight of the labels: which candidate is right")
    distil: float = Field(default=1.0, ge=0, description="weight of the teacher's distribution over the candidates")
    temperature: float = Field(default=1.0, gt=0, description="of that distribution")

    @model_validator(mode="after")
    def _one_start(self) -> RerankerStage:
        if (self.base is None) == (self.tier is None):
            raise ValueError("starts from a `tier` of a pair or from a `base`: name one, and say null for the other")
        if self.apart is not None and (self.tier is None or BETWEEN not in self.template):
            raise ValueError(f"`apart` is for a `tier`, and its `template` has {BETWEEN} before the document")
        if self.words and self.apart is None:
            raise ValueError("`words` goes with `apart`: say in how many layers each text is read by itself")
        if not self.labels and not self.distil:
            raise ValueError("`labels` and `distil` are both 0, which leaves nothing to learn: raise one")
        return self

    @property
    @override
    def learns_from_texts(self) -> bool:
        return False

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.corpora.training_rows import read_training_rows
        from suwen.encoders.side import Side
        from suwen.training.cross_encoders import candidates, read_apart, scoring_tower, sizes
        from suwen.training.run_context import ROWS
        from suwen.training.students.two_texts import TEMPLATE as TWO_TEXTS
        from suwen.training.tasks.list_task import ListLosses, ListTask

        rows = list(read_training_rows(context.model_of(self.scores) / ROWS))
        model = self._start(context)
        cache, alone = context.common / "tokens", None
        if self.apart is not None and self.template == TWO_TEXTS:
            alone = read_apart(rows, Side(model, "document"), self.query_characters, self.max_length, cache)
        texts = alone or candidates(rows, self.template, self.query_characters)
        tower = scoring_tower(model, texts, self.training, self.max_length, cache)
        model.train()
        losses = ListLosses(self.labels, self.distil, self.temperature)
        taught = [score for row in rows for score in (*row.pos_scores, *row.neg_scores)]
        settings: Any = {"batch": self.training.batch, "seed": context.seed_of(self), "taught": taught}
        settings |= {"drawn": self.drawn, "head": None if self.apart is None else model[-1]}
        task = ListTask(tower, sizes(rows), model, losses, **settings)
        context.optimise(task, folder, self.training, per_epoch=task.order.per_epoch)
        folder.leave(lambda out: model.save(str(out)))
        return {"lists": float(len(rows))}

    def _start(self, context: RunContext) -> Any:
        import torch

        from suwen.encoders.pair import Pair, pair_folder
        from suwen.encoders.side import load_model
        from suwen.training.cross_encoders import with_score
        from suwen.training.students.student_models import prune_layers
        from suwen.training.students.tier_weights import open_tier
        from suwen.training.students.two_texts import WEIGHT, two_texts
        from suwen.training.tasks.towers import recompute_layers

        torch.manual_seed(context.seed_of(self))
        if self.base is not None:
            start = load_model(self.base, device="cpu")[0]
        else:
            start = open_tier(Pair.load(pair_folder(self.pair)), str(self.tier))
        start = start if self.layers is None else prune_layers(start, self.layers)
        if self.apart is None:
            model = with_score(start).to(context.device)
        else:
            start = two_texts(start, self.apart, self.words)
            weights = torch.full((1, start[1].get_embedding_dimension()), WEIGHT)
            if self.words:
                weights[:, -1] = 0.0  # until it is learnt what a word is worth, it only disturbs the cosine
            model = with_score(start, start=weights).to(context.device)
        recompute_layers(model, self.training.gradient_checkpointing)
        return model

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        if self.tier is not None:
            return {"started_from": tier_identity(self.pair, self.tier)}
        return {"base": model_files(str(self.base))}

    @override
    def readings(self, recipe: Recipe) -> list[Reading] | None:
        return None  # lists of two texts in one: the estimate goes by `seconds`

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        template = "{query}</s>{document}"
        return small | {
            "base": builtin("bert-tiny"),
            "tier": None,
            "layers": 2,
            "apart": None,
            "words": False,
            "max_length": 64,
            "template": template,
        }
