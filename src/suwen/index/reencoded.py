"""New vectors held against what is stored now: whether they still fit it. The same for every engine; stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from suwen.index.engine import EncodedDocument, IndexProblem, Outcome, Reencoded


def compare(
    stored: Callable[[str], EncodedDocument | None], made: Sequence[Reencoded], encoder: str
) -> tuple[list[EncodedDocument], dict[str, Outcome]]:
    """The documents that new vectors may replace, and what becomes of each.

    Args:
        stored: A document as it was taken in, but for its vectors; None where it is not there.
        made: The new vectors.
        encoder: Who made them.
    """
    fitting: list[EncodedDocument] = []
    outcomes: dict[str, Outcome] = {}
    for one in made:
        if one.id in outcomes:
            raise IndexProblem(f"document {one.id!r} is twice in one call: give each id once")
        found = stored(one.id)
        if found is None:
            outcomes[one.id] = "gone"
        elif found.digest != one.version:
            outcomes[one.id] = "stale"
        elif found.encoder == encoder:
            outcomes[one.id] = "done"
        elif len(found.passages) + len(found.questions) != len(one.vectors):
            outcomes[one.id] = "wrong"
        else:
            outcomes[one.id] = "stored"
            fitting.append(found._replace(vectors=one.vectors, encoder=encoder))
    return fitting, outcomes
