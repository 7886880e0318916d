"""Questions that passages answer, written by a language model for ``suwen index --questions``. Encodes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from suwen.choices import OVERLAP, SIZE
from suwen.corpora.passages import split_document
from suwen.corpora.question_files import question_record
from suwen.corpora.records import Document, Passage
from suwen.curate import CurateError
from suwen.curate.screening import in_words
from suwen.durable import write_lines
from suwen.hyde.writing import QUERIES, Draws, Writer
from suwen.llm.ledger import Plan
from suwen.text.split import TokenCounter


def cut_as_indexed(documents: Iterable[Document], count: TokenCounter, size: int | None = None) -> list[Passage]:
    """The passages of documents, cut as an index cuts them: its questions are looked up by their ids."""
    return [passage for document in documents for passage in split_document(document, count, size or SIZE, OVERLAP)]


def question_draws(each: int, seed: int) -> list[Draws]:
    """How each of a passage's questions is drawn: further ones are other draws of the same."""
    return [replace(QUERIES, seed=1000 * seed + number) for number in range(each)]


def plan_questions(passages: Sequence[Passage], writer: Writer, each: int, seed: int = 0) -> list[Plan]:
    """What :func:`write_questions` takes at the most; makes no call."""
    contents = [passage.content for passage in passages]
    return [writer.llm.plan(writer.query_requests(contents, draws)) for draws in question_draws(each, seed)]


def write_questions(passages: Sequence[Passage], to: Path, writer: Writer, each: int, seed: int = 0) -> Counter[str]:
    """Write so many questions of each passage; what is repeated, empty or copied from the passage is left out.

    Args:
        passages: As :func:`cut_as_indexed` gives them.
        to: The file, as :mod:`suwen.corpora.question_files` says; ``.gz`` packs it.
        writer: The language model.
        each: Questions of a passage.
        seed: Of the draws.

    Returns:
        What was written, how many questions a passage had already, and how many passages have none.
    """
    if not passages:
        raise CurateError("the source has no passages: nothing was written. Check the path and the format")
    contents = [passage.content for passage in passages]
    rounds = [writer.queries(contents, draws=draws) for draws in question_draws(each, seed)]
    every = [list(filter(None, own)) for own in zip(*rounds, strict=True)]
    found = [list(dict.fromkeys(own)) for own in every]
    if not any(found):
        raise CurateError(
            f"{to} is not written, for the model wrote no question that can be used: {in_words(writer.counts)}"
        )
    write_lines(to, (question_record(passage, own) for passage, own in zip(passages, found, strict=True) if own))
    kept = sum(map(len, found))
    repeated = sum(map(len, every)) - kept
    return Counter(passages=len(passages), questions=kept, repeated=repeated, without_question=found.count([]))
