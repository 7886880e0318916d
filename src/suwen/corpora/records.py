"""The small records everything else passes around. No reading, no writing, no logic beyond identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Scalar = str | int | float | bool
#: What a document says about itself beside its text: flat, a scalar or a list of scalars under each key.
Metadata = Mapping[str, Scalar | list[Scalar]]


class Document(NamedTuple):
    """One document of a collection, as its source holds it."""

    id: str
    text: str
    title: str = ""
    metadata: Metadata = {}  # noqa: RUF012 (a NamedTuple default; nobody writes to it)

    @property
    def content(self) -> str:
        """What it says in all: the title (when there is one) on a line of its own, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    def record(self) -> dict[str, Any]:
        """The document as a line of BEIR's ``corpus.jsonl``."""
        return {"_id": self.id, "title": self.title, "text": self.text, "metadata": dict(self.metadata)}


class Passage(NamedTuple):
    """A stretch of one document that is encoded and found as a unit.

    ``start`` and ``end`` are character offsets into the document's text, so ``document.text[start:end] == text``.
    """

    document_id: str
    ordinal: int
    text: str
    start: int
    end: int
    title: str = ""

    @property
    def id(self) -> str:
        """``<document id>#<ordinal>``; ordinals count from 0 in reading order."""
        return f"{self.document_id}#{self.ordinal}"

    @property
    def content(self) -> str:
        """What is encoded and searched: the title (when there is one) on a line of its own, then the text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


class Query(NamedTuple):
    """A question with an id, as in a collection's ``queries.jsonl``."""

    id: str
    text: str


class Qrel(NamedTuple):
    """One judgement: how relevant a document is to a query (0 is judged and not relevant)."""

    query_id: str
    document_id: str
    grade: int
