"""A document as the API takes it, and everything that can be wrong with one or with a batch. Stores nothing."""

from __future__ import annotations

from unicodedata import category

from pydantic import Field

from suwen.service.filter_checks import Metadata
from suwen.service.problems import Problem
from suwen.service.request_checks import LONGEST_ID, Part, check_count, check_length
from suwen.service.serve_settings import ServeSettings

#: A text with more characters than this for each passage that is taken is not even cut into them.
CHARACTERS = 1000


class Posted(Part):
    """One document."""

    id: str = Field(min_length=1, max_length=LONGEST_ID, description="Replaces the document that has this id.")
    text: str = Field(description="Plain text; long ones are cut into passages.")
    title: str = Field(default="", max_length=2000)
    metadata: Metadata = Field(
        default_factory=dict,
        description="Flat: a value or a list of values under each field, for filters; null is no value.",
    )


def check_batch(settings: ServeSettings, documents: list[Posted]) -> None:
    """Everything that can be wrong with a batch, before any of it is stored."""
    check_count(len(documents), settings.batch_documents, "documents")
    longest = settings.text_characters
    seen: dict[str, int] = {}
    for number, document in enumerate(documents):
        check_document(document, longest, seen, number)
    characters = sum(len(one.text) for one in documents)
    if characters > (most := settings.batch_passages * CHARACTERS):
        raise Problem(
            "too_many",
            f"the texts have {characters} characters, at most {most} are taken in one request: POST them to /imports, "
            "as 'suwen add --server' does, or send fewer at once",
            param="documents",
        )


def check_document(document: Posted, longest: int, seen: dict[str, int], number: int) -> None:
    """Raise the problem of one document of several, of which it is the one of this number.

    Args:
        document: The document.
        longest: The most characters its text may have.
        seen: Ids and their numbers so far; its own is added.
        number: Its own.
    """
    param = f"documents.{number}"
    if (first := seen.setdefault(document.id, number)) != number:
        raise Problem(
            "duplicate_id",
            f"the id {document.id!r} is twice in this batch (documents {first} and {number}): nothing was stored",
            param=f"{param}.id",
        )
    if any(category(character) == "Cc" for character in document.id):
        raise Problem(
            "bad_document", f"the id {document.id!r} holds a control character: leave it out", param=f"{param}.id"
        )
    if not document.text.strip():
        raise Problem(
            "empty_document",
            f"document {document.id!r} has no text: give it some, or leave it out",
            param=f"{param}.text",
        )
    check_length(document.text, longest, f"{param}.text")
