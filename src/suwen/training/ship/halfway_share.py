"""How far documents come to a tier: the share of its vectors, chosen on questions that nothing was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from suwen.encoders.cores import in_bulk
from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.encoders.static import unit
from suwen.training.set_aside import SetAside

if TYPE_CHECKING:
    from suwen.training.run_context import RunContext
    from suwen.training.teacher_vectors import TeacherVectors

#: What is tried.
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
#: What the document encoder's own queries may lose, in points: less than a few hundred questions can tell.
_LOST = 0.1


def choose_share(context: RunContext, vectors: TeacherVectors, pair: Pair, tier: str) -> tuple[float, dict[str, float]]:
    """The share with which a tier finds most, among those that cost the document encoder's own queries nothing.

    Args:
        context: The run.
        vectors: The document encoder's stored vectors.
        pair: The pair, with its tiers as they serve.
        tier: The tier that documents would come half-way to.

    Returns:
        The share, 0 where none is better than none, and nDCG@10 of every one, by the tier's queries and by the document
        encoder's, over the questions set aside.
    """
    aside, encoder = SetAside.read(context, vectors), in_bulk(pair, tier)
    asked, theirs = encoder.encode_queries(aside.questions), encoder.encode_documents(aside.documents)
    by_tier, by_document = scores_of(aside, asked, theirs)
    said = {f"halfway.{share:g}.{tier}": score for share, score in by_tier.items()}
    said |= {f"halfway.{share:g}.document": score for share, score in by_document.items()}
    return best_of(by_tier, by_document), said


def scores_of(aside: SetAside, asked: Vectors, theirs: Vectors) -> tuple[dict[float, float], dict[float, float]]:
    """By share, nDCG@10 of a tier's queries over documents that come that far, and of the document encoder's."""
    given = {share: unit(aside.given + np.float32(share) * theirs) for share in (0.0, *SHARES)}
    return tuple({share: aside.score(by, met) for share, met in given.items()} for by in (asked, aside.taught))  # type: ignore[return-value]


def best_of(by_tier: Mapping[float, float], by_document: Mapping[float, float]) -> float:
    """The share that is best for the tier, among those that cost the document encoder's own queries nothing.

    >>> best_of({0.0: 40.0, 0.1: 42.0, 0.2: 43.0}, {0.0: 50.0, 0.1: 50.2, 0.2: 49.5})
    0.1
    """
    fair = [share for share in by_tier if by_document[share] >= by_document[0.0] - _LOST]
    return max(fair, key=lambda share: (by_tier[share], -share))
