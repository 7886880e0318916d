"""What stands before a text on its way to a vector: the prompts of queries and documents, and instructions in them."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer, model_validator

from suwen.errors import SuwenError

#: The two forms of a text: what a query or a document passes on its way to a vector.
Form = Literal["query", "document"]


class InstructionRefused(SuwenError):
    """An instruction for an encoder whose query prompt has no place for one."""

    def __init__(self) -> None:
        super().__init__(
            "the encoder's query prompt has no place for an instruction: leave it out, or take a pair whose prompt has "
            "one (`suwen info PAIR` says so)"
        )


class InstructionPlace(BaseModel):
    """Where a query's own instruction stands in the query prompt: between these two."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    before: str
    after: str


class Prompts(BaseModel):
    """What stands before the text, verbatim, for each side. An empty string is no prompt.

    Where queries may bring an instruction of their own, ``query`` is the prompt of those that bring none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    query: str = ""
    document: str = ""
    instruction: InstructionPlace | None = None

    @classmethod
    def filled(cls, query: str, document: str = "", default: str = "") -> Self:
        """The prompts of a template: ``{instruction}`` in it is the place of a query's own, or of the default one."""
        before, place, after = query.partition("{instruction}")
        here = InstructionPlace(before=before, after=after) if place else None
        return cls(query=before + default + after if place else query, document=document, instruction=here)

    def before(self, form: Form, instruction: str | None = None) -> str:
        """What is put before a text in a form; the one place where an instruction is put into a prompt.

        Raises:
            InstructionRefused: The prompt has no place for it.
        """
        if not instruction:
            return self.query if form == "query" else self.document
        if self.instruction is None or form == "document":
            raise InstructionRefused
        return self.instruction.before + instruction + self.instruction.after

    @model_validator(mode="after")
    def _has_the_place(self) -> Self:
        place = self.instruction
        if place is not None and not (self.query.startswith(place.before) and self.query.endswith(place.after)):
            raise ValueError(
                f"the query prompt {self.query!r} does not begin and end as its place for an instruction does: make "
                f"it the same prompt with the default instruction"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_a_place_that_is_not_there(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A space's id is a hash of what is written, and older versions refuse keys they do not know.
        written: dict[str, Any] = handler(self)
        if self.instruction is None:
            written.pop("instruction", None)
        return written
