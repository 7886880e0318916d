"""Who encodes the documents of an index: the space's document encoder where it can run, else a tier, which is said."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from suwen.encoders.cores import in_bulk
from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.encoders.space import AdapterDocument, DocumentSide, ModelDocument, SpaceMismatch, TierDocument
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


def load_document_encoder(
    path: str | Path, pair: Pair, dtype: Precision = "auto", base: str | None = None
) -> DocumentEncoder:
    """Load the document encoder of a pair's space; one of another space, or that fails the pair's probe, is refused.

    Args:
        path: A full pair, a sentence-transformers model, or a light pair that holds an adapter.
        pair: The pair that serves; its probe, where it has one, is 32 texts with the vectors they must get.
        dtype: The precision to load it in.
        base: The base of an adapter (a GGUF file, a folder or a hub id); ``SUWEN_BASE`` by default.
    """
    from suwen.encoders.document import DocumentEncoder
    from suwen.encoders.probe import verify_probe

    encoder = DocumentEncoder.load(path, dtype=dtype, base=base, check=not _is(path, pair))
    if encoder.space.id != pair.space.id:
        raise SpaceMismatch(pair.space.id, encoder.space.id, needed_name=pair.name, got_name=encoder.name)
    if (pair.path / "probe.json").is_file():
        verify_probe(encoder, pair.path)
    return encoder


def document_encoder_at_hand(pair: Pair) -> bool:
    """Whether the pair's own document encoder can run: torch is here, and so is the model or an adapter's base."""
    if importlib.util.find_spec("sentence_transformers") is None:
        return False
    if isinstance(pair.manifest.document, AdapterDocument):
        return bool(os.environ.get("SUWEN_BASE"))
    return isinstance(pair.manifest.document, ModelDocument)


def _is(path: str | Path, pair: Pair) -> bool:
    """Whether the path is the pair itself, whose probe is then about to be tried."""
    return (pair.path / "probe.json").is_file() and Path(path).resolve() == pair.path.resolve()


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
        return Choice(in_bulk(pair, tier), f"documents are encoded by the tier '{tier}', as asked")
    torch = importlib.util.find_spec("sentence_transformers") is not None
    if document_encoder is not None:
        if not torch:
            raise SuwenError("a document encoder needs torch: install it with pip install 'suwen[train]'")
        return Choice(_DocumentSide(Path(document_encoder), pair), "documents are encoded by the document encoder")
    if document_encoder_at_hand(pair):
        return Choice(_DocumentSide(pair.path, pair), "documents are encoded by the pair's document encoder")
    return _fall_back(pair, torch)


def _fall_back(pair: Pair, torch: bool) -> Choice:
    name, side = pair.default_tier, pair.manifest.document
    if isinstance(side, TierDocument):
        said = f"documents are encoded by the tier '{side.tier}', the pair's own for them"
        return Choice(in_bulk(pair, side.tier), said)
    return Choice(
        in_bulk(pair, name),
        f"documents are encoded by the tier '{name}', the aligned query encoder, {_why(side, torch)}",
    )


def _why(side: DocumentSide, torch: bool) -> str:
    """Why the document encoder does not run, and how it would: what a tier encoded is searchable at once, and later."""
    if isinstance(side, AdapterDocument):
        missing = "SUWEN_BASE does not name the base of the pair's adapter" if torch else "torch is not installed"
        install = "" if torch else "pip install 'suwen[train]' and "
        return (
            f"because {missing}. They can be searched at once; to encode them again by the document encoder, {install}"
            f"run this again with SUWEN_BASE naming {side.base} (a GGUF file, a folder or the hub id)"
        )
    if isinstance(side, ModelDocument) and not torch:
        return "because torch is not installed (pip install 'suwen[train]')"
    return "because this light pair does not hold the document encoder"
