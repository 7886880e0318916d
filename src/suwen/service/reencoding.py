"""What a server does in the background: encode documents again, and keep their scores comparable. No HTTP.

Only where the space's document encoder can run are fresh documents encoded here; else they wait for a worker. The
second pass over a large collection, and the sample that makes fresh and encoded scores comparable, need a tier alone.
"""

from __future__ import annotations

import logging
import threading

import numpy as np

from suwen.encoders.query import Encoder
from suwen.encoders.who_encodes import Choice, encode_documents, encoder_for_good
from suwen.errors import SuwenError
from suwen.index.engine import Reencoded, Waiting
from suwen.retrieve.retriever import Index
from suwen.retrieve.second_pass import usual_tier
from suwen.service.holder import Holder
from suwen.service.problems import Problem

log = logging.getLogger("suwen.service")
#: Documents looked up at once, and passages encoded between two looks at whether the server stops.
_DOCUMENTS, _PASSAGES = 16, 8
#: Seconds between two looks for work, and after a failure.
_PAUSE, _AFTER_FAILURE = 0.5, 10.0
#: Seconds left to searches between two slices of a sample's texts.
_BREATH = 0.02


class Reencoder:
    """The background thread of one server.

    Args:
        holder: The server; every change goes through its writer.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._encoder: Encoder | None = None
        self._failed: set[str] = set()
        #: Whether a second pass has begun, and whether nothing is left for one.
        self._passing = self._passed = False
        #: Whether documents are encoded again in this process.
        self.works = False

    def start(self, index: Index) -> None:
        """Begin, once the index is open."""
        if self._holder.settings.read_only:
            return
        settings = self._holder.settings
        choice = encoder_for_good(index.pair, document_encoder=settings.document_encoder, base=settings.base)
        self.works = choice is not None
        self._thread = threading.Thread(target=self._run, args=(index, choice), name="suwen-reencode", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, when what is being encoded is done; what is not stored by then waits for the next start."""
        self._ending.set()
        if self._thread is not None:
            # An encoder of billions of parameters takes a minute for eight passages: the server ends without it.
            self._thread.join(max(0.0, 0.9 * self._holder.seconds_left()))

    def _run(self, index: Index, choice: Choice | None) -> None:
        while not self._holder.ready and not self._ending.wait(0.05):
            pass
        while not self._ending.is_set():
            try:
                busy = self._turn(index, choice)
                self._ending.wait(0 if busy else _PAUSE)
            except Problem:
                # The server is about to stop, and takes no more work.
                self._ending.wait(_PAUSE)
            except Exception:
                # A background that ends at the first failure would leave documents fresh for good, and say nothing.
                log.exception("documents could not be encoded again; trying again in %g seconds", _AFTER_FAILURE)
                self._ending.wait(_AFTER_FAILURE)

    def _turn(self, index: Index, choice: Choice | None) -> bool:
        """Do a little of what there is to do; whether there may be more."""
        if self.works and choice is not None and (waiting := index.waiting(_DOCUMENTS, self._failed)):
            encoder = self._encoder = self._encoder or self._loaded(index, choice)
            if encoder is None:
                return False
            if made := self._all_made(index, waiting, encoder):
                # One write for all of them: each waits for the disk several times.
                self._holder.background(lambda index: index.reencode(made)).result()
            return True
        # Where the space's own encoder works, it encodes everything.
        if choice is None and not self._passed and self._second_pass(index):
            return True
        if not index.calibrated():
            # Dozens of searches, which no post should wait for.
            index.calibrate()
        for tier in index.freshness.due(ahead=True):
            index.freshness.prepare(tier, stop=self._breathe)
        return False

    def _second_pass(self, index: Index) -> bool:
        """Encode a few documents by the usual tier that the fastest one encoded; whether there may be more."""
        usual = usual_tier(index)
        if usual is not None and (waiting := index.engine.waiting(usual, _DOCUMENTS, self._failed)):
            self._passing = True
            if made := self._all_made(index, waiting, index.pair.encoder(usual)):
                self._holder.background(lambda index: index.engine.reencode(made, usual)).result()
            return True
        if self._passing:
            # Half of what the files hold is hidden now, and scores are the other tier's.
            self._holder.background(lambda index: index.engine.compact()).result()
            index.calibrate()
        self._passed = True
        return False

    def _breathe(self) -> bool:
        """Let searches go first; whether to stop."""
        self._holder.give_way()
        return self._ending.wait(_BREATH)

    def _loaded(self, index: Index, choice: Choice) -> Encoder | None:
        try:
            # A tier on one core: the others are for searches.
            return index.pair.encoder(choice.name) if choice.name in index.pair.tiers else choice.encoder
        except SuwenError as problem:
            # It will be no different in a minute: documents stay fresh, which /info tells, until a worker comes.
            log.error("the document encoder cannot be used: %s", problem)
            self.works = False
            return None

    def _all_made(self, index: Index, waiting: list[Waiting], encoder: Encoder) -> list[Reencoded]:
        return [one for document in waiting if (one := self._made(index, document, encoder)) is not None]

    def _made(self, index: Index, document: Waiting, encoder: Encoder) -> Reencoded | None:
        """A document's new vectors; None when the server stops meanwhile, or for one the encoder fails on."""
        parts = []
        for start in range(0, len(document.contents), _PASSAGES):
            if self._ending.is_set() or self._holder.ending:
                return None
            self._holder.give_way()
            try:
                texts = document.contents[start : start + _PASSAGES]
                parts.append(encode_documents(index.pair, encoder, texts))
            except Exception:
                # The others must not wait behind it.
                log.exception("a document cannot be encoded again; it stays fresh")
                self._failed.add(document.id)
                return None
        return Reencoded(document.id, document.version, np.concatenate(parts))
