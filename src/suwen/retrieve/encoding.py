"""Who encodes the documents of an index: the space's document encoder where it can run, else a tier, which is said."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.encoders.space import ModelDocument, SpaceMismatch, TierDocument
from suwen.errors import SuwenError
from suwen.retrieve.ingest import PassageEncoder

if TYPE_CHECKING:
    from suwen.encoders.document import DocumentEncoder, Precision


class Choice(NamedTuple):
    """An encoder for documents, and a sentence that says who it is and why."""

    encoder: PassageEncoder
    said: str


class _DocumentSide:
    """The document encoder under the name passages carry for it."""

    name = "document"

    def __init__(self, path: Path, pair: Pair) -> None:
        self._encoder = load_document_encoder(path, pair)

    def encode_documents(self, texts: Sequence[str]) -> Vectors:
        """Encode texts in the form of documents."""
        return self._encoder.encode_documents(texts)


def load_document_encoder(path: str | Path, pair: Pair, dtype: Precision = "auto") -> DocumentEncoder:
    """Load the document encoder of a pair's space; one of another space, or that fails the pair's probe, is refused.

    Args:
        path: A full pair or a sentence-transformers model.
        pair: The pair that serves; its probe, where it has one, is 32 texts with the vectors they must get.
        dtype: The precision to load it in.
    """
    from suwen.encoders.document import DocumentEncoder
    from suwen.encoders.probe import verify_probe

    encoder = DocumentEncoder.load(path, dtype=dtype)
    if encoder.space.id != pair.space.id:
        raise SpaceMismatch(pair.space.id, encoder.space.id, needed_name=pair.name, got_name=encoder.name)
    if (pair.path / "probe.json").is_file():
        verify_probe(encoder, pair.path)
    return encoder


def choose_encoder(pair: Pair, *, tier: str | None = None, document_encoder: str | Path | None = None) -> Choice:
    """Pick who encodes documents.

    Args:
        pair: The pair of the index.
        tier: A tier to use, whatever else is there.
        document_encoder: A full pair (or model folder) of the same space to use.
    """
    if tier is not None and document_encoder is not None:
        raise SuwenError("both a tier and a document encoder were named: choose one of them to encode the documents")
    if tier is not None:
        return Choice(pair.encoder(tier), f"documents are encoded by the tier '{tier}', as asked")
    torch = importlib.util.find_spec("sentence_transformers") is not None
    if document_encoder is not None:
        if not torch:
            raise SuwenError("a document encoder needs torch: install it with pip install 'suwen[train]'")
        return Choice(_DocumentSide(Path(document_encoder), pair), "documents are encoded by the document encoder")
    if isinstance(pair.manifest.document, ModelDocument) and torch:
        return Choice(_DocumentSide(pair.path, pair), "documents are encoded by the pair's document encoder")
    return _fall_back(pair, torch)


def _fall_back(pair: Pair, torch: bool) -> Choice:
    name, side = pair.default_tier, pair.manifest.document
    if isinstance(side, TierDocument):
        said = f"documents are encoded by the tier '{side.tier}', the pair's own for them"
        return Choice(pair.encoder(side.tier), said)
    match side.kind:
        case "router" | "sentence-transformers" if not torch:
            why = "the aligned query encoder, because torch is not installed (pip install 'suwen[train]')"
        case _:
            why = "the aligned query encoder, because this light pair does not hold the document encoder"
    return Choice(pair.encoder(name), f"documents are encoded by the tier '{name}', {why}")
