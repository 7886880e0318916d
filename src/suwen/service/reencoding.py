"""What a server does in the background: encode fresh documents anew, and keep their scores comparable. No HTTP.

Only where a document encoder is configured are documents encoded here; else they wait for a worker. The sample that
makes fresh and encoded scores comparable is made in either case: it needs the tier alone.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from suwen.encoders.pair import Pair
from suwen.encoders.space import AdapterDocument, TierDocument
from suwen.errors import SuwenError
from suwen.index.engine import Reencoded, Vectors, Waiting
from suwen.retrieve.encoding import load_document_encoder
from suwen.retrieve.retriever import Index
from suwen.service.holder import Holder
from suwen.service.problems import Problem
from suwen.service.settings import ServeSettings

log = logging.getLogger("suwen.service")
#: Documents looked up at once, and passages encoded between two looks at whether the server stops.
_DOCUMENTS, _PASSAGES = 16, 8
#: Seconds between two looks for work, and after a failure.
_PAUSE, _AFTER_FAILURE = 0.5, 10.0
#: Seconds left to searches between two slices of a sample's texts.
_BREATH = 0.02
Encode = Callable[[Sequence[str]], Vectors]


def document_encoder(settings: ServeSettings, pair: Pair) -> Callable[[], Encode] | None:
    """How to load who encodes documents anew in this process; None where that is left to a worker.

    A pair whose own tier encodes documents has it at hand. Otherwise the setting ``document_encoder`` names it, or a
    base (``base``, ``SUWEN_BASE``) makes the pair's own adapter one.
    """
    side, base = pair.manifest.document, settings.base or os.environ.get("SUWEN_BASE") or None
    if isinstance(side, TierDocument):
        return lambda: pair.encoder(side.tier).encode_documents
    named = settings.document_encoder
    if named is None and not (base and isinstance(side, AdapterDocument)):
        return None
    if importlib.util.find_spec("sentence_transformers") is None:
        if named is None:
            return None
        raise SuwenError("a document encoder needs torch: install it with pip install 'suwen[train]', or leave it out")
    path = pair.path if named in (None, "own") else str(named)
    return lambda: load_document_encoder(path, pair, base=base).encode_documents


class Reencoder:
    """The background thread of one server.

    Args:
        holder: The server; every change goes through its writer.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._encode: Encode | None = None
        self._failed: set[str] = set()
        #: Whether documents are encoded anew in this process.
        self.works = False

    def start(self, index: Index) -> None:
        """Begin, once the index is open."""
        if self._holder.settings.read_only:
            return
        load = document_encoder(self._holder.settings, index.pair)
        self.works = load is not None
        self._thread = threading.Thread(target=self._run, args=(index, load), name="suwen-reencode", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, when what is being encoded is done; what is not stored by then waits for the next start."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, index: Index, load: Callable[[], Encode] | None) -> None:
        while not self._holder.ready and not self._ending.wait(0.05):
            pass
        while not self._ending.is_set():
            try:
                busy = self._turn(index, load)
                self._ending.wait(0 if busy else _PAUSE)
            except Problem:
                # The server is about to stop, and takes no more work.
                self._ending.wait(_PAUSE)
            except Exception:
                # A background that ends at the first failure would leave documents fresh for good, and say nothing.
                log.exception("documents could not be encoded anew; trying again in %g seconds", _AFTER_FAILURE)
                self._ending.wait(_AFTER_FAILURE)

    def _turn(self, index: Index, load: Callable[[], Encode] | None) -> bool:
        """Do a little of what there is to do; whether there may be more."""
        if self.works and load is not None and (waiting := index.waiting(_DOCUMENTS, self._failed)):
            encode = self._encode = self._encode or self._loaded(load)
            if encode is None:
                return False
            made = [one for document in waiting if (one := self._made(document, encode)) is not None]
            if made:
                # One write for all of them: each waits for the disk several times.
                self._holder.background(lambda index: index.reencode(made)).result()
            return True
        for tier in index.freshness.due(ahead=True):
            index.freshness.prepare(tier, stop=lambda: self._ending.wait(_BREATH))
        return False

    def _loaded(self, load: Callable[[], Encode]) -> Encode | None:
        try:
            return load()
        except SuwenError as problem:
            # It will be no different in a minute: documents stay fresh, which /info tells, until a worker comes.
            log.error("the document encoder cannot be used: %s", problem)
            self.works = False
            return None

    def _made(self, document: Waiting, encode: Encode) -> Reencoded | None:
        """A document's new vectors; None when the server stops meanwhile, or for one the encoder fails on."""
        parts = []
        for part in _slices(document.contents, _PASSAGES):
            if self._ending.is_set():
                return None
            try:
                parts.append(encode(part))
            except Exception:
                # The others must not wait behind it.
                log.exception("a document cannot be encoded anew; it stays fresh")
                self._failed.add(document.id)
                return None
        return Reencoded(document.id, document.version, np.concatenate(parts))


def _slices(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), size):
        yield texts[start : start + size]
