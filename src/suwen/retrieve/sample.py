"""The bundled sample collection in an index: by the document vectors a pair brings for it, or else by a tier.

The vectors lie in the pair's folder ``sample/``, as ``suwen encode`` writes them. Making them is not done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from suwen.corpora.readers import read_documents
from suwen.corpora.records import Passage
from suwen.corpora.sample_collection import sample_passages, sample_path
from suwen.encoders.pair import Pair
from suwen.encoders.space import SpaceMismatch
from suwen.encoders.who_encodes import described, own_encoder, tier_at_once
from suwen.errors import SuwenError
from suwen.index.engine import all_ids
from suwen.retrieve.imported import ImportedVectors
from suwen.retrieve.ingest import OVERLAP, SIZE, IngestError, IngestProgress, IngestReport
from suwen.retrieve.retriever import Index

#: Where a pair keeps the vectors of the sample's passages.
FOLDER = "sample"


class IndexedSample(NamedTuple):
    """What was done, and a sentence that says who encoded the documents and who encodes the queries."""

    report: IngestReport
    said: str


def index_sample(index: Index, *, progress: IngestProgress | None = None) -> IndexedSample:
    """Bring the sample collection into an index.

    Where the pair brings the document encoder's vectors of it, and they fit, no document is encoded: the index is the
    asymmetric one that a GPU would have made, and needs neither torch nor the base. Otherwise a tier encodes them.

    Args:
        index: Open for writing.
        progress: As for :meth:`~suwen.retrieve.retriever.Index.add`.

    Raises:
        IngestError: The index was made of other documents, which would be gone; nothing was changed.
    """
    sample = {document.id for document in read_documents(sample_path())}
    if any(id_ not in sample for id_ in all_ids(index.engine, origin="index")):
        raise IngestError(
            f"{index.engine.address} is an index of other documents, which the sample would replace: nothing was "
            "changed. Name another folder for the sample"
        )
    pair, settings = index.pair, index.engine.settings()
    if not (pair.path / FOLDER).is_dir():
        own = tier_at_once(pair) == own_encoder(pair)
        why = "the pair's own for them" if own else "the pair brings no document vectors of the sample"
        return _encoded(index, why, progress)
    size, overlap = int(settings.get("size", SIZE)), int(settings.get("overlap", OVERLAP))
    try:
        ready = stored_vectors(pair, sample_passages(pair.count_tokens, size, overlap))
    except SuwenError as problem:
        why = str(problem).split(": ")[0]
        if isinstance(problem, SpaceMismatch):
            why = f"they are of the space {problem.got}"
        return _encoded(index, f"the pair's document vectors of the sample do not fit ({why})", progress)
    with closing(ready):
        report = index.add(read_documents(sample_path()), mirror=True, ready=ready, progress=progress)
    said = (
        f"asymmetric retrieval: documents by the document encoder ({described(pair)}), whose vectors of the sample "
        f"come with the pair; queries by the tier '{pair.default_tier}'. No torch, no download"
    )
    return IndexedSample(report, said)


def stored_vectors(pair: Pair, passages: Sequence[Passage]) -> ImportedVectors:
    """The sample's vectors in the pair's folder, checked against the space and against every passage; close them.

    Raises:
        SpaceMismatch: They were made in another space.
        IngestError: They are missing or damaged, or a passage has changed since.
    """
    folder = pair.path / FOLDER
    ready = ImportedVectors(folder / "vectors.npy", folder / "ids.txt", pair)
    try:
        ready.take(passages)
    except BaseException:
        ready.close()
        raise
    return ready


def _encoded(index: Index, why: str, progress: IngestProgress | None) -> IndexedSample:
    """By the tier that encodes at once: a larger model would make a demonstration slow."""
    report = index.add(read_documents(sample_path()), mirror=True, progress=progress)
    return IndexedSample(report, f"documents are encoded by the tier '{tier_at_once(index.pair)}': {why}")
