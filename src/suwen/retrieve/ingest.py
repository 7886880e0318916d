"""Taking documents into an index: split, encode only what changed, store, and drop what is gone. Reads no files."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from suwen.choices import OVERLAP as OVERLAP
from suwen.choices import SIZE as SIZE
from suwen.choices import Duplicates as Duplicates
from suwen.corpora.passages import split_document
from suwen.corpora.records import Document, Passage
from suwen.encoders.cores import in_bulk
from suwen.encoders.pair import Pair
from suwen.encoders.query import Encoder
from suwen.encoders.who_encodes import encode_documents, own_encoder, tier_at_once
from suwen.index.engine import EncodedDocument, Engine, Known, Question, Vectors, all_ids
from suwen.retrieve.freshness import kept_tier
from suwen.retrieve.questions import SOME, QuestionFile, carried, settled, without_mark
from suwen.retrieve.seen_ids import IngestError as IngestError
from suwen.retrieve.seen_ids import SeenIds as SeenIds

#: A batch is stored when it has this many passages or has waited this long: bounds memory, and what a kill can cost.
#: Where encoding them takes longer, batches are smaller: 4,096 passages would be minutes of a transformer.
_BATCH_PASSAGES = 4096
_BATCH_SECONDS = 5.0
#: Enough for every core and for a GPU's batches by length, and still progress that moves.
_ENCODE_AT_ONCE = 512
#: More than this share of an index gone from its sources is more likely the wrong folder than a clean-up.
_MOST_GONE = 0.2

#: Called with how many documents are done and how many passages encoded so far.
IngestProgress = Callable[[int, int], None]


class TooManyPassages(IngestError):
    """Documents that have more passages than one step may have. Nothing of them was encoded or stored."""


class OneStep(NamedTuple):
    """Documents that are stored in one durable step: all of them, or none.

    Attributes:
        passages: The most that they may have together.
        remember: Makes settings of what the step will have done, which the index keeps in the same step: see
            :meth:`suwen.index.engine.Engine.add`.
    """

    passages: int
    remember: Callable[[IngestReport], Mapping[str, str | int]] | None = None


class TooManyGone(IngestError):
    """Most of an index is not in the sources any more: nothing was removed. What was read is stored."""


def _checked(documents: Iterable[Any]) -> Iterator[Document]:
    """Documents, or what callers from Python give that is none."""
    if isinstance(documents, Document):
        raise IngestError("one document is given where several may be: give a list: add([document])")
    for document in documents:
        if not isinstance(document, Document):
            raise IngestError(
                f"a {type(document).__name__} is no document: make one of it, Document(id, text, title, metadata) of "
                "suwen.corpora.records"
            )
        for field, value in document.metadata.items():
            values: list[Any] = value if isinstance(value, list) else [value]
            wrong = [type(one).__name__ for one in values if isinstance(one, list | dict | tuple | set)]
            if wrong:
                what = f"has a {wrong[0]} in it" if values is value else f"is a {wrong[0]}"
                raise IngestError(
                    f"the field {field!r} of document {document.id!r} {what}: metadata takes texts, numbers, true or "
                    "false, and lists of these"
                )
        yield document


def refuse_gone(report: IngestReport, address: object) -> None:
    """Raise :class:`TooManyGone` where documents were left that a mirror was not allowed to remove."""
    if report.kept:
        raise TooManyGone(
            f"{address}: more than a fifth of it is not in these sources, and was not removed "
            f"(documents: {report.kept:,}); what was read is stored. To remove it run the same command with "
            "--prune, or say prune=True; to keep these sources apart from it, name another index"
        )


class ReadyVectors(Protocol):
    """Vectors made elsewhere, looked up by passage."""

    name: str

    def take(self, passages: Sequence[Passage]) -> Vectors:
        """The vectors of these passages; a passage without one is an error."""


@dataclass
class IngestReport:
    """What a run did."""

    encoder: str
    read: int = 0
    added: int = 0
    changed: int = 0
    #: The same documents as before, with vectors by another encoder or cut into other passages.
    reencoded: int = 0
    unchanged: int = 0
    removed: int = 0
    #: Gone from the sources and still in the index, because they are too many to go unasked.
    kept: int = 0
    #: Not read this time, and still in the index: their file could not be read, or not all of it.
    unread: int = 0
    passages: int = 0
    encoded: int = 0
    seconds: float = 0.0
    #: Questions stored with the passages that answer them.
    questions: int = 0

    def and_then(self, later: IngestReport) -> IngestReport:
        """What both runs did together, where the later one encoded again what this one had stored."""
        came, changed = self.added + later.added, self.changed + later.changed
        return replace(
            later,
            added=came,
            changed=changed,
            reencoded=max(0, later.read - came - changed - later.unchanged),
            removed=self.removed + later.removed,
            encoded=self.encoded + later.encoded,
            seconds=round(self.seconds + later.seconds, 3),
        )


class _Held(NamedTuple):
    """A document that waits to be encoded and stored."""

    document: Document
    passages: list[Passage]
    questions: list[Question]
    digest: str

    @property
    def contents(self) -> list[str]:
        """What is encoded of it."""
        return [*(passage.content for passage in self.passages), *(asked.text for asked in self.questions)]


class Ingestion:
    """One run that brings documents into an index; what is asked for is said by ``Index.add``."""

    def __init__(
        self,
        engine: Engine,
        pair: Pair,
        *,
        mirror: bool,
        prune: bool,
        unread: Collection[str],
        encoder: Encoder | None,
        ready: ReadyVectors | None,
        questions: QuestionFile | None,
        size: int | None,
        overlap: int | None,
        keep: bool,
        step: OneStep | None,
        progress: IngestProgress | None,
    ) -> None:
        self._engine, self._pair, self._keep = engine, pair, keep
        self._mirror, self._prune, self._unread = mirror, prune, unread
        self._own, self._ready, self._origin = own_encoder(pair), ready, "index" if mirror else "add"
        self._size, self._overlap = _passage_settings(engine, size, overlap)
        self._encoder: Encoder = encoder or in_bulk(pair, kept_tier(engine, pair) or tier_at_once(pair))
        self._maker = ready.name if ready else self._encoder.name
        self._progress = progress or (lambda documents, passages: None)
        self._waiting: list[_Held] = []
        self._questions = questions
        self._held, self._step = 0, step
        self._stored_at = time.monotonic()
        # Ready vectors cost nothing, and are probed with many passages.
        self._room = _BATCH_PASSAGES if ready else min(_BATCH_PASSAGES, _ENCODE_AT_ONCE)
        self._report = IngestReport(self._maker)

    def run(self, documents: Iterable[Document], duplicates: Duplicates) -> IngestReport:
        """Take them in. Interrupt it and run it again: what was stored is not encoded twice."""
        started = time.monotonic()
        with SeenIds() as seen:
            # Stored before an id comes again: one call of the engine takes each id once.
            stored = "Nothing is stored" if self._step else "What was read before it is stored"
            for document in seen.once(_checked(documents), duplicates, stored, self._repeated):
                self._take(document)
            self._flush()
            if self._mirror:
                self._drop_the_gone(seen)
        self._report.seconds = round(time.monotonic() - started, 3)
        return self._report

    def _take(self, document: Document) -> None:
        """Look at one document; store the batch when it is full."""
        self._report.read += 1
        known = self._engine.known([document.id]).get(document.id)
        same = known is not None and self._fits(known, document, self._maker)
        if same or (known is not None and self._keep and self._is_encoded(document, known)):
            self._report.unchanged += 1
            self._tell_progress(0.0)
            return
        self._count(document, known)
        passages = split_document(document, self._pair.count_tokens, self._size, self._overlap)
        if not passages:
            raise IngestError(f"document {document.id!r} has no text: give it some, or leave it out of the source")
        questions, mark = self._asked(document, passages, known)
        digest = self._digest(document, self._maker) + mark
        self._waiting.append(_Held(document, passages, questions, digest))
        self._held += len(passages) + len(questions)
        if self._step is not None:
            self._check_step(document, self._step.passages)
        elif self._held >= self._room or time.monotonic() - self._stored_at > _BATCH_SECONDS:
            self._flush()

    def _asked(self, document: Document, passages: list[Passage], known: Known | None) -> tuple[list[Question], str]:
        """The questions of a document, and their part of its digest: as the file says, else those it has."""
        if self._questions is not None:
            return self._questions.of(document.id, passages), self._questions.mark(document.id)
        questions, mark = carried(self._engine, document.id, known.digest if known else "", passages)
        if self._ready is not None and questions:
            # Vectors made elsewhere are of passages: a question keeps its own, where the same encoder made it.
            made = self._engine.stored_vectors(document.id, self._maker)
            here = [asked for asked in questions if asked.text in made]
            return here, mark if len(here) == len(questions) else SOME if here else ""
        return questions, mark

    def _fits(self, known: Known, document: Document, maker: str) -> bool:
        """Whether a document is stored as it would be now; without a file, whatever questions it has."""
        digest = self._digest(document, maker)
        if self._questions is None:
            return without_mark(known.digest) == digest
        return known.digest == digest + self._questions.mark(document.id)

    def _tell_progress(self, share: float) -> None:
        """Of the documents that wait, a share is done: a batch is read in no time, and encoded in a minute."""
        left = math.ceil((1 - share) * len(self._waiting))
        self._progress(self._report.read - left, self._report.encoded)

    def _repeated(self) -> None:
        if self._step is None:
            self._flush()

    def _check_step(self, document: Document, most: int) -> None:
        if self._held > most:
            raise TooManyPassages(
                f"with document {document.id!r} this is more than {most} passages, the most that are taken in one "
                "step: send fewer or shorter documents, or import them"
            )

    def _count(self, document: Document, known: Known | None) -> None:
        """Count a document that is about to be stored as new, as changed, or as the same one encoded again."""
        if known is None:
            self._report.added += 1
        elif self._is_the_same(document):
            self._report.reencoded += 1
        else:
            self._report.changed += 1

    def _is_the_same(self, document: Document) -> bool:
        """Whether the index holds this very document, however it was cut and encoded.

        Not told by its digest, which has the passage size in it: a run that was stopped may have changed that already.
        """
        with self._engine.snapshot() as snapshot:
            stored = snapshot.document(document.id)
        if stored is None or (stored.title, stored.metadata) != (document.title, document.metadata):
            return False
        # White space between two passages is not kept.
        return "".join(stored.text.split()) == "".join(document.text.split())

    def _is_encoded(self, document: Document, known: Known) -> bool:
        """Whether this very document is stored with the own encoder's vectors, whoever encoded it when it came."""
        makers = (self._own, *self._pair.tiers) if known.encoder == self._own else ()
        return any(self._fits(known, document, maker) for maker in makers)

    def _flush(self) -> None:
        """Encode and store what waits, in one durable step."""
        remember = self._step.remember if self._step else None
        if not self._waiting and remember is None:
            return
        began = time.monotonic()
        documents = list(self._encoded()) if self._waiting else []
        self._engine.add(documents, remember(self._report) if remember else None)
        self._waiting.clear()
        self._held = 0
        self._stored_at = time.monotonic()
        if self._stored_at - began < _BATCH_SECONDS / 2:
            self._room = min(_BATCH_PASSAGES, 2 * self._room)

    def _encoded(self) -> Iterator[EncodedDocument]:
        vectors = self._made()
        self._tell_progress(1.0)
        start = 0
        for document, passages, questions, digest in self._waiting:
            own = vectors[start : start + len(passages) + len(questions)]
            start += len(own)
            arrived = None if self._maker == self._own else time.time()
            self._report.passages += len(passages)
            self._report.questions += len(questions)
            asked = settled(questions, own, passages)
            yield EncodedDocument(document, passages, own, self._maker, digest, self._origin, arrived, asked)

    def _made(self) -> Vectors:
        """A vector for each text; one that the index has from the same encoder is not encoded again."""
        vectors = np.empty((self._held, self._pair.space.dimension), dtype=np.float32)
        # For the whole batch at once: an encoder is at its best, and ready vectors can be probed, with many passages.
        passages = [passage for one in self._waiting for passage in one.passages]
        given = iter(self._ready.take(passages)) if self._ready else iter(())
        missing: list[tuple[int, str]] = []
        place = 0
        for one in self._waiting:
            known = self._engine.stored_vectors(one.document.id, self._maker)
            for number, content in enumerate(one.contents):
                if self._ready and number < len(one.passages):
                    vectors[place] = next(given)
                elif content in known:
                    vectors[place] = known[content]
                else:
                    missing.append((place, content))
                place += 1
        for start in range(0, len(missing), _ENCODE_AT_ONCE):
            places, contents = zip(*missing[start : start + _ENCODE_AT_ONCE], strict=True)
            vectors[list(places)] = encode_documents(self._pair, self._encoder, contents)
            self._report.encoded += len(contents)
            self._tell_progress((start + len(contents)) / len(missing))
        return vectors

    def _digest(self, document: Document, maker: str) -> str:
        """Changes with anything that would change what is stored."""
        parts = [document.title, document.text, document.metadata, self._size, self._overlap, maker]
        try:
            content = json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()
        except UnicodeEncodeError as problem:
            raise IngestError(
                f"document {document.id!r} holds half a character ({problem.reason}): clean its text with "
                "suwen.text.clean.clean first"
            ) from problem
        return hashlib.sha256(content).hexdigest()[:32]

    def _drop_the_gone(self, seen: SeenIds) -> None:
        if self._report.read == 0:
            raise IngestError("the source holds no documents: nothing was changed. Check the path and the format")
        there, gone = 0, []
        for id_ in all_ids(self._engine, origin="index"):
            there += 1
            if id_ not in seen:
                if self._is_unread(id_):
                    self._report.unread += 1
                else:
                    gone.append(id_)
        if not self._prune and len(gone) > _MOST_GONE * (there - self._report.added):
            self._report.kept = len(gone)
            return
        for start in range(0, len(gone), 1000):
            self._engine.delete(gone[start : start + 1000])
        self._report.removed = len(gone)

    def _is_unread(self, id_: str) -> bool:
        """Whether a document may be of a file, or in a folder, that was not read; any may be where nobody knows."""
        if "" in self._unread and not self._prune:
            return True
        ends = [at for at, sign in enumerate(id_) if sign in "#/"] if self._unread else []
        return any(id_[:end] in self._unread for end in (*ends, len(id_)) if end)


def _passage_settings(engine: Engine, size: int | None, overlap: int | None) -> tuple[int, int]:
    """The size and overlap to use, remembered by the index so that later additions are cut alike."""
    settings = engine.settings()
    chosen = (
        size if size is not None else int(settings.get("size", SIZE)),
        overlap if overlap is not None else int(settings.get("overlap", OVERLAP)),
    )
    if chosen[0] < 8 or not 0 <= chosen[1] < chosen[0]:
        raise IngestError(
            f"passages of {chosen[0]} tokens with {chosen[1]} overlap: size is at least 8, overlap less than size"
        )
    if chosen != (settings.get("size"), settings.get("overlap")):
        engine.remember(size=chosen[0], overlap=chosen[1])
    return chosen
