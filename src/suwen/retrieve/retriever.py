"""The index as its users see it: documents in, answers out. Joins an engine with the encoders of a pair."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from suwen.choices import Mode
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.query import Encoder
from suwen.encoders.space import SpaceMismatch
from suwen.encoders.who_encodes import Choice, choose_encoder, tier_at_once
from suwen.index.address import Address
from suwen.index.engine import (
    Backlog,
    Engine,
    Outcome,
    Reencoded,
    Similarity,
    Snapshot,
    Stats,
    StoredDocument,
    Waiting,
    all_ids,
    need,
)
from suwen.index.filters import Where
from suwen.index.opening import create_engine, index_exists, open_engine
from suwen.retrieve.calibration import Calibration
from suwen.retrieve.freshness import Freshness, kept_tier
from suwen.retrieve.fuse import Fusion
from suwen.retrieve.relevance import query_length

if TYPE_CHECKING:
    from suwen.encoders.reranker import Reranker
    from suwen.retrieve.ingest import Duplicates, IngestProgress, IngestReport, OneStep, ReadyVectors
    from suwen.retrieve.questions import QuestionFile
    from suwen.retrieve.results import Results
    from suwen.retrieve.rewriting import Rewritten
    from suwen.retrieve.wording import Wording, Wordings

#: Passages encoded twice for the sake of comparable scores: a quarter of what a server takes its time for.
_COMPARED = 256


class Index(AbstractContextManager["Index"]):
    """An open index. Made by :func:`suwen.open`; closes like a file, or with ``with``."""

    def __init__(self, engine: Engine, pair: Pair) -> None:
        pair = pair.of_space(engine.space)
        if pair.space.id != engine.space:
            built_with = engine.settings().get("pair_name")
            needed_name = None if built_with is None else str(built_with)
            raise SpaceMismatch(engine.space, pair.space.id, needed_name=needed_name, got_name=pair.name)
        self.engine, self.pair = engine, pair
        self.freshness = Freshness(engine, pair)
        self.calibration = Calibration(engine, pair, self.freshness)

    @classmethod
    def open(
        cls,
        address: Address,
        *,
        pair: str | Path | Pair | None = None,
        write: bool = False,
        load: Callable[[str | Path | None], Pair] = Pair.load,
    ) -> Index:
        """Open an index with the pair of its space.

        Args:
            address: Where the index is: its folder.
            pair: A pair or its folder. Without one: ``SUWEN_PAIR``, the pair the index was built with, the default.
            write: Whether documents will be added or deleted; only one process at a time may.
            load: Loads the pair; whoever opens several indexes may give them one.
        """
        engine = open_engine(address, write=write)
        try:
            return cls(engine, pair if isinstance(pair, Pair) else _find_pair(pair, engine.settings(), load))
        except BaseException:
            engine.close()
            raise

    @classmethod
    def create(cls, address: Address, *, pair: str | Path | Pair | None = None) -> Index:
        """Make an empty index in a pair's space and open it for writing."""
        pair = pair if isinstance(pair, Pair) else Pair.load(pair)
        space = pair.space
        # Of unit vectors the product is the cosine, whatever the space calls it.
        similarity: Similarity = "cosine" if space.normalise else "dot"
        engine = create_engine(address, space=space.id, dimension=space.dimension, similarity=similarity)
        engine.remember(pair=str(pair.path.resolve()), pair_name=pair.name)
        return cls(engine, pair)

    @classmethod
    def open_or_create(cls, address: Address, *, pair: str | Path | Pair | None = None) -> Index:
        """Open an index for writing, or make one where there is none."""
        return cls.open(address, pair=pair, write=True) if index_exists(address) else cls.create(address, pair=pair)

    def close(self) -> None:
        """Let go of the index."""
        self.engine.close()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- documents ----------------------------------------------------------------------------------------------

    def add(
        self,
        documents: Iterable[Document],
        *,
        mirror: bool = False,
        prune: bool = False,
        unread: Collection[str] = (),
        encoder: Encoder | None = None,
        ready: ReadyVectors | None = None,
        questions: QuestionFile | None = None,
        size: int | None = None,
        overlap: int | None = None,
        duplicates: Duplicates = "error",
        keep: bool = True,
        step: OneStep | None = None,
        progress: IngestProgress | None = None,
    ) -> IngestReport:
        """Insert or replace documents. Stop it and call it again: what was stored is not encoded twice.

        What a tier encodes is found at once, and waits for the space's document encoder: see :meth:`waiting`.

        Args:
            documents: Streamed; memory does not grow with their number.
            mirror: Afterwards, drop the documents of earlier mirror calls that this stream no longer has.
            prune: Whether that may be more than a fifth of them; otherwise they are left, and :class:`TooManyGone` is
                raised once all that was read is stored.
            unread: Of a mirror, what ids of documents that could not be read begin with: file names, as
                :func:`~suwen.corpora.readers.read_documents` tells them to ``on_unread`` while it is streamed. They
                are not gone; with the empty name nothing is, unless ``prune`` says so.
            encoder: Makes the vectors; by default the tier the index was built with, or else the one that is the pair's
                own for documents, or its default tier.
            ready: Vectors made elsewhere, instead of an encoder.
            questions: Questions that passages answer, whose vectors become theirs too; without any, those stay that
                are there.
            size: Tokens of a passage; what the index was built with when not given.
            overlap: Tokens that neighbouring passages share, likewise.
            duplicates: What to do with an id that comes twice.
            keep: Leave a document alone that has not changed and that the pair's own document encoder has encoded,
                even where a tier would now stand in for it.
            step: Store all of them in one step or none, and leave cores to searches and what takes seconds to the
                background: encode by one core, and neither :meth:`compare` nor :meth:`calibrate`.
            progress: Called with the number of documents done and of passages encoded.
        """
        from suwen.retrieve.ingest import Ingestion, refuse_gone

        if questions is not None:
            need(self.engine, "questions")
        if step and encoder is None and ready is None:
            encoder = self.encoder_at_once()
        options: dict[str, Any] = {
            "mirror": mirror,
            "prune": prune,
            "unread": unread,
            "size": size,
            "overlap": overlap,
            "keep": keep,
        }
        options |= {"encoder": encoder, "ready": ready, "questions": questions, "step": step, "progress": progress}
        report = Ingestion(self.engine, self.pair, **options).run(documents, duplicates)
        if step is not None:
            return report
        changed = bool(report.added or report.changed or report.reencoded)
        compared = self.compare()
        # Measuring costs dozens of searches: a document posted to a large index does not wait for them.
        if (changed and mirror) or ((changed or compared) and not self.calibrated()):
            self.calibrate()
        refuse_gone(report, self.engine.address)
        return report

    def choose_encoder(
        self, *, tier: str | None = None, document_encoder: str | Path | None = None, remember: bool = False
    ) -> Choice:
        """Pick who encodes documents: who was named, else the tier the index was built with, else the pair's own.

        Args:
            tier: A tier, whatever else is there.
            document_encoder: As for :func:`suwen.encoders.who_encodes.choose_encoder`.
            remember: Whether who was named is kept for the next time; the index must be open for writing.
        """
        kept = kept_tier(self.engine, self.pair)
        choice = choose_encoder(self.pair, tier=tier, document_encoder=document_encoder, kept=kept)
        if remember and (tier or document_encoder):
            self.engine.remember(tier=tier or "")
        return choice

    def encoder_at_once(self) -> Encoder:
        """What encodes a document without waiting: the tier the index was built with, else the pair's for that."""
        return self.pair.encoder(kept_tier(self.engine, self.pair) or tier_at_once(self.pair))

    def delete(self, ids: Sequence[str]) -> int:
        """Remove documents; the number that were there. On return they are gone, durably."""
        # A text is a sequence of texts: of "12" the documents 1 and 2 would go.
        return self.engine.delete([ids] if isinstance(ids, str) else ids)

    def document(self, id_: str) -> StoredDocument | None:
        """A whole document, if it is there."""
        with self.engine.snapshot() as snapshot:
            return snapshot.document(id_)

    def ids(self, after: str = "", limit: int | None = None) -> Iterator[str]:
        """The ids of documents past ``after``, ascending."""
        return islice(all_ids(self.engine, after), limit)

    def stats(self) -> Stats:
        """What the index holds."""
        return self.engine.stats()

    # -- freshness ----------------------------------------------------------------------------------------------

    def backlog(self) -> Backlog:
        """How much waits for the space's own document encoder."""
        return self.engine.backlog(self.freshness.own)

    def waiting(self, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
        """The oldest documents that wait for the space's own document encoder, without those in ``skip``."""
        return self.engine.waiting(self.freshness.own, limit, skip)

    def reencode(self, made: Sequence[Reencoded]) -> dict[str, Outcome]:
        """Replace the vectors of documents by the own document encoder's, where they are still the version named."""
        return self.engine.reencode(made, self.freshness.own)

    def compare(self) -> bool:
        """Make fresh and encoded passages comparable by their scores: some seconds, once. Whether it was due."""
        due = self.freshness.due(_COMPARED)
        for tier in due:
            self.freshness.prepare(tier, _COMPARED)
        return bool(due)

    # -- searching ----------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        mode: Mode = "hybrid",
        tier: str | None = None,
        instruction: str | None = None,
        where: Where | None = None,
        offset: int = 0,
        sort: str | None = None,
        facets: Sequence[str] = (),
        per_document: bool = False,
        highlights: bool = False,
        explain: bool = False,
        weights: Mapping[str, float] | None = None,
        fusion: Fusion = "scores",
        synonyms: bool = True,
        fold: bool = True,
        beside: Rewritten | None = None,
        precise: bool = False,
        budget_ms: int = 400,
    ) -> Results:
        """Find the passages that answer a query.

        Args:
            query: What the user typed.
            k: How many hits.
            mode: ``dense`` (meaning), ``lexical`` (words) or ``hybrid`` (both, fused).
            tier: The query encoder; the pair's default when not given.
            instruction: What is asked for, where the pair's query prompt has a place for an instruction.
            where: Metadata filter, see :data:`suwen.index.filters.Where`.
            offset: Hits to leave out, for the next page.
            sort: A field to put the best hits in the order of, or ``-field`` for the largest first; see :mod:`.facets`.
            facets: Fields whose values are counted among the best hits.
            per_document: At most one hit of each document, its best.
            highlights: Mark the matching sentences.
            explain: Say of each hit where either leg put it.
            weights: How much each leg counts in ``hybrid``; without them, as who encoded the documents makes best.
            fusion: What the legs of ``hybrid`` are fused by, see :mod:`suwen.retrieve.fuse`.
            synonyms: Search for other names of what the query mentions too, and set its spelling right: see
                :mod:`suwen.retrieve.wording`.
            fold: Show one of several passages that say the same, see :mod:`suwen.retrieve.folding`.
            beside: Hypothetical documents that the query's vector is fused with, see :mod:`suwen.retrieve.rewriting`.
            precise: Have the first 20 hits read again by a reranker, see :mod:`suwen.retrieve.precise`.
            budget_ms: The milliseconds that this may take; what was not read by then stays behind what was.
        """
        if tier is not None and mode != "lexical":
            self.pair.need_tier(tier)  # before what a search takes is loaded
        from suwen.retrieve.answering import Asked, answer

        return answer(
            self,
            Asked(
                *(query, k, mode, tier, instruction, where, offset, sort, facets, per_document, highlights, explain),
                *(weights, fusion, synonyms, fold, beside, precise, budget_ms),
            ),
        )

    @cached_property
    def reranker(self) -> Reranker | None:
        """Who reads the first hits again in precise mode; None where there is none."""
        from suwen.encoders.reranker import Reranker

        return Reranker.find(self.pair.path)

    @cached_property
    def wordings(self) -> Wordings:
        """Other names and spellings of what queries mention; loaded for the first of them."""
        from suwen.retrieve.wording import Wordings

        return Wordings(self.engine)

    def worded(self, text: str) -> Wording:
        """A query with its other names and its spelling set right."""
        with self.engine.snapshot() as snapshot:
            return self.wordings.of(text, snapshot)

    def unit(self, snapshot: Snapshot, tier: str | None, vector: Any) -> float:
        """What a dense score of one query is worth beside words: see :mod:`suwen.retrieve.fuse`."""
        null = self.calibration.null(snapshot, tier or self.pair.default_tier)
        return null.unit * query_length(vector, self.pair.space)

    def calibrate(self) -> None:
        """Measure, for every tier, what off-topic questions find, and keep it in the index: see :mod:`.relevance`."""
        self.calibration.measure()

    def calibrated(self) -> bool:
        """Whether what :meth:`calibrate` measured still fits the index as it is."""
        return self.calibration.fits()


def _find_pair(path: str | Path | None, settings: Mapping[str, Any], load: Callable[[str | Path | None], Pair]) -> Pair:
    """The pair to use with an index: the one named, ``SUWEN_PAIR``, the one it was built with, the default."""
    if path is None and "SUWEN_PAIR" not in os.environ and settings.get("pair"):
        built_with = Path(str(settings["pair"]))
        if (built_with / "suwen.json").is_file():
            return load(built_with)
    return load(path)
