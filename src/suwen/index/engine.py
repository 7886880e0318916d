"""What an engine is: the one page a new engine has to fill, and what it may refuse. No engine lives here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from suwen.corpora.records import Document, Metadata, Passage
from suwen.errors import SuwenError
from suwen.index.filters import Where

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
#: Told how much of a long job is done: ``progress(done, total)``.
Progress = Callable[[int, int], None]


class IndexProblem(SuwenError):
    """The root of everything an index complains about."""


class Ranking(NamedTuple):
    """Rows of passages, best first, with their scores."""

    rows: Rows
    scores: Vectors


class EncodedDocument(NamedTuple):
    """A document with its passages and one vector for each, as an engine takes it in."""

    document: Document
    passages: Sequence[Passage]
    vectors: Vectors
    #: Who made the vectors: a tier's name, or ``document`` for the document encoder.
    encoder: str
    #: Hash of what the passages were made from; a source that still has it need not be encoded again.
    digest: str = ""
    #: ``index`` for documents that mirror a source, ``add`` for those that came by hand.
    origin: str = "add"
    #: When it came (seconds since 1970), for a document that waits to be encoded by another encoder.
    arrived: float | None = None


class Waiting(NamedTuple):
    """A stored document whose vectors another encoder is to make."""

    id: str
    #: The digest it was stored with: what its vectors may replace.
    version: str
    #: Who made its present vectors.
    encoder: str
    #: When it came; None where an older version of the index did not write it down.
    arrived: float | None
    #: What is encoded of each passage, in order.
    contents: list[str]


class Backlog(NamedTuple):
    """How much waits, and since when the oldest does (None when nothing waits or nobody knows)."""

    documents: int
    passages: int
    oldest: float | None


class Reencoded(NamedTuple):
    """New vectors for a document's passages, made of the version named."""

    id: str
    version: str
    vectors: Vectors


#: What became of new vectors: ``stored``; ``done`` when that encoder's are there already; ``stale`` when the document
#: has changed since, ``gone`` when it was deleted.
Outcome = Literal["stored", "done", "stale", "gone"]


class Scale(NamedTuple):
    """What brings the scores of one encoder's passages to the scale of the others: ``slope * score + offset``."""

    slope: float
    offset: float


class StoredPassage(NamedTuple):
    """A passage as it comes back: with its document's metadata and the encoder of its vector."""

    row: int
    passage: Passage
    metadata: Metadata
    encoder: str


class Stats(NamedTuple):
    """What an index holds."""

    documents: int
    passages: int
    deleted: int
    dimension: int
    space: str
    encoders: Mapping[str, int]
    fields: Sequence[str]
    bytes_truth: int
    bytes_derived: int


class Snapshot(Protocol):
    """One consistent state of an index: every answer it gives belongs to the same moment."""

    def dense(
        self, vector: Vectors, k: int, where: Where | None = None, scales: Mapping[str, Scale] | None = None
    ) -> Ranking:
        """The ``k`` live passages nearest to ``vector``, among those ``where`` admits.

        Scores of passages whose encoder is in ``scales`` are mapped by it before the best are chosen.
        """

    def lexical(self, text: str, k: int, where: Where | None = None) -> Ranking:
        """The ``k`` live passages with the best BM25 score, among those ``where`` admits."""

    def fetch(self, rows: Sequence[int]) -> list[StoredPassage]:
        """The passages of these rows, in this order."""


class Engine(Protocol):
    """Stores encoded documents and finds passages; knows one space, and nothing of encoders."""

    @property
    def space(self) -> str:
        """The id of the space whose vectors it holds."""

    def add(self, documents: Sequence[EncodedDocument]) -> None:
        """Insert or replace whole documents. On return they are durable and searchable."""

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; the number that were there. On return they are gone, durably."""

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """The stored digest of each of these documents that is there."""

    def backlog(self, encoder: str) -> Backlog:
        """How much is stored with vectors of other encoders than this one."""

    def waiting(self, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
        """The oldest documents with vectors of other encoders than this one, without those in ``skip``."""

    def reencode(self, made: Sequence[Reencoded], encoder: str) -> dict[str, Outcome]:
        """Replace the vectors of documents that are still the version named; nothing else of them changes."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The newest state, held still until the context ends."""

    def stats(self) -> Stats:
        """Counts and sizes."""

    def close(self) -> None:
        """Let go of files and locks; a closed engine answers nothing."""


def check_documents(documents: Sequence[EncodedDocument], dimension: int) -> None:
    """Refuse documents that no engine of this dimension could store."""
    seen: set[str] = set()
    for document, passages, vectors, *_ in documents:
        if not document.id:
            raise IndexProblem("a document has an empty id: every document needs one")
        if document.id in seen:
            raise IndexProblem(f"document {document.id!r} is twice in one call: give each id once")
        seen.add(document.id)
        if vectors.shape != (len(passages), dimension):
            raise IndexProblem(
                f"document {document.id!r}: {len(passages)} passages of dimension {dimension} need vectors of "
                f"shape {(len(passages), dimension)}, not {vectors.shape}"
            )
        if not np.isfinite(vectors).all() or np.abs(vectors).max(initial=0) > 60_000:
            raise IndexProblem(
                f"document {document.id!r} has a vector with NaN, infinite or too large values: encode it again"
            )
