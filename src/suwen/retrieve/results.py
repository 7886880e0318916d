"""What a search gives back. Plain data, ready for JSON; no searching here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from suwen.corpora.records import Metadata, Scalar


@dataclass(frozen=True)
class Highlight:
    """A sentence of a passage that matches; offsets are into the passage's text.

    ``terms`` are the stretches that match the query's words, as offsets too; empty when the sentence matches in
    meaning alone.
    """

    start: int
    end: int
    text: str
    terms: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Leg:
    """Where one way of searching put a hit."""

    #: Past the 200 best by meaning, its place among those and all that words found.
    rank: int
    #: Cosine or inner product, as the space has it (of a fresh passage on the scale of encoded ones: see
    #: :mod:`suwen.retrieve.freshness`), or BM25.
    score: float
    #: What the fusion made of it: by scores the cosine itself, and for BM25 its share of the most its query could
    #: score, to the power of 0.6, more of it where that most is higher; by ranks 1 / (60 + rank).
    value: float


#: Why a hit stands elsewhere than its score put it. Higher: it is ``like_first``, like the first hits; it stands out by
#: its ``words``, or they are rare names; it holds all of the ``name`` that was asked for; it is an ``answer``, above
#: bare names. Lower: it is ``less_like`` the first hits than others; it is a ``bare_name``, below what answers.
Moved = Literal["like_first", "words", "name", "answer", "less_like", "bare_name"]


@dataclass(frozen=True)
class Explanation:
    """Why a hit stands where it stands."""

    mode: str
    space: str
    tier: str | None
    #: Who encoded the passage: ``document`` or a tier's name.
    encoder: str
    dense: Leg | None
    lexical: Leg | None
    #: Of the legs, in hybrid: the hit's score is the weighted mean of their values, by ranks the weighted sum; one that
    #: was moved, or made way for another, has the score of its place (a bare name and what stands above it, their own).
    weights: dict[str, float]
    #: ``scores`` or ``ranks``; None where one leg was searched alone.
    fusion: str | None
    #: The reranker's score, in precise mode; None where it has not read the passage.
    precise: float | None = None
    #: Why it was moved, in the order in which it was; empty where it was not, but for making way.
    moved: tuple[Moved, ...] = ()


@dataclass(frozen=True)
class Hit:
    """One passage found."""

    id: str
    document_id: str
    score: float
    title: str
    text: str
    start: int
    end: int
    metadata: Metadata
    highlights: tuple[Highlight, ...] = ()
    explanation: Explanation | None = None
    #: Who encoded the passage: ``document`` or a tier's name.
    encoder: str = ""
    #: With highlights: the stretches of the title that match the query's words, as offsets into it.
    title_terms: tuple[tuple[int, int], ...] = ()
    #: How likely it is that the passage helps, from 0 to 1: see :mod:`suwen.retrieve.relevance`.
    confidence: float = 0.0
    #: Passages that say the same in nearly the same words, and that this hit stands for.
    same: tuple[str, ...] = ()


@dataclass(frozen=True)
class FacetValue:
    """How many of the documents found have a value."""

    value: Scalar
    count: int


@dataclass(frozen=True)
class Facet:
    """The values of one field among the documents found, most frequent first."""

    values: tuple[FacetValue, ...]
    #: How many values beyond those there are.
    more: int
    #: How many documents have none.
    missing: int


@dataclass(frozen=True)
class Results:
    """The hits of one query, best first. Iterates, indexes and counts like a list of them."""

    query: str
    hits: tuple[Hit, ...]
    mode: str
    tier: str | None
    #: False when nothing in the index seems to answer: the hits are then the nearest there is, not answers. True just
    #: where the best confidence is at least 0.4.
    relevant: bool
    #: What ``relevant`` was decided on.
    evidence: dict[str, float] = field(default_factory=dict)
    #: Milliseconds: ``encode``, ``search``, ``total``; in precise mode ``rerank``.
    timings: dict[str, float] = field(default_factory=dict)
    #: Things the caller should know, such as a query that was cut.
    notes: tuple[str, ...] = ()
    #: The values of the fields asked for, counted among the best documents found.
    facets: dict[str, Facet] = field(default_factory=dict)
    #: Other names that were searched for beside what was typed, and words whose spelling was set right.
    also_searched: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, position: int) -> Hit:
        return self.hits[position]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can carry it."""
        return asdict(self)
