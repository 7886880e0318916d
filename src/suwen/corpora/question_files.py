"""Files of questions that passages answer: ``{"id": …, "questions": […]}`` a line, made by ``suwen curate synthesise``.

The id is a passage's (``<document id>#<ordinal>``) or a document's. ``sha1``, the first 12 hex digits of the hash of
what the questions were written for, tells a text that has changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.files import CorpusError
from suwen.corpora.records import Passage
from suwen.corpora.tabular import records


class QuestionLine(NamedTuple):
    """The questions of one id, and the hash of what they were written for; empty where the file does not say it."""

    id: str
    questions: tuple[str, ...]
    sha1: str = ""


def content_hash(content: str) -> str:
    """The hash that a line of questions carries."""
    return hashlib.sha1(content.encode()).hexdigest()[:12]


def question_record(passage: Passage, questions: Sequence[str]) -> dict[str, Any]:
    """The line of a passage."""
    return {"id": passage.id, "questions": list(questions), "sha1": content_hash(passage.content)}


def read_questions(path: Path) -> Iterator[QuestionLine]:
    """The lines of a file, streamed; questions without any text are left out.

    Raises:
        CorpusError: A line is none of questions.
    """
    for place, record in records(path, "jsonl"):
        id_, asked = record.get("id"), record.get("questions")
        if not isinstance(id_, str) or not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
            raise CorpusError(
                f'{place} is no line of questions: write {{"id": "PASSAGE OR DOCUMENT", "questions": ["…"]}}, as '
                "'suwen curate synthesise --questions' does"
            )
        sha1 = record.get("sha1", "")
        yield QuestionLine(id_, tuple(one.strip() for one in asked if one.strip()), str(sha1))
