"""Who writes and who looks, in the stages of hypothetical documents: the language model, and the retriever as it is.

What is asked and checked is ``hyde/``'s, which one is kept ``curate.hypothetical``'s; the stages are in ``stages/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from suwen.corpora.tabular import records
from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.hyde.writing import Draws, Writer
from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig, load_config
from suwen.llm.ledger import Progress
from suwen.training.recipe import key_groups
from suwen.training.run_context import RunContext
from suwen.training.tasks.row_tables import DataError
from suwen.training.trained_document import document_encoder
from suwen.training.trained_student import open_student

if TYPE_CHECKING:
    from suwen.training.stages.queries import WritingStage

#: Where an adapter of the language model is in the folder of a stage, and inside that of a round.
ADAPTER, GENERATOR = "adapter", "generator"
#: The file of queries in the model folder of a stage ``queries``.
QUERIES = "queries.jsonl.gz"
#: Requests that are sampled together, by device.
_TOGETHER = {"cuda": 4096, "cpu": 128}
_NAME = "writer"


class Asked(NamedTuple):
    """A document with the query that was written for it; None where none is of use."""

    document: str
    query: str | None
    held_out: bool


class Retriever(NamedTuple):
    """What encodes queries and documents."""

    encode_queries: Callable[[Sequence[str]], Vectors]
    encode_documents: Callable[[Sequence[str]], Vectors]


def generator_folder(context: RunContext, name: str | None) -> Path | None:
    """The adapter that a stage has left; None for the model as it is."""
    if name is None:
        return None
    folder = context.model_of(name)
    inside = folder / GENERATOR / ADAPTER
    if inside.is_dir():
        return inside
    return folder / ADAPTER if (folder / ADAPTER).is_dir() else None


@contextmanager
def open_writer(context: RunContext, stage: WritingStage) -> Iterator[Writer]:
    """The language model of a stage; what it has written is kept for a run that goes on, and for others."""

    def tell(progress: Progress) -> None:
        if context.progress is not None:
            context.progress(stage.name, progress.done, progress.total or 0, {})

    config, name = writer_config(context, stage)
    with LLM.open(config, context.common / "replies.sqlite", progress=tell) as llm:
        yield Writer(llm, name, stage.language, stage.domain)


def writer_config(context: RunContext, stage: WritingStage) -> tuple[LLMConfig, str]:
    """Where the language model of a stage answers, and its name there: this process, or what suwen.toml says."""
    if stage.base is None:
        return load_config(), str(stage.model)
    adapter = generator_folder(context, stage.generator)
    together = _TOGETHER["cuda" if context.device.startswith("cuda") else "cpu"]
    model: dict[str, Any] = {"endpoint": "local", "model": stage.base, "context": stage.context, "seed": context.seed}
    model |= {} if adapter is None else {"adapter": str(adapter.resolve())}
    return (
        LLMConfig.model_validate(
            {
                "endpoints": {"local": {"base_url": "local", "concurrency": together, "timeout": 3600}},
                "models": {_NAME: model},
            }
        ),
        _NAME,
    )


def draws_of(draws: key_groups.Draws, seed: int) -> Draws:
    """How texts are drawn, as a stage says it."""
    return Draws(draws.temperature, draws.top_p, draws.top_k, draws.max_tokens, seed)


def open_retriever(context: RunContext, stage: Any) -> Retriever:
    """The retriever that a stage names: a pair, a student of a stage or at its start, or a document encoder.

    With a student and a ``document``, the student encodes queries and that stage's encoder the documents.
    """
    if stage.pair is not None:
        encoder = Pair.load(None if stage.pair == "default" else stage.pair).encoder(stage.tier)
        return Retriever(encoder.encode_queries, encoder.encode_documents)
    given: Any = None
    if stage.document is not None:
        document = document_encoder(context, stage.document)
        given = Retriever(lambda texts: document.encode(texts, form="query"), document.encode)
    if stage.student is None and stage.retriever is None:
        if given is None:
            raise DataError(
                f"stage {stage.name!r} names no retriever: say `student`, `retriever`, `document` or `pair`"
            )
        return Retriever(*given)
    student = open_student(context, _student_of(context, stage), stage.retriever)
    own = Retriever(student.encode, lambda texts: student.encode(texts, "document"))
    return own if given is None else Retriever(own.encode_queries, given.encode_documents)


def _student_of(context: RunContext, stage: Any) -> str:
    """The student of a stage, or of the one whose student it takes over: a round has none of its own."""
    while (name := stage.student) is None:
        stage = context.recipe.stage(stage.retriever)
    return str(name)


def read_queries(context: RunContext, name: str) -> list[Asked]:
    """The documents of a ``queries`` stage, each with its query."""
    file = context.model_of(name) / QUERIES
    return [Asked(one["doc"], one["query"], one["held_out"]) for _, one in records(file, "jsonl")]
