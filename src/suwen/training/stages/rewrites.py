"""The stage ``rewrites``: hypothetical documents of queries, chosen by how they retrieve, as rows to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from suwen.encoders.pair import default_pair_path
from suwen.encoders.space import load_manifest
from suwen.training.recipe.data_files import model_files
from suwen.training.recipe.key_groups import Draws, Kind, Name
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Needs
from suwen.training.stages.queries import WritingStage, drawn

if TYPE_CHECKING:
    from suwen.hyde.writing import Writer
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class LookingStage(WritingStage):
    """What the stages share that look with what was written: the retriever, and what kind of query it is asked."""

    student: Name | None = Field(default=None, description="the retriever at its start: a student on both sides")
    retriever: Annotated[Name | None, Needs("student")] = Field(
        default=None, description="the stage whose student is the retriever; null = `student` at its start"
    )
    document: Annotated[Name | None, Needs("encoder")] = Field(
        default=None, description="whose encoder gives the documents' vectors, where it is not the student's own"
    )
    pair: str | None = Field(default=None, description="a finished pair as the retriever: its folder, or `default`")
    tier: str | None = Field(default=None, description="the tier of that pair; null = its default one")
    kind: Literal["q2p", "t2p", "p2p"] = Field(
        default="q2p", description="what queries are: a question, title, passage"
    )
    draws: Draws = Field(default=Draws(), description="how documents are drawn")

    @model_validator(mode="after")
    def _one_retriever(self) -> LookingStage:
        if self.pair is not None and (self.student or self.retriever or self.document):
            raise ValueError("a `pair` is the whole retriever: take `student`, `retriever` and `document` out, or it")
        return self

    @property
    @override
    def student_trained(self) -> str | None:
        return None

    @property
    @override
    def encoder_from(self) -> str | None:
        return None

    @override
    def depends_on(self, recipe: Recipe) -> dict[str, Any]:
        depends = super().depends_on(recipe)
        if self.pair is not None:
            folder = default_pair_path() if self.pair == "default" else Path(self.pair)
            depends["pair"] = load_manifest(folder).space.id
        if self.student is not None and self.retriever is None:
            shape = recipe.students[self.student]
            depends["student"] = shape.model_dump(mode="json")
            depends["student_base"] = model_files(shape.base) if shape.base else {}
        return depends

    @override
    def problems(self, recipe: Recipe) -> Iterator[str]:
        if self.student is not None and self.student not in recipe.students:
            yield f"stages.{self.name}.student: unknown student '{self.student}'; name one of `students`"

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        draws = small["draws"] | {"max_tokens": 24}
        pair = None if self.pair is None else "default"
        return super().stand_in(small, builtin) | {"draws": draws, "pair": pair, "tier": None}


class RewritesStage(LookingStage):
    """Writes hypothetical documents for queries and leaves rows (q, d'; d), or those of texts to align to."""

    gives = frozenset({"rewrites"})

    stage: Literal["rewrites"]
    queries: Annotated[Name | None, Needs("queries")] = Field(
        default=None, description="the stage of the queries, each with its document; null = texts are the queries"
    )
    kinds: tuple[Kind, ...] | None = Field(
        default=None, description="without `queries`: the kinds of texts; null = all"
    )
    limit: int | None = Field(default=None, ge=1, description="number of queries; null = all")
    count: int = Field(default=5, ge=1, description="documents written for each query")
    choose: Literal["document", "mean"] | None = Field(
        default=None,
        description="keep the one whose own rank of the right document, or that of its mean with the query, is best, "
        "each written with the right document in view; null = write from the query alone, and keep all",
    )

    after: Annotated[Name | None, Needs("round")] = Field(
        default=None, description="the round that must have gained; else this stage, and what reads it, is passed over"
    )

    @model_validator(mode="after")
    def _something_to_choose_by(self) -> RewritesStage:
        looks = self.student or self.retriever or self.document or self.pair
        if self.choose is not None and (self.queries is None or not looks):
            raise ValueError("`choose` needs `queries`, and a retriever: `student`, `retriever`, `document` or `pair`")
        return self

    @property
    @override
    def reads_texts(self) -> bool:
        return self.queries is None

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        kinds = None if self.kinds is None else ["query"]
        return super().stand_in(small, builtin) | {"kinds": kinds, "count": min(self.count, 2)}

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        from suwen.durable import write_lines
        from suwen.training.hypothetical_writing import open_writer
        from suwen.training.run_context import ROWS
        from suwen.training.tasks.row_tables import DataError

        counts: Counter[str] = Counter()
        with open_writer(context, self) as writer:
            made = self._of_texts if self.queries is None else self._all if self.choose is None else self._chosen
            lines = list(made(context, writer, counts))
        if not lines:
            raise DataError(f"stage {self.name!r}: nothing that was written is of use: {dict(counts + writer.counts)}")
        name = TEXTS if self.queries is None else ROWS
        folder.leave(lambda out: write_lines(out / name, lines))
        return {key: float(value) for key, value in (counts + writer.counts).items()} | {"rows": float(len(lines))}

    def _drawn(self, context: RunContext) -> tuple[list[str], list[int], list[str]]:
        """The queries to train with, the place of each one's document, and all documents."""
        from suwen.training.hypothetical_writing import read_queries

        asked = read_queries(context, str(self.queries))
        every = [(one.query, place) for place, one in enumerate(asked) if one.query and not one.held_out]
        used = drawn(every, self.limit, np.random.default_rng((context.seed, 21)))
        return [query for query, _ in used], [place for _, place in used], [one.document for one in asked]

    def _chosen(self, context: RunContext, writer: Writer, counts: Counter[str]) -> Iterable[dict[str, Any]]:
        from suwen.curate.hypothetical import chosen_rewrites
        from suwen.training.hypothetical_writing import draws_of, open_retriever

        queries, targets, documents = self._drawn(context)
        found = chosen_rewrites(
            queries,
            targets,
            documents,
            writer,
            *open_retriever(context, self),
            candidates=self.count,
            by=self.choose or "document",
            draws=draws_of(self.draws, context.seed),
            held_out=context.held_out,
        )
        counts.update(found.counts)
        cast("dict[str, float]", counts).update(chosen_mrr=found.chosen, random_mrr=found.chance)
        for number, text, rank in found.rows:
            right = documents[targets[number]]
            yield {"query": queries[number], "pos": [right], "hypothetical": [text], "rank": rank}

    def _all(self, context: RunContext, writer: Writer, counts: Counter[str]) -> Iterable[dict[str, Any]]:
        queries, targets, documents = self._drawn(context)
        for query, place, own in zip(queries, targets, self._written(context, writer, queries, counts), strict=True):
            # A query with nothing of use is asked alone, in training as in a search.
            yield {"query": query, "pos": [documents[place]]} | ({"hypothetical": own} if own else {})

    def _of_texts(self, context: RunContext, writer: Writer, counts: Counter[str]) -> Iterable[dict[str, Any]]:
        every = self.texts_of(context, self.kinds, counts)
        queries = drawn(every, self.limit, np.random.default_rng((context.seed, 20)))
        written = self._written(context, writer, queries, counts)
        yield from ({"query": query, "hypothetical": own} for query, own in zip(queries, written, strict=True) if own)

    def _written(
        self, context: RunContext, writer: Writer, queries: list[str], counts: Counter[str]
    ) -> Iterator[list[str]]:
        from suwen.training.hypothetical_writing import draws_of

        draws = draws_of(self.draws, context.seed)
        for own in writer.documents(queries, self.count, kind=self.kind, draws=draws):
            clean = [text for text in own if not context.held_out.hit(text)]
            counts.update(candidates_held_out=len(own) - len(clean), without=not clean)
            yield clean


#: The file of texts with what was written for them, where there are no rows.
TEXTS = "texts.jsonl.gz"
