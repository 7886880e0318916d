"""Whether anything relevant was found. Nearest neighbours always exist; this says when they are no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suwen.index.engine import Vectors
from suwen.index.snapshot import EmbeddedSnapshot
from suwen.text.segment import bigrams

#: A best hit that stands this many deviations above the index's average passage is taken for an answer.
_STANDS_OUT = 4.5
#: So is one that holds this share of the query's bigrams.
_COVERS = 0.5


@dataclass(frozen=True)
class Background:
    """A sample of the index to hold a score against: what similarity to this query means nothing."""

    sample: Vectors
    rows: int

    @classmethod
    def of(cls, snapshot: EmbeddedSnapshot, size: int = 512) -> Background:
        """Draw the sample."""
        return cls(snapshot.sample(size)[1], snapshot.last_row)

    def fits(self, snapshot: EmbeddedSnapshot) -> bool:
        """Whether the sample still speaks for the index: not once it has grown by half."""
        return self.rows > 0 and snapshot.last_row <= 1.5 * self.rows

    def height(self, vector: Vectors, score: float) -> float:
        """How many deviations a score lies above those of the sample."""
        if len(self.sample) < 8:
            return float("inf")
        scores = self.sample @ vector
        return float((score - scores.mean()) / max(float(scores.std()), 1e-6))


def judge(
    text: str, vector: Any, top: float | None, contents: Sequence[str], background: Background
) -> tuple[bool, dict[str, float]]:
    """Decide, and say on what: the best dense hit's height above the background, the best hits' share of the query.

    Args:
        text: The query.
        vector: Its vector, or None in a lexical search.
        top: The best dense score, or None.
        contents: The best passage of each leg.
        background: The sample of the index.
    """
    wanted = set(bigrams(text))
    covered = max((len(wanted & set(bigrams(content))) / len(wanted) for content in contents if wanted), default=0.0)
    evidence = {"covered": round(covered, 3)}
    if top is not None:
        evidence["height"] = round(background.height(vector, top), 2)
    if not contents:
        return False, evidence
    return covered >= _COVERS or evidence.get("height", 0.0) >= _STANDS_OUT, evidence
