"""Who encodes documents: the one answer for indexing, serving, workers and benchmarks. No encoder is written here.

A document is encoded *for good* by the space's own document encoder. Where that cannot run, a tier encodes it *at
once*: it can be searched, and waits for the document encoder.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from suwen.encoders.pair import Pair
from suwen.encoders.query import Encoder, Vectors
from suwen.encoders.space import (
    AdapterDocument,
    ElsewhereDocument,
    ModelDocument,
    SpaceMismatch,
    TierDocument,
    load_manifest,
    manifest_path,
)
from suwen.encoders.static import unit
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.encoders.base_model import NumberFormat
    from suwen.encoders.document import DescribedEncoder, DocumentEncoder, EncoderSettings

#: The name that passages carry for a document encoder that is not a tier.
DOCUMENT = "document"
#: What names the pair's own document encoder, where another may be named.
OWN = "own"
State = Literal["encoded", "fresh"]
#: What may have made the vectors of documents: a document encoder that is no tier, or a tier of one sort.
Maker = Literal["document", "transformer", "static"]


@dataclass(frozen=True)
class Choice:
    """Who encodes documents. The encoder is loaded when it is first asked for.

    Attributes:
        name: The name its passages carry: a tier's, or ``document``.
        said: A sentence for the user: who it is, and why.
        load: Makes the encoder.
    """

    name: str
    said: str
    load: Callable[[], Encoder]

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder, loaded once."""
        return self.load()


def own_encoder(pair: Pair) -> str:
    """The name passages carry once they are encoded for good: the pair's own tier for documents, else ``document``."""
    side = pair.manifest.document
    return side.tier if isinstance(side, TierDocument) else DOCUMENT


def state(pair: Pair, encoder: str) -> State:
    """``encoded`` for what the space's own document encoder made, ``fresh`` for what a tier stood in for."""
    return "encoded" if encoder == own_encoder(pair) else "fresh"


def best_maker(pair: Pair, encoders: Sequence[str]) -> Maker:
    """What the best of these encoders is."""
    if DOCUMENT in encoders:
        return "document"
    kinds = [pair.manifest.tiers[name].kind for name in encoders if name in pair.manifest.tiers]
    return "static" if kinds and all(kind == "static" for kind in kinds) else "transformer"


def tier_at_once(pair: Pair) -> str:
    """The tier that encodes a document without waiting: the pair's own for documents, else the default one."""
    own = own_encoder(pair)
    return own if own in pair.tiers else pair.default_tier


def encode_documents(pair: Pair, encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """Vectors of documents, in a space of inner product with one length where a tier stands in for the own encoder.

    A tier is aligned to directions: its vectors' lengths say nothing of a document, and would only add noise.
    """
    vectors = encoder.encode_documents(texts)
    return vectors if pair.space.normalise or encoder.name == own_encoder(pair) else unit(vectors)


def described(pair: Pair) -> str:
    """The document encoder of a pair's space in words, whether it can run here or not."""
    side, meeting = pair.manifest.document, pair.space.halfway
    said = f"the tier {side.tier}" if isinstance(side, TierDocument) else str(side.kind)
    if isinstance(side, AdapterDocument):
        said = f"{side.base} with the pair's adapter"
    return said if meeting is None else f"{said}, half-way to the tier {meeting.tier} (share {meeting.share:g})"


def choose_encoder(
    pair: Pair,
    *,
    tier: str | None = None,
    document_encoder: str | Path | None = None,
    base: str | None = None,
    kept: str | None = None,
) -> Choice:
    """Pick who encodes documents: who was named, else who did before, else the pair's document encoder, else a tier.

    Args:
        pair: The pair of the index.
        tier: A tier to use, whatever else is there.
        document_encoder: A full pair (or model folder) of the same space to use; ``own`` for the pair's own.
        base: The base of an adapter; ``SUWEN_BASE`` by default.
        kept: The tier that was once asked for, to be kept.
    """
    if tier is not None and document_encoder is not None:
        raise SuwenError("both a tier and a document encoder were named: choose one of them to encode the documents")
    if tier is not None:
        return _by_tier(pair, tier, "as asked")
    if kept is not None and document_encoder is None:
        return _by_tier(pair, kept, "as the index was built; --tier or --document-encoder own chooses another")
    chosen = encoder_for_good(pair, document_encoder=document_encoder, base=base)
    return chosen or _by_tier(pair, pair.default_tier, f"the aligned query encoder, {_why_not(pair)}")


def encoder_for_good(
    pair: Pair, *, document_encoder: str | Path | None = None, base: str | None = None
) -> Choice | None:
    """The document encoder of a pair's space, the one named or the pair's own; None where that cannot run here.

    Args:
        pair: The pair of the index.
        document_encoder: As for :func:`choose_encoder`.
        base: Likewise.

    Raises:
        SuwenError: One was named, and torch is not installed.
    """
    side = pair.manifest.document
    if isinstance(side, TierDocument) and document_encoder in (None, OWN):
        return _by_tier(pair, side.tier, "the pair's own for them")
    if document_encoder is None:
        based = bool(base or os.environ.get("SUWEN_BASE"))
        at_hand = isinstance(side, ModelDocument) or (isinstance(side, AdapterDocument) and based)
        if not (at_hand and _torch()):
            return None
    else:
        _need_torch()

    def load() -> Encoder:
        encoder = load_document_encoder(pair, document_encoder, base=base)
        encoder.name = DOCUMENT
        return encoder

    whose = "pair's document encoder" if document_encoder in (None, OWN) else "document encoder"
    return Choice(DOCUMENT, f"documents are encoded by the {whose}", load)


def load_document_encoder(
    pair: Pair | str | Path | None,
    document_encoder: str | Path | None = None,
    *,
    base: str | None = None,
    dtype: NumberFormat = "auto",
    device: str | None = None,
) -> DocumentEncoder:
    """Load a document encoder on torch; one of another space than the pair's, or that fails its probe, is refused.

    Args:
        pair: The pair that serves, or its folder; its probe, where it has one, is 32 texts with the vectors they must
            get. Without a pair, what was named is taken as it is; nothing named is ``SUWEN_PAIR`` or the default pair.
        document_encoder: A full pair, a sentence-transformers model, or a light pair with an adapter; ``own``, and
            nothing, for the pair itself.
        base: The base of an adapter (a GGUF file, a folder or a hub id); ``SUWEN_BASE`` by default.
        dtype: The precision to load it in.
        device: As for :meth:`DocumentEncoder.load`.
    """
    _need_torch()
    from suwen.encoders.document import DocumentEncoder

    if pair is None and document_encoder is not None:
        return DocumentEncoder.load(document_encoder, device=device, dtype=dtype, base=base)
    pair = pair if isinstance(pair, Pair) else Pair.load(pair)
    settings = _settings(pair, document_encoder, base, dtype)._replace(device=device)
    return DocumentEncoder.load_as(settings, space=pair.space.id, name=pair.name)


def describe_document_encoder(
    pair: Pair, document_encoder: str | Path | None = None, *, base: str | None = None, dtype: NumberFormat = "auto"
) -> DescribedEncoder:
    """What :func:`load_document_encoder` would load, for workers who load it themselves.

    Where a manifest tells the space, no weights are read here: the machine that shares work out may have no room for
    them. Each worker then checks what it loaded.
    """
    _need_torch()
    from suwen.encoders.document import DescribedEncoder

    settings = _settings(pair, document_encoder, base, dtype)
    if not manifest_path(Path(settings.path)).is_file():
        loaded = load_document_encoder(pair, document_encoder, base=base, dtype=dtype)
        return DescribedEncoder(loaded.space, loaded.name, loaded.settings)
    manifest = load_manifest(Path(settings.path))
    space = manifest.space if manifest.space.id == pair.space.id else manifest.space.alone
    if space.id != pair.space.id:
        raise SpaceMismatch(pair.space.id, manifest.space.id, needed_name=pair.name, got_name=manifest.name)
    return DescribedEncoder(space, manifest.name, settings)


def _settings(
    pair: Pair, document_encoder: str | Path | None, base: str | None, dtype: NumberFormat
) -> EncoderSettings:
    from suwen.encoders.document import EncoderSettings

    own, side = document_encoder in (None, OWN), pair.manifest.document
    without_torch = isinstance(side, TierDocument) and pair.manifest.tiers[side.tier].kind != "torch"
    if own and (without_torch or isinstance(side, ElsewhereDocument)):
        raise SuwenError(
            f"pair {pair.name} holds no document encoder: give --document-encoder, or --pair with one that does"
        )
    path = str(pair.path if own else document_encoder)
    probe = str(pair.path) if (pair.path / "probe.json").is_file() else None
    return EncoderSettings(path, None, dtype, False, False, base or os.environ.get("SUWEN_BASE") or None, probe)


def _by_tier(pair: Pair, tier: str, why: str) -> Choice:
    pair.need_tier(tier)

    def load() -> Encoder:
        from suwen.encoders.cores import in_bulk

        return in_bulk(pair, tier)

    return Choice(tier, f"documents are encoded by the tier '{tier}', {why}", load)


def _torch() -> bool:
    return importlib.util.find_spec("sentence_transformers") is not None


def _need_torch() -> None:
    if not _torch():
        raise SuwenError("a document encoder needs torch: install it with pip install 'suwen[train]', or name none")


def _why_not(pair: Pair) -> str:
    """Why the document encoder does not run, and how it would: what a tier encoded is searchable at once, and later."""
    side, torch = pair.manifest.document, _torch()
    if isinstance(side, AdapterDocument):
        missing = "SUWEN_BASE does not name the base of the pair's adapter" if torch else "torch is not installed"
        install = "" if torch else "pip install 'suwen[train]' and "
        return (
            f"because {missing}. They can be searched at once; to encode them again by the document encoder, {install}"
            f"run this again with SUWEN_BASE naming {side.base} (a GGUF file, a folder or the hub id)"
        )
    if isinstance(side, ModelDocument):
        return "because torch is not installed (pip install 'suwen[train]')"
    return "because this light pair does not hold the document encoder"
