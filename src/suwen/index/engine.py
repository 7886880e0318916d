"""What an engine is: the one page a new engine has to fill, and what it may lack. No engine lives here.

Everything outside ``index/`` knows engines by these types alone; :mod:`suwen.index.opening` makes them, and the suite
in ``tests/index/contract`` holds every one of them to this page. Where what is still to come has its place:

* Several vectors of a passage are those of the questions it answers (:class:`Question`): one hit, by its best vector.
* Page and position: fields of :class:`~suwen.corpora.records.Passage`, which engines store and give back whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from suwen.corpora.records import Document, Metadata, Passage
from suwen.errors import SuwenError
from suwen.index.filters import Where

Vectors = npt.NDArray[np.float32]
#: What scores are: the inner product of vectors of length one, or of vectors as they are.
Similarity = Literal["cosine", "dot"]
Rows = npt.NDArray[np.int64]
#: Called with how much of a long job is done: ``progress(done, total)``.
Progress = Callable[[int, int], None]


class IndexProblem(SuwenError):
    """The root of everything an index complains about."""


class NotAnIndex(IndexProblem):
    """There is no index at this address, or one this version cannot read."""


class DamagedIndex(IndexProblem):
    """A part of the index is missing, foreign or broken; the message says how to get it back."""


class RowGone(DamagedIndex):
    """A row that is not there: who asked has it from an earlier moment, or from a file that is not this index's."""


class IndexLocked(IndexProblem):
    """Another process writes this index."""


class DiskFull(IndexProblem):
    """There is no room for what was to be written: nothing of the call was stored."""


@dataclass(frozen=True)
class Abilities:
    """What not every engine can do. Callers ask before they use it, by :func:`need` where they cannot do without.

    Attributes:
        consistent: A snapshot holds still: its dense, lexical and stored side are of one moment. Without it, a passage
            that was found may be gone when it is fetched.
        exact: :meth:`Snapshot.exact`.
        upkeep: :meth:`Engine.verify`, :meth:`Engine.compact` and :meth:`Engine.rebuild`.
        backup: :meth:`Engine.backup`.
        questions: Documents with :class:`Question`.
    """

    consistent: bool = False
    exact: bool = False
    upkeep: bool = False
    backup: bool = False
    questions: bool = False


class Ranking(NamedTuple):
    """Rows of passages, best first, with their scores."""

    rows: Rows
    scores: Vectors
    #: What a passage would score that had all of the query, where the engine knows it: of BM25, never of vectors.
    most: float | None = None
    #: Of the rows those that hold a rare name of the query, the best first, where somebody looked: no engine does.
    rare: tuple[int, ...] = ()
    #: Of a query that is a rare name and no more, the rows that hold it: 2 as it was typed, 1 by another name.
    exact: Mapping[int, int] = MappingProxyType({})


#: What else a query's wording is called: a stretch of the query as typed, and the names to search for beside it.
Alternatives = Mapping[str, Sequence[str]]


class Question(NamedTuple):
    """A question that a passage of a document answers: its vector is another vector of the passage, still one hit."""

    #: Of the passage.
    ordinal: int
    text: str


class EncodedDocument(NamedTuple):
    """A document as an engine takes it in: with its passages, one vector for each, then one for each question."""

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
    questions: Sequence[Question] = ()


class Waiting(NamedTuple):
    """A stored document whose vectors another encoder is to make."""

    id: str
    #: The digest it was stored with: what its vectors may replace.
    version: str
    #: Who made its present vectors.
    encoder: str
    #: When it came; None where an older version of the index did not write it down.
    arrived: float | None
    #: What is encoded of each passage, then of each question, in order.
    contents: list[str]


class Backlog(NamedTuple):
    """How much waits, and since when the oldest does (None when nothing waits or nobody knows)."""

    documents: int
    passages: int
    oldest: float | None


class Reencoded(NamedTuple):
    """New vectors for a document's passages and questions, made of the version named."""

    id: str
    version: str
    vectors: Vectors


#: What became of new vectors: ``stored``; ``done`` when that encoder's are there already; ``stale`` when the document
#: has changed since, ``gone`` when it was deleted; ``wrong`` when there is not one for each text that waits.
Outcome = Literal["stored", "done", "stale", "gone", "wrong"]


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


class StoredDocument(NamedTuple):
    """A document as it comes back: what the index keeps of it, and its passages in reading order."""

    id: str
    title: str
    metadata: Metadata
    #: The digest it was stored with.
    digest: str
    passages: list[StoredPassage]
    #: How it came, and when, as by :class:`EncodedDocument`.
    origin: str = "add"
    arrived: float | None = None
    questions: Sequence[Question] = ()

    @property
    def text(self) -> str:
        """Its text, put together from its passages; white space between two of them comes back as spaces."""
        text = ""
        for passage in (item.passage for item in self.passages):
            text = text.ljust(passage.start)
            text += passage.text[len(text) - passage.start :]
        return text


class Known(NamedTuple):
    """What a stored document was made from, and who made its vectors (nobody, where it has no passage)."""

    digest: str
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
    #: The version of its format.
    format: int
    questions: int = 0


class Snapshot(Protocol):
    """The state of an index that a ``with engine.snapshot()`` block works on."""

    @property
    def last_row(self) -> int:
        """The highest row given out so far: grows with every passage added, and never falls."""

    @property
    def encoders(self) -> Sequence[str]:
        """Who encoded anything that is there."""

    def fields(self) -> list[str]:
        """The fields of metadata that any document has, ascending."""

    def dense(
        self,
        vector: Vectors,
        k: int,
        where: Where | None = None,
        scales: Mapping[str, Scale] | None = None,
        beside: Rows | None = None,
    ) -> Ranking:
        """The ``k`` live passages nearest to ``vector``, among those ``where`` admits, and below them ``beside``.

        Scores of passages whose encoder is in ``scales`` are mapped by it before the best are chosen. ``beside`` are
        ascending rows that the filter admits; one that a search that guesses has passed over takes its place.
        """

    def lexical(self, text: str, k: int, where: Where | None = None, also: Alternatives | None = None) -> Ranking:
        """The ``k`` admitted live passages with the best BM25; names in ``also`` count nearly as what they stand by."""

    def vocabulary(self, terms: Sequence[str]) -> list[int]:
        """In how many passages each of these words or character pairs stands, deleted ones perhaps among them."""

    def terms(self, prefix: str) -> list[tuple[str, int]]:
        """The words that begin with these letters, and in how many passages each stands."""

    def fetch(self, rows: Sequence[int]) -> list[StoredPassage]:
        """The passages of these rows, in this order."""

    def document(self, id_: str) -> StoredDocument | None:
        """A whole document, if it is there."""

    def count(self, encoder: str, most: int) -> int:
        """How many passages one encoder encoded, counted up to ``most``."""

    def sample(self, count: int, encoder: str | None = None) -> tuple[Rows, Vectors]:
        """About ``count`` live passages, of one encoder or of any, spread evenly over the index."""

    def vectors(self, rows: Rows) -> Vectors:
        """The own vectors of these live passages, in this order; not those of their questions."""

    def exact(self, vectors: Vectors, k: int, progress: Progress | None = None) -> list[Ranking]:
        """Exact search for several vectors: the measure of recall."""


class Engine(Protocol):
    """Stores encoded documents and finds passages; knows one space, and nothing of encoders."""

    #: Where the index is, as it was opened.
    address: str
    #: What it can do beside what every engine can.
    abilities: Abilities
    #: The id of the space whose vectors it holds.
    space: str
    #: How these are compared; no caller takes scores for cosines.
    similarity: Similarity

    def add(self, documents: Sequence[EncodedDocument], settings: Mapping[str, str | int] | None = None) -> None:
        """Insert or replace whole documents. On return they are durable and searchable.

        Settings are kept as by :meth:`remember`, in the same step: both are there, or neither.
        """

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; the number that were there. On return they are gone, durably."""

    def known(self, ids: Sequence[str]) -> dict[str, Known]:
        """Of these documents those that are there, with what they were made from."""

    def ids(self, after: str = "", limit: int = 10_000, origin: str | None = None) -> list[str]:
        """The first ids past ``after``, ascending: of all documents, or of those that came one way."""

    def stored_vectors(self, id_: str, encoder: str) -> dict[str, Vectors]:
        """What one encoder made of a document's passages and questions: vectors by what was encoded."""

    def backlog(self, encoder: str) -> Backlog:
        """How much is stored with vectors of other encoders than this one."""

    def waiting(self, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
        """The oldest documents with vectors of other encoders than this one, without those in ``skip``."""

    def reencode(self, made: Sequence[Reencoded], encoder: str) -> dict[str, Outcome]:
        """Replace the vectors of documents that are still the version named; nothing else of them changes.

        Compared and replaced in one step: what was posted or deleted meanwhile is never written over, and every search
        finds a document once, by its old vectors or by its new ones.
        """

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The newest state, held still until the context ends where the engine is ``consistent``."""

    def stats(self) -> Stats:
        """Counts and sizes; cheap when nothing has changed."""

    def settings(self) -> Mapping[str, str | int]:
        """What :meth:`remember` was called with, all calls together."""

    def remember(self, **settings: str | int) -> None:
        """Keep a few small settings with the data, such as the pair that was used."""

    def put_blob(self, name: str, data: bytes) -> None:
        """Keep something that was derived from the index under a name such as ``sample.npz``, whole or not at all.

        It may get lost, in a backup for one: who kept it makes it again. Readers may keep things too.
        """

    def get_blob(self, name: str) -> bytes | None:
        """What is kept under a name, if anything is."""

    def blob_version(self, name: str) -> int | None:
        """A number that changes with what is kept under a name; None when nothing is. Asked at every search."""

    def verify(self, progress: Progress | None = None) -> list[str]:
        """Read everything and compare; the problems in words, none when all is well."""

    def compact(self, progress: Progress | None = None) -> bool:
        """Give the space of deleted passages back, but perhaps of a few, hidden; whether there was anything to do."""

    def rebuild(self, progress: Progress | None = None) -> None:
        """Derive again whatever searches need, while searches go on."""

    def backup(self, target: Path) -> Path:
        """Copy the live index to a new folder, from which :func:`suwen.index.opening.restore` makes an index."""

    def close(self) -> None:
        """Let go of files and locks; a closed engine answers nothing."""


class Held(NamedTuple):
    """Something that an engine promises, and whether it held when it was tried."""

    promise: str
    #: What went wrong; empty where it held.
    problem: str


def need(engine: Engine, ability: Literal["consistent", "exact", "upkeep", "backup", "questions"]) -> None:
    """Refuse to go on with an engine that lacks an ability."""
    if not getattr(engine.abilities, ability):
        raise IndexProblem(f"the engine of {engine.address} cannot do this (it lacks: {ability}): use its own tools")


def all_ids(engine: Engine, after: str = "", origin: str | None = None) -> Iterator[str]:
    """The ids past ``after``, ascending, a page at a time."""
    while page := engine.ids(after, origin=origin):
        yield from page
        after = page[-1]


def check_documents(documents: Sequence[EncodedDocument], dimension: int) -> None:
    """Refuse documents that no engine of this dimension could store."""
    seen: set[str] = set()
    for encoded in documents:
        document, passages, vectors, questions = encoded.document, encoded.passages, encoded.vectors, encoded.questions
        if not document.id:
            raise IndexProblem("a document has an empty id: every document needs one")
        if document.id in seen:
            raise IndexProblem(f"document {document.id!r} is twice in one call: give each id once")
        seen.add(document.id)
        if vectors.shape != (count := len(passages) + len(questions), dimension):
            asked = f" and {len(questions)} questions" if questions else ""
            raise IndexProblem(
                f"document {document.id!r}: {len(passages)} passages{asked} of dimension {dimension} need vectors of "
                f"shape {(count, dimension)}, not {vectors.shape}"
            )
        if {asked.ordinal for asked in questions} - {passage.ordinal for passage in passages}:
            raise IndexProblem(f"document {document.id!r} has a question of a passage it has not: name one it has")
        if not np.isfinite(vectors).all() or np.abs(vectors).max(initial=0) > 60_000:
            raise IndexProblem(
                f"document {document.id!r} has a vector with NaN, infinite or too large values: encode it again"
            )
