"""A student while it is trained: in its two forms, opened from a stage or its own start, and finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from suwen.encoders.prompts import Form, Prompts
from suwen.encoders.query import Vectors
from suwen.encoders.side import Side
from suwen.training.development_measure import measure
from suwen.training.loop.batches import tokenise
from suwen.training.recipe.key_groups import Prompts as RecipePrompts
from suwen.training.recipe.key_groups import Training
from suwen.training.recipe.recipe_model import Student
from suwen.training.run_context import RunContext
from suwen.training.tasks.row_tables import PairTable, put
from suwen.training.tasks.towers import TrainedTower, recompute_layers

_ENCODED_AT_ONCE = 512


class StudentModel:
    """A student in memory, in its two forms.

    Args:
        model: The ``SentenceTransformer``.
        shape: What the recipe says of it.
        prompts: What stands before its texts, where the shape says nothing; else as the model itself says.
        learning: What stands there while it learns, where that is another prompt than serves.
        cache: Where token ids are kept.
        blend: Students that stay as they are, each with its share of every vector.
    """

    def __init__(
        self,
        model: Any,
        shape: Student,
        *,
        prompts: Prompts | None = None,
        learning: Prompts | None = None,
        cache: Path | None = None,
        blend: Sequence[tuple[StudentModel, float]] = (),
    ) -> None:
        self.model, self.shape, self.cache, self.blend = model, shape, cache, tuple(blend)
        stated = prompts if shape.prompts.query is None else shape.prompts.filled
        if stated is not None:
            model.prompts = {"query": stated.query, "document": stated.document}
        self.sides: dict[Form, Side] = {"query": Side(model, "query"), "document": Side(model, "document")}
        served = stated or Prompts(query=self.sides["query"].prompt, document=self.sides["document"].prompt)
        self.prompts, self.served = learning or served, served

    def length(self, form: Form) -> int:
        """The most tokens of a text in a form."""
        return self.shape.max_length if form == "query" else (self.shape.document_length or self.shape.max_length)

    def tower(
        self,
        form: Form,
        texts: Sequence[str],
        training: Training | None = None,
        *,
        instructions: Sequence[str | None] | None = None,
    ) -> TrainedTower:
        """The student as a tower over these texts: as it is trained, or only to encode them once.

        Args:
            form: Of the texts.
            texts: The texts.
            training: The settings of the stage that trains on them; their token ids are then kept.
            instructions: Of each text, see :func:`~suwen.training.tasks.row_tables.put`; none where there are none.
        """
        side, cache = self.sides[form], None if training is None else self.cache
        prompts = self.served if training is None else self.prompts
        given = texts if instructions is None else put(texts, form, instructions, prompts)
        prompt = prompts.before(form) if instructions is None else ""
        tokens = tokenise(side, given, prompt=prompt, max_length=self.length(form), cache=cache)
        blend = [(other.tower(form, texts, training, instructions=instructions), share) for other, share in self.blend]
        if training is None:
            return TrainedTower(side, tokens, blend=blend)
        return TrainedTower(
            side,
            tokens,
            precision=training.precision,
            token_budget=training.token_budget,
            rows_budget=training.chunk,
            blend=blend,
        )

    def queries(self, table: PairTable, training: Training) -> TrainedTower:
        """The student over a table's queries, each with its row's instruction where the prompt has a place for it."""
        own = self.prompts.instruction is not None and any(table.instructions)
        return self.tower("query", table.queries, training, instructions=table.instructions if own else None)

    def documents(self, table: PairTable, training: Training) -> TrainedTower:
        """The student over a table's documents; those of symmetric rows are put as queries are."""
        own = table.document_instructions if len(table.symmetric) else None
        return self.tower("document", table.documents, training, instructions=own)

    def encode(self, texts: Sequence[str], form: Form = "query") -> Vectors:
        """Vectors of texts, without gradients."""
        self.model.eval()
        tower = self.tower(form, texts)
        with torch.inference_mode():
            parts = [
                tower.vectors(np.arange(start, min(start + _ENCODED_AT_ONCE, len(texts)))).cpu().numpy()
                for start in range(0, len(texts), _ENCODED_AT_ONCE)
            ]
        return np.asarray(np.concatenate(parts))

    def measure(self, context: RunContext) -> dict[str, float]:
        """nDCG@10 of its queries over its own documents."""
        return measure(context.measures, self.encode, lambda task: self.encode(task.data.documents, "document"))

    def save(self, folder: Path) -> None:
        """Write it as a sentence-transformers folder."""
        self.model.save(str(folder))


def open_student(
    context: RunContext,
    name: str,
    start: str | None,
    blend: Mapping[str, float] | None = None,
    *,
    training: Training | None = None,
    prompts: RecipePrompts | None = None,
) -> StudentModel:
    """A student of the recipe, with the weights of a stage or its own start, and those that it is blended with.

    Args:
        context: The run.
        name: The student.
        start: The stage whose weights it has; None for its own start.
        blend: The stages of those it is blended with, with their shares.
        training: How it is about to be trained.
        prompts: What stands before its texts in that training, where it is not what serves.
    """
    others = [
        (open_student(context, context.recipe.stage(stage).student, stage), share)
        for stage, share in (blend or {}).items()
    ]
    for other, _ in others:
        other.model.eval()
    model = context.student(name, start)
    if training is not None:
        recompute_layers(model, training.gradient_checkpointing)
    shape = context.recipe.students[name]
    # The document encoder's first layers read its prompts.
    theirs = context.recipe.decoder_stage.prompts.filled if shape.start == "layers-of-document" else None
    learning = prompts.filled if prompts is not None and prompts.query is not None else None
    return StudentModel(model, shape, prompts=theirs, learning=learning, cache=context.common / "tokens", blend=others)
