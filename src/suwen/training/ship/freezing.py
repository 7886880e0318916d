"""Fix a document encoder: write the adapter that ships, apply that very adapter, and mint the space it makes.

Training the adapter is in ``stages/``; the full pair of a light one is made in ``assembling.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suwen.durable import new_folder
from suwen.encoders.adapter import Bits, Factors, adapter_sha256, apply_adapter, save_adapter
from suwen.encoders.base_model import base_hash, load_base
from suwen.encoders.document import DocumentEncoder, EncoderSettings
from suwen.encoders.importing import cut
from suwen.encoders.probe import probe_texts, write_probe
from suwen.encoders.prompts import Prompts
from suwen.encoders.side import Side
from suwen.encoders.space import AdapterDocument, Manifest, Space, save_manifest
from suwen.errors import SuwenError

#: The adapter's place in a frozen folder.
ADAPTER = "adapter"


class FreezeError(SuwenError):
    """A document encoder that cannot be frozen."""


def freeze(
    factors: Mapping[str, Factors],
    base: str | Path,
    out: Path,
    *,
    name: str,
    dimension: int | None = None,
    prompts: Prompts | None = None,
    max_length: int = 512,
    rank: int | None = None,
    bits: Bits = 8,
    hub_id: str | None = None,
    device: str | None = None,
    body: Any | None = None,
    normalise: bool = True,
    notes: str = "",
) -> DocumentEncoder:
    """Write a trained document encoder as adapter, contract and probe; whole or not at all.

    What is cut and rounded to be shipped fixes the space: the written adapter is applied to the base as it was before
    training, and the probe's vectors come from that.

    Args:
        factors: The trained adapter, by module name.
        base: What it was trained on: a GGUF file, a folder or a hub id.
        out: The folder to write: ``suwen.json``, ``adapter/`` and the probe.
        name: The pair's name.
        dimension: Where vectors are cut; the full width by default.
        prompts: What stands before queries and documents.
        max_length: Tokens of a text, the end token among them.
        rank: Cut the adapter to this rank; as trained by default.
        bits: Of the adapter's numbers.
        hub_id: The base's official name, where ``base`` is a copy of it.
        device: Where to run the probe.
        body: The base as :func:`load_base` gives it, where it is in memory; it becomes the frozen encoder.
        normalise: Where ``body`` is loaded: whether vectors get length one, or the space is one of inner product.
        notes: What the manifest remarks.

    Returns:
        The frozen encoder, ready to be used; its ``space`` is the minted one.

    Raises:
        FreezeError: ``out`` is taken.
    """
    # A hub id is a name for others too; of a path on this machine its last part is.
    base_name = hub_id or (Path(base).name if Path(base).exists() else str(base))
    with staged(Path(out)) as stage:
        if body is None:
            body = load_base(base, device=device, max_length=max_length, normalise=normalise)
        digest = base_hash(base)
        save_adapter(factors, stage / ADAPTER, bits=bits, rank=rank, base=base_name, base_sha256=digest)
        apply_adapter(body, stage / ADAPTER)
        side = Side(body, "document")
        space = mint_adapted(side, stage / ADAPTER, digest, hub_id, dimension, prompts or Prompts(), max_length)
        document = AdapterDocument(kind="adapter", base=base_name, path=ADAPTER)
        save_manifest(stage, Manifest(name=name, form="full", space=space, document=document, notes=notes))
        settings = EncoderSettings(str(out), device, "auto", False, base=str(base))
        encoder = DocumentEncoder(side, space, name=name, settings=settings)
        write_probe(stage, encoder.encode(probe_texts()))
    return encoder


def dress(model: Any, space: Space) -> Any:
    """Give a ``SentenceTransformer`` the space's prompts and cut, so that its own ``encode_document`` follows them.

    The cut is a frozen identity matrix before the normalisation: no custom code in the saved model.
    """
    from sentence_transformers import SentenceTransformer

    modules = list(model)
    if space.dimension < space.full_dimension and not any(type(module).__name__ == "Dense" for module in modules):
        modules.insert(2, cut(next(modules[0].parameters()), space.full_dimension, space.dimension))
    prompts = {"query": space.prompts.query, "document": space.prompts.document}
    device = str(next(modules[0].parameters()).device)
    return SentenceTransformer(modules=modules, device=device, prompts=prompts, similarity_fn_name=space.similarity)


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that takes its name if all goes well, and is gone otherwise.

    Raises:
        FreezeError: ``out`` is taken.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FreezeError(f"{out} exists: name a new folder, or remove it")
    with new_folder(out) as stage:
        yield stage


def mint_adapted(
    side: Side,
    adapter: Path,
    base_sha256: str,
    hub_id: str | None,
    dimension: int | None,
    prompts: Prompts,
    max_length: int,
) -> Space:
    """The space of a base with an adapter, as it was written, applied to it."""
    full = int(side.modules[0].get_embedding_dimension())
    return Space.mint(
        base={"hub_id": hub_id, "sha256": base_sha256},
        adapter={"sha256": adapter_sha256(adapter)},
        prompts=prompts,
        pooling=side.pooling,
        end_token=side.end_token,
        max_length=max_length,
        dimension=dimension or full,
        full_dimension=full,
        normalise=side.normalises,
        similarity="cosine" if side.normalises else "dot",
    )
