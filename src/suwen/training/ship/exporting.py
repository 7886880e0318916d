"""From a trained model to a light pair: tiers without torch, checked against torch before anything is published."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from suwen.durable import new_folder
from suwen.encoders.document import DocumentEncoder, EncoderSettings
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.probe import probe_texts, row_cosines, write_probe
from suwen.encoders.prompts import Prompts
from suwen.encoders.query import OnnxEncoder, Vectors
from suwen.encoders.side import Side, load_model, mint_space
from suwen.encoders.space import (
    AdapterDocument,
    DocumentSide,
    ElsewhereDocument,
    Manifest,
    Space,
    SpaceMismatch,
    Tier,
    TierDocument,
    load_manifest,
    manifest_path,
    save_manifest,
)
from suwen.encoders.static import StaticEncoder, unit
from suwen.errors import SuwenError
from suwen.training.ship.onnx_graph import quantise, quantise_rows, write_graph
from suwen.training.students.static_table import distil_table, read_table

#: Under this the graph is not the model, and nothing is written.
LEAST_PARITY = 0.999
_MEASURED_TEXTS = 256
#: Where the tiers to add to a pair lie, in its folder, until all of them are there.
_ADDED = ".added"


class ExportError(SuwenError):
    """An export that would not be the model, or would overwrite something."""


@dataclass(frozen=True)
class ExportReport:
    """What was written: the folder, its manifest, and each new tier's size in bytes (cosines are in the manifest)."""

    path: Path
    manifest: Manifest
    sizes: dict[str, int]


@dataclass(frozen=True)
class _Source:
    """A loaded model with the contract it is exported under."""

    model: Any
    folder: Path
    space: Space
    manifest: Manifest | None

    @property
    def prompts(self) -> Prompts:
        """The tier's: the model's own, and none for documents where a Router has two sides."""
        document = "" if self.is_router else Side(self.model, "document").prompt
        query, theirs = Side(self.model, "query").prompt, self.space.prompts
        # The same prompt has the same place for an instruction.
        place = theirs.instruction if query == theirs.query else None
        return Prompts(query=query, document=document, instruction=place)

    @property
    def is_student(self) -> bool:
        """The folder holds a query encoder alone, aligned to the space of a document encoder elsewhere."""
        return self.manifest is not None and isinstance(self.manifest.document, ElsewhereDocument | AdapterDocument)

    @property
    def name(self) -> str:
        return self.manifest.name if self.manifest else self.folder.resolve().name

    @property
    def is_router(self) -> bool:
        return type(next(iter(self.model))).__name__ == "Router"

    def teacher(self) -> DocumentEncoder:
        settings = EncoderSettings(str(self.folder), "cpu", "fp32", False)
        return DocumentEncoder(Side(self.model, "document"), self.space, name=self.folder.name, settings=settings)


def export(
    source: Path,
    out: Path,
    *,
    tier: str | None = None,
    texts: Sequence[str] | None = None,
    precision: Literal["int8", "fp32", "both"] = "int8",
    name: str | None = None,
    static: bool = False,
    into: bool = False,
    dimension: int | None = None,
    max_length: int | None = None,
    hub_id: str | None = None,
    licence: str = "",
    trust_remote_code: bool = False,
) -> ExportReport:
    """Write the light pair of a model, or add a tier to one.

    Args:
        source: A full pair (a Router folder; its query route becomes the tier), a query encoder aligned to a space
            (its ``suwen.json`` names it), or any sentence-transformers model, which then fixes a space of its own.
        out: The folder to write; with ``into``, the light pair to add to.
        tier: The tier's name; ``l<layers>`` (``static`` for a lookup table) by default.
        texts: Real texts to measure the loss on, and to fit the static tier to; the probe's 32 by default.
        precision: ``both`` writes the int8 tier under its name and the fp32 one under ``<name>-fp32``.
        name: The pair's name; the source's own by default.
        static: Add a static tier fitted to the document encoder's vectors of ``texts``.
        into: Add to the pair at ``out``, which must be of the same space.
        dimension: Cut to this width (and normalise again), where no ``suwen.json`` states the space.
        max_length: The tier's length; the model's own by default.
        hub_id: Where the document encoder's base may be found.
        licence: The licence of the weights, for the manifest.
        trust_remote_code: Run Python code that comes with the model. Only for models you trust.

    Raises:
        ExportError: The graph does not agree with torch, or ``out`` is not free.
        SpaceMismatch: ``into`` names a pair of another space.
    """
    out = Path(out)
    origin = _open(Path(source), dimension, hub_id, trust_remote_code)
    pair = _target(out, into, origin)
    with new_folder(out if pair is None else out / _ADDED) as stage:
        (stage / "query").mkdir()
        tiers = _write_query_tiers(origin, stage, tier, texts or [], precision, max_length)
        if static:
            tiers |= _distil_static(origin, stage, texts or [], max_length)
        if pair is None:
            _describe(origin, stage, tiers, hub_id, name or origin.name, licence)
        elif taken := sorted(set(tiers) & set(pair.tiers)):
            raise ExportError(f"{out} already has a tier named {', '.join(taken)}: choose another name with tier=")
    if pair is not None:
        _move_in(out / _ADDED, out, tiers, pair)
    sizes = {key: sum((out / made.path / file).stat().st_size for file in made.files) for key, made in tiers.items()}
    return ExportReport(out, load_manifest(out), sizes)


def _open(source: Path, dimension: int | None, hub_id: str | None, trust_remote_code: bool) -> _Source:
    manifest = load_manifest(source) if manifest_path(source).is_file() else None
    if manifest is not None and isinstance(manifest.document, AdapterDocument):
        raise ExportError(
            f"{source} holds an adapter over {manifest.document.base}: put it together with that base first (`suwen "
            f"assemble {source} --base PATH --out FULL`), then export FULL"
        )
    model, folder = load_model(source, device="cpu", trust_remote_code=trust_remote_code)
    model.float()
    if manifest is not None and dimension not in (None, manifest.space.dimension):
        raise ExportError(
            f"{source} is in a space of {manifest.space.dimension} dimensions, which {dimension} would leave: "
            f"drop the dimension, or mint another space for the model"
        )
    # Of a pair whose documents come half-way to a tier: the document encoder by itself, for that tier may not be made.
    space = manifest.space.alone if manifest else mint_space(model, folder, dimension=dimension, hub_id=hub_id)
    return _Source(model, folder, space, manifest)


def _target(out: Path, into: bool, origin: _Source) -> Manifest | None:
    """The pair to add to, if any; refuse an ``out`` that is taken, or in another space."""
    if not into:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ExportError(f"{out} exists: name a new folder, or add a tier to it with into=True")
        return None
    pair = load_manifest(out)
    if pair.space.alone.id != origin.space.id:
        raise SpaceMismatch(pair.space.id, origin.space.id, needed_name=pair.name, got_name=origin.name)
    return pair


def _describe(
    origin: _Source, stage: Path, tiers: dict[str, Tier], hub_id: str | None, name: str, licence: str
) -> None:
    """Write the manifest of a new pair, and its probe where its document encoder is at hand."""
    first = next(iter(tiers))
    manifest = Manifest(
        name=name,
        form="light",
        space=origin.space,
        tiers=tiers,
        default_tier=first,
        document=_document_side(origin, first, hub_id),
        licence=licence,
    )
    save_manifest(stage, manifest)
    if not origin.is_student:
        write_probe(stage, origin.teacher().encode(probe_texts()))


def _move_in(stage: Path, out: Path, tiers: dict[str, Tier], pair: Manifest) -> None:
    """Folders first, then the manifest that names them: a reader in between sees the old pair."""
    (out / "query").mkdir(exist_ok=True)
    for tier in tiers.values():
        shutil.rmtree(out / tier.path, ignore_errors=True)  # left by an export that died before its manifest
        (stage / tier.path).rename(out / tier.path)
    # Where documents come half-way to one of the old tiers, they go on doing so.
    added = {name: tier.model_copy(update={"aligned_to": pair.space.id}) for name, tier in tiers.items()}
    save_manifest(out, pair.model_copy(update={"tiers": {**pair.tiers, **added}}))
    shutil.rmtree(stage)


def _write_query_tiers(
    origin: _Source, stage: Path, name: str | None, texts: Sequence[str], precision: str, max_length: int | None
) -> dict[str, Tier]:
    side = Side(origin.model, "query")
    length = min(max_length or side.max_length, side.max_length)
    measured = _measured_texts(texts)
    if side.is_static:
        rows, form = read_table(side, origin.space.dimension)
        folder = stage / "query" / (name or "static")
        # Where the table has forms, the prompt's one token chooses between them and is not shipped.
        has_forms = hasattr(side.modules[0], "form")
        prompts = Prompts() if has_forms else origin.prompts
        tier = _write_table(folder, side, rows, form, origin, length, prompts)
        encoder = StaticEncoder(
            folder, tier, name="", dimension=origin.space.dimension, normalise=origin.space.normalise
        )
        parity = _parity("torch", encoder, measured, _torch_vectors(side, origin, measured, length + has_forms))
        return {folder.name: tier.model_copy(update={"parity": parity})}
    config = side.modules[0].model.config
    name = name or f"l{config.num_hidden_layers}"
    fp32_name = name if precision == "fp32" else f"{name}-fp32"
    fp32 = _write_fp32(stage / "query" / fp32_name, side, origin, measured, length)
    if precision == "fp32":
        return {name: fp32}
    int8 = _write_int8(stage / "query" / name, stage / fp32.path, fp32, side, origin, measured, length)
    if precision == "both":
        return {name: int8, fp32_name: fp32}
    shutil.rmtree(stage / fp32.path)
    return {name: int8}


def _write_fp32(folder: Path, side: Side, origin: _Source, measured: Sequence[str], length: int) -> Tier:
    """Write the fp32 graph and hold it against torch; a graph that is not the model is refused."""
    folder.mkdir()
    expected = _torch_vectors(side, origin, measured, length)
    write_graph(side, folder / "model.onnx", dimension=origin.space.dimension, normalise=origin.space.normalise)
    write_tokenizer(folder, side, length)
    tier = _onnx_tier(folder, side, origin, length, "fp32")
    encoder = OnnxEncoder(folder, tier, name=folder.name, dimension=origin.space.dimension)
    parity = _parity("torch", encoder, measured, expected)
    if not parity["torch_min"] >= LEAST_PARITY:
        raise ExportError(
            f"the ONNX graph does not agree with torch: the least cosine over {len(measured)} texts is "
            f"{parity['torch_min']:.5f}, under {LEAST_PARITY}. Nothing was written; use an architecture of "
            f"transformers without custom code, and check that the model folder loads in sentence-transformers"
        )
    return tier.model_copy(update={"parity": parity})


def _write_int8(
    folder: Path, fp32_folder: Path, fp32: Tier, side: Side, origin: _Source, measured: Sequence[str], length: int
) -> Tier:
    folder.mkdir()
    quantise(fp32_folder / "model.onnx", folder / "model.onnx")
    shutil.copyfile(fp32_folder / "tokenizer.json", folder / "tokenizer.json")
    tier = _onnx_tier(folder, side, origin, length, "int8")
    reference = OnnxEncoder(fp32_folder, fp32, name="", dimension=origin.space.dimension).encode_queries(measured)
    encoder = OnnxEncoder(folder, tier, name=folder.name, dimension=origin.space.dimension)
    return tier.model_copy(update={"parity": {**fp32.parity, **_parity("int8", encoder, measured, reference)}})


def _onnx_tier(folder: Path, side: Side, origin: _Source, length: int, precision: Literal["int8", "fp32"]) -> Tier:
    config = side.modules[0].model.config
    return Tier(
        kind="onnx",
        path=f"query/{folder.name}",
        files=_hashes(folder),
        prompts=origin.prompts,
        max_length=length,
        precision=precision,
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        aligned_to=origin.space.id,
    )


def _distil_static(origin: _Source, stage: Path, texts: Sequence[str], max_length: int | None) -> dict[str, Tier]:
    if origin.is_student:
        raise ExportError(
            f"{origin.folder} holds no document encoder to fit a static tier to: export it from the full pair"
        )
    if not origin.space.normalise:
        raise ExportError(
            f"vectors of {origin.space.id} have lengths of their own, and a static tier is fitted to directions alone: "
            f"leave out static"
        )
    side = Side(origin.model, "query")
    table = distil_table(side, origin.teacher(), texts)
    length = min(max_length or side.max_length, side.max_length)
    tier = _write_table(stage / "query" / "static", side, table.rows, table.form, origin, length, Prompts())
    parity = {"space_mean": table.mean, "space_min": table.least, "texts": float(table.texts)}
    return {"static": tier.model_copy(update={"parity": parity})}


def _write_table(
    folder: Path, side: Side, rows: Vectors, form: Vectors, origin: _Source, length: int, prompts: Prompts
) -> Tier:
    folder.mkdir()
    int8, scales = quantise_rows(rows)
    for file, array in (("embeddings", int8), ("scales", scales), ("form", form)):
        np.save(folder / f"{file}.npy", array)
    write_tokenizer(folder, side, length)
    return Tier(
        kind="static",
        path=f"query/{folder.name}",
        files=_hashes(folder),
        prompts=prompts,
        max_length=length,
        precision="int8",
        layers=0,
        width=rows.shape[1],
        aligned_to=origin.space.id,
    )


def write_tokenizer(folder: Path, side: Side, length: int) -> None:
    """Write a side's tokenizer as a tier has it: cut to a length, without padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(side.backend.to_str())
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=length)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


def _document_side(origin: _Source, first: str, hub_id: str | None) -> DocumentSide:
    """How the light pair's documents are encoded: by a full pair elsewhere, or by the tier."""
    base = hub_id or origin.space.base.hub_id
    if origin.is_student and origin.manifest is not None:
        name = getattr(origin.manifest.document, "name", None) or base or origin.manifest.name
        return ElsewhereDocument(kind="elsewhere", name=name)
    if origin.is_router:
        return ElsewhereDocument(kind="elsewhere", name=base or origin.name)
    return TierDocument(kind="tier", tier=first)


def _measured_texts(texts: Sequence[str]) -> list[str]:
    """The probe's texts, one that is cut in any model, and a sample spread evenly over the given ones."""
    step = max(1, len(texts) // _MEASURED_TEXTS)
    endless = "\n".join(probe_texts()) * 8
    return [*probe_texts(), endless, *texts[::step][:_MEASURED_TEXTS]]


def _torch_vectors(side: Side, origin: _Source, texts: Sequence[str], length: int) -> Vectors:
    import torch

    rows = side.ids([origin.prompts.query + text for text in texts], max_length=length)
    with torch.inference_mode():
        vectors = torch.cat([side.embed([row]) for row in rows])[:, : origin.space.dimension].float().numpy()
    return unit(vectors) if origin.space.normalise else vectors


def _parity(
    against: str, encoder: OnnxEncoder | StaticEncoder, texts: Sequence[str], expected: Vectors
) -> dict[str, float]:
    cosines = row_cosines(encoder.encode_queries(texts), expected)
    mean, least = round(float(cosines.mean()), 6), round(float(cosines.min()), 6)
    return {f"{against}_mean": mean, f"{against}_min": least, "texts": float(len(texts))}


def _hashes(folder: Path) -> dict[str, str]:
    return {file.name: sha256_of(file) for file in sorted(folder.iterdir())}
