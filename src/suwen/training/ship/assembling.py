"""From a light pair and its base to the full pair: the document encoder merged, as sentence-transformers saves it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suwen.encoders.adapter import load_adapted
from suwen.encoders.base_model import NumberFormat
from suwen.encoders.document import DocumentEncoder, EncoderSettings
from suwen.encoders.halfway import Meeting
from suwen.encoders.pair_files import verify_files
from suwen.encoders.probe import MET, verify_probe
from suwen.encoders.side import ModelError, Side, load_model, no_progress_bar
from suwen.encoders.space import (
    AdapterDocument,
    Manifest,
    ModelDocument,
    SpaceMismatch,
    load_manifest,
    manifest_path,
    save_manifest,
)
from suwen.errors import SuwenError
from suwen.training.ship.freezing import dress, staged
from suwen.training.students.student_models import vector_width

#: Configuration, tokenizers and what a file system rounds up.
_ASIDE = 64 << 20


class AssembleError(SuwenError):
    """A full pair that cannot be made of what was given."""


@dataclass(frozen=True)
class Assembled:
    """What was written: the folder, its manifest, the least cosine on the probe, and who encodes queries there."""

    path: Path
    manifest: Manifest
    cosine: float
    queries: Literal["query encoder", "document encoder"]


def assemble(
    light: Path,
    base: str | Path,
    out: Path,
    *,
    query: Path | None = None,
    device: str | None = None,
    dtype: NumberFormat = "auto",
) -> Assembled:
    """Write the full pair of a light one; whole or not at all.

    Args:
        light: The light pair; its document side is an adapter.
        base: The base it belongs on: a GGUF file, a folder or a hub id. Any form that passes the pair's probe will do.
        out: The folder to write. It loads with ``SentenceTransformer(out)`` and with ``DocumentEncoder.load(out)``;
            the light pair's tiers are copied into it, so that it serves too. Where documents come half-way to a tier,
            only ``DocumentEncoder`` brings them there: sentence-transformers has the document encoder by itself.
        query: A query encoder of the same space as a sentence-transformers folder, for the ``query`` route of a
            Router. Without it there is one model for both sides, and queries are marked by the space's query prompt: a
            light pair's own query encoders are ONNX files, which no Router can hold.
        device: Where to merge and check.
        dtype: Of the written weights; ``auto`` is bf16 on a GPU and fp32 on a CPU.

    Raises:
        AssembleError: The pair holds no adapter or no probe, ``query`` does not fit, or the disk has no room.
        ProbeFailed: The base is not the one the adapter was trained on.
        FreezeError: ``out`` is taken.
    """
    root = manifest_path(Path(light)).parent
    manifest = load_manifest(root)
    _check_light(root, manifest)
    with staged(Path(out)) as stage:
        body = load_adapted(root, manifest, base, device=device, dtype=dtype)
        model = dress(body, manifest.space)
        settings = EncoderSettings(str(out), device, dtype, False)
        encoder = DocumentEncoder(
            Side(model, "document"),
            manifest.space,
            name=manifest.name,
            settings=settings,
            meeting=Meeting.open(root, manifest),
        )
        cosine = verify_probe(encoder, root)
        if query is not None:
            model = _with_queries(model, Path(query), manifest)
        _check_disk(stage, model, root)
        with no_progress_bar():
            model.save(str(stage))
        document = ModelDocument(kind="sentence-transformers" if query is None else "router", path=".")
        full = Manifest.model_validate({**manifest.model_dump(), "form": "full", "document": document.model_dump()})
        _copy_rest(root, stage, manifest)
        save_manifest(stage, full)
    return Assembled(Path(out), full, cosine, "document encoder" if query is None else "query encoder")


def _check_light(root: Path, manifest: Manifest) -> None:
    if not isinstance(manifest.document, AdapterDocument):
        raise AssembleError(
            f"{root} has no adapter to assemble: its documents are encoded by a {manifest.document.kind}. Name a light "
            f"pair that ships its document encoder as an adapter"
        )
    for name in ("probe.json", "probe.npy"):
        if not (root / name).is_file():
            raise AssembleError(f"{root / name} is missing, so no base can be checked: copy the pair again, whole")
    verify_files(root, manifest)


def _with_queries(model: Any, query: Path, manifest: Manifest) -> Any:
    """A Router: the query encoder's modules on one route, the document encoder's on the other."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    space = manifest.space
    # A query encoder knows nothing of where documents come half-way to.
    if manifest_path(query).is_file() and (other := load_manifest(query)).space.alone.id != space.alone.id:
        raise SpaceMismatch(space.id, other.space.id, needed_name=manifest.name, got_name=other.name)
    try:
        asking, _ = load_model(query, device=str(model.device))
    except ModelError as error:
        raise AssembleError(f"the query encoder cannot be used: {error}") from error
    side = Side(asking, "query")
    width = vector_width(side)
    if width != space.dimension:
        raise AssembleError(
            f"{query} gives vectors of {width} dimensions and the space has {space.dimension}: name a query encoder "
            f"aligned to {space.id}"
        )
    router = Router({"query": side.modules, "document": list(model)}, default_route=None, allow_empty_key=False)
    prompts = {"query": side.prompt, "document": space.prompts.document}
    return SentenceTransformer(
        modules=[router], device=str(model.device), prompts=prompts, similarity_fn_name=space.similarity
    )


def _check_disk(stage: Path, model: Any, root: Path) -> None:
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    needed = weights + sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) + _ASIDE
    free = shutil.disk_usage(stage).free
    if needed > free:
        raise AssembleError(
            f"the full pair needs {needed / 2**30:.1f} GiB and {stage.parent} has {free / 2**30:.1f} free: make room, "
            f"choose another --out, or write it in bf16"
        )


def _copy_rest(root: Path, stage: Path, manifest: Manifest) -> None:
    for name in ("probe.json", "probe.npy", *([MET] if manifest.space.halfway else [])):
        shutil.copyfile(root / name, stage / name)
    for tier in manifest.tiers.values():
        shutil.copytree(root / tier.path, stage / tier.path)
