"""Taking documents into an index: split, encode only what changed, store, and drop what is gone. Reads no files."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from suwen.corpora.passages import split_document
from suwen.corpora.records import Document, Passage
from suwen.encoders.cores import in_bulk
from suwen.encoders.query import Encoder
from suwen.encoders.who_encodes import own_encoder, tier_at_once
from suwen.errors import SuwenError
from suwen.index.engine import EncodedDocument, Vectors
from suwen.retrieve.retriever import Index

#: Passage size and overlap in tokens of the pair's query tokenizer.
SIZE, OVERLAP = 200, 40
#: A batch is stored when it has this many passages or has waited this long: bounds memory, and what a kill can cost.
_BATCH_PASSAGES = 4096
_BATCH_SECONDS = 5.0
#: Enough for every core and for a GPU's batches by length, and still progress that moves.
_ENCODE_AT_ONCE = 512

#: Told how many documents were read and how many passages encoded so far.
IngestProgress = Callable[[int, int], None]


class IngestError(SuwenError):
    """A source that cannot be taken in as it is. What was stored before stays."""


class ReadyVectors(Protocol):
    """Vectors made elsewhere, looked up by passage."""

    name: str

    def take(self, passages: Sequence[Passage]) -> Vectors:
        """The vectors of these passages; a passage without one is an error."""


@dataclass(frozen=True)
class IngestReport:
    """What a run did."""

    read: int
    added: int
    changed: int
    unchanged: int
    removed: int
    passages: int
    encoded: int
    encoder: str
    seconds: float


def ingest(
    index: Index,
    documents: Iterable[Document],
    *,
    mirror: bool = False,
    encoder: Encoder | None = None,
    ready: ReadyVectors | None = None,
    size: int | None = None,
    overlap: int | None = None,
    duplicates: Literal["error", "first", "last"] = "error",
    keep: bool = True,
    progress: IngestProgress | None = None,
) -> IngestReport:
    """Bring documents into an index. Interrupt it and run it again: what was stored is not encoded twice.

    Args:
        index: Open for writing.
        documents: Streamed; memory does not grow with their number.
        mirror: Afterwards, drop the documents of earlier mirror runs that this stream no longer has.
        encoder: Makes the vectors; a tier of the pair when not given.
        ready: Vectors made elsewhere, instead of an encoder.
        size: Tokens of a passage; what the index was built with when not given.
        overlap: Tokens that neighbouring passages share, likewise.
        duplicates: What to do with an id that comes twice.
        keep: Leave a document alone that has not changed and that the pair's own document encoder has encoded, even
            where a tier would now stand in for it.
        progress: Told about documents read and passages encoded.
    """
    run = _Run(index, encoder, ready, *_passage_settings(index, size, overlap), mirror, keep, progress)
    with _Seen() as seen:
        for document in documents:
            if not seen.add(document.id):
                if duplicates == "error":
                    run.flush()
                    raise IngestError(
                        f"document id {document.id!r} comes twice: make ids unique, or choose to keep the first or the "
                        "last one (--duplicates first|last). What was read before it is stored"
                    )
                if duplicates == "first":
                    continue
                run.flush()
            run.take(document)
        run.flush()
        if mirror:
            if run.read == 0:
                raise IngestError("the source holds no documents: nothing was changed. Check the path and the format")
            run.removed = _drop_the_gone(index, seen)
    # Measuring costs dozens of searches: a document posted to a large index does not wait for them.
    if (run.added or run.changed) and (mirror or not index.calibrated()):
        index.calibrate()
    return run.report()


class _Run:
    """The state of one run: what waits to be stored, and the counts."""

    def __init__(
        self,
        index: Index,
        encoder: Encoder | None,
        ready: ReadyVectors | None,
        size: int,
        overlap: int,
        mirror: bool,
        keep: bool,
        progress: IngestProgress | None,
    ) -> None:
        self.keep, self.own = keep, own_encoder(index.pair)
        self.index, self.ready, self.size, self.overlap = index, ready, size, overlap
        self.encoder: Encoder = encoder or in_bulk(index.pair, tier_at_once(index.pair))
        self.maker = ready.name if ready else self.encoder.name
        self.origin = "index" if mirror else "add"
        self._progress = progress or (lambda documents, passages: None)
        self._waiting: list[tuple[Document, list[Passage], str]] = []
        self._held = 0
        self._stored_at = self._started = time.monotonic()
        self.read = self.added = self.changed = self.unchanged = self.removed = self.passages = self.encoded = 0

    def take(self, document: Document) -> None:
        """Look at one document; store the batch when it is full."""
        self.read += 1
        digest = self._digest(document, self.maker)
        known = self.index.engine.digests([document.id]).get(document.id)
        if known == digest or (known is not None and self.keep and self._is_encoded(document, known)):
            self.unchanged += 1
            self._progress(self.read, self.encoded)
            return
        self.added, self.changed = self.added + (known is None), self.changed + (known is not None)
        passages = split_document(document, self.index.pair.count_tokens, self.size, self.overlap)
        if not passages:
            raise IngestError(f"document {document.id!r} has no text: give it some, or leave it out of the source")
        self._waiting.append((document, passages, digest))
        self._held += len(passages)
        if self._held >= _BATCH_PASSAGES or time.monotonic() - self._stored_at > _BATCH_SECONDS:
            self.flush()

    def _is_encoded(self, document: Document, known: str) -> bool:
        """Whether this very document is stored with the own encoder's vectors, whoever encoded it when it came."""
        if self.index.engine.encoder_of(document.id) != self.own:
            return False
        return any(self._digest(document, maker) == known for maker in (self.own, *self.index.pair.tiers))

    def flush(self) -> None:
        """Encode and store what waits, in one durable step."""
        if not self._waiting:
            return
        self.index.engine.add(list(self._encoded()))
        self._waiting.clear()
        self._held = 0
        self._stored_at = time.monotonic()

    def _encoded(self) -> Iterator[EncodedDocument]:
        # For the whole batch at once: an encoder is at its best, and ready vectors can be probed, with many passages.
        waiting = [passage for _, passages, _ in self._waiting for passage in passages]
        vectors = self.ready.take(waiting) if self.ready else self._made()
        start = 0
        for document, passages, digest in self._waiting:
            end = start + len(passages)
            arrived = None if self.maker == self.own else time.time()
            self.passages += len(passages)
            self._progress(self.read, self.encoded)
            yield EncodedDocument(document, passages, vectors[start:end], self.maker, digest, self.origin, arrived)
            start = end

    def _made(self) -> Vectors:
        """A vector for each passage; one whose content the index has from the same encoder is not encoded again."""
        vectors = np.empty((self._held, self.index.pair.space.dimension), dtype=np.float32)
        missing: list[tuple[int, str]] = []
        place = 0
        for document, passages, _ in self._waiting:
            known = self.index.engine.stored_vectors(document.id, self.maker)
            for passage in passages:
                if passage.content in known:
                    vectors[place] = known[passage.content]
                else:
                    missing.append((place, passage.content))
                place += 1
        for start in range(0, len(missing), _ENCODE_AT_ONCE):
            places, contents = zip(*missing[start : start + _ENCODE_AT_ONCE], strict=True)
            vectors[list(places)] = self.encoder.encode_documents(contents)
            self.encoded += len(contents)
            self._progress(self.read, self.encoded)
        return vectors

    def _digest(self, document: Document, maker: str) -> str:
        """Changes with anything that would change what is stored."""
        parts = [document.title, document.text, document.metadata, self.size, self.overlap, maker]
        try:
            told = json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()
        except UnicodeEncodeError as problem:
            raise IngestError(
                f"document {document.id!r} holds half a character ({problem.reason}): clean its text with "
                "suwen.text.clean.clean first"
            ) from problem
        return hashlib.sha256(told).hexdigest()[:32]

    def report(self) -> IngestReport:
        """The counts so far."""
        return IngestReport(
            read=self.read,
            added=self.added,
            changed=self.changed,
            unchanged=self.unchanged,
            removed=self.removed,
            passages=self.passages,
            encoded=self.encoded,
            encoder=self.maker,
            seconds=round(time.monotonic() - self._started, 3),
        )


class _Seen:
    """The ids a run has met, kept on disk: a set of ten million would not fit a small machine."""

    def __enter__(self) -> _Seen:
        # An empty name is SQLite's own temporary file, gone when the connection closes.
        self._ids = sqlite3.connect("", isolation_level=None)
        self._ids.execute("CREATE TABLE ids(id TEXT PRIMARY KEY) WITHOUT ROWID")
        self._ids.execute("BEGIN")
        return self

    def __exit__(self, *_: object) -> None:
        self._ids.close()

    def add(self, id_: str) -> bool:
        """Note an id; False when it was there."""
        return self._ids.execute("INSERT OR IGNORE INTO ids VALUES(?)", (id_,)).rowcount == 1

    def __contains__(self, id_: str) -> bool:
        return self._ids.execute("SELECT 1 FROM ids WHERE id = ?", (id_,)).fetchone() is not None


def _drop_the_gone(index: Index, seen: _Seen) -> int:
    gone = [id_ for id_ in index.engine.document_ids("index") if id_ not in seen]
    for start in range(0, len(gone), 1000):
        index.engine.delete(gone[start : start + 1000])
    return len(gone)


def _passage_settings(index: Index, size: int | None, overlap: int | None) -> tuple[int, int]:
    """The size and overlap to use, remembered by the index so that later additions are cut alike."""
    settings = index.engine.settings()
    chosen = (
        size if size is not None else int(settings.get("size", SIZE)),
        overlap if overlap is not None else int(settings.get("overlap", OVERLAP)),
    )
    if chosen[0] < 8 or not 0 <= chosen[1] < chosen[0]:
        raise IngestError(
            f"passages of {chosen[0]} tokens with {chosen[1]} overlap: size is at least 8, overlap less than size"
        )
    if chosen != (settings.get("size"), settings.get("overlap")):
        index.engine.remember(size=chosen[0], overlap=chosen[1])
    return chosen
