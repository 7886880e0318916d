"""What an engine is: the one page a new engine has to fill. No engine lives here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

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

    def dense(self, vector: Vectors, k: int, where: Where | None = None) -> Ranking:
        """The ``k`` live passages nearest to ``vector``, among those ``where`` admits."""

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

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The newest state, held still until the context ends."""

    def stats(self) -> Stats:
        """Counts and sizes."""

    def close(self) -> None:
        """Let go of files and locks; a closed engine answers nothing."""
