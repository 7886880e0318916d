"""Make the pair that comes inside the package of a light pair with an adapter, as ``suwen train`` exports it.

Chooses the tiers, holds the document encoder on its base to the pair's probe, has it encode the bundled sample
collection (``sample/``, so that the demo shows its documents with no download), writes the model card and checks every
hash and size. The folder takes its place whole or not at all. Encoding the sample with a base of 0.5B parameters takes
about ten minutes on two CPU cores; ``--vectors FOLDER`` keeps the vectors, so that an interrupted run goes on, and
``--only-vectors`` stops there: a GPU machine makes them in seconds, without the packages that search needs.
``--blend l6=static:0.5`` gives a tier of a pair that is exported already a blend, or another one (``--blend-queries``:
of its queries alone), and ``--halfway l6:0.3`` lets its documents come half-way to a tier: another space;
without it they go on as they did. Where the document encoder is that of a pair which has been shipped, ``--sample-of
PAIR`` takes its vectors of the sample in place of ``--base``, and lets them come half-way too.

The card is a Markdown file with places such as ``{{ training.seed }}``, filled from the numbers file: JSON objects,
where a list of objects becomes a table. ``pair.*`` is filled from the pair itself. Needs the ``train`` extra. Example::

    python tools/ship_pair.py PAIR --base base.gguf --card tools/default_pair_card.md --numbers numbers.json
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from suwen.corpora.collection import Collection
from suwen.corpora.sample_collection import sample_passages, sample_path
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.halfway import Meeting, set_halfway, stand_alone
from suwen.encoders.pair import Pair
from suwen.encoders.pair_files import sha256_of, verify_files
from suwen.encoders.probe import LEAST_COSINE, row_cosines, verify_probe
from suwen.encoders.space import AdapterDocument, DamagedPair, Manifest, load_manifest, manifest_path, save_manifest
from suwen.encoders.vector_folder import encode_to_folder
from suwen.errors import SuwenError

log = logging.getLogger("ship")
#: What a package may carry: all files together, and any one of them.
ALL, LARGEST = 45_000_000, 16 << 20
CARD = "README.md"
#: Where the package looks for the sample's vectors, and the files of them.
SAMPLE, PARTS = "sample", ("vectors.npy", "ids.txt", "vectors.json")
#: Said by every card, whatever else it says.
SAYS = ("research preview", "not medical advice", "licence")
LICENCE = "Research preview: the licences of the base and of the training sources are listed in README.md."
NOTES = "Research preview, not medical advice; see README.md."
#: Passages encoded between two words of progress.
SHARD = 24
_PLACE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")


class ShipError(SuwenError):
    """A pair that cannot be shipped as it is."""


def ship(
    source: Path,
    base: str,
    card: str,
    numbers: Mapping[str, Any],
    tiers: Sequence[str],
    out: Path,
    device: str | None = None,
    vectors: Path | None = None,
    blends: Mapping[str, Mapping[str, float]] | None = None,
    met: tuple[str, float] | None = None,
    sample: Path | None = None,
    blend_documents: bool = True,
) -> Path:
    """Write the folder that ships.

    Args:
        source: The light pair.
        base: The base of its adapter: a GGUF file, a folder or a hub id; not used with ``sample``.
        card: The text of the model card, with places to fill.
        numbers: What to fill them with.
        tiers: The tiers to ship; the pair's default tier stays it where it is among them, else the first is.
        out: The folder; what it held is replaced.
        device: Where the document encoder runs.
        vectors: A folder to keep the sample's vectors in; what is there already is not encoded again.
        blends: Tiers that get another blend than the pair gives them.
        met: The tier that documents come half-way to, and its share; as in the pair by default.
        sample: A pair of the same document encoder, by itself, whose vectors of the sample are taken.
        blend_documents: Whether those blends are of documents too.

    Raises:
        ShipError: The pair, the card or the sizes will not do.
        ProbeFailed: The base is not the one the adapter was trained on.
    """
    root = manifest_path(source).parent
    read = load_manifest(root)
    met = met or ((read.space.halfway.tier, read.space.halfway.share) if read.space.halfway else None)
    manifest = chosen(stand_alone(read), tiers, blends, blend_documents)
    with published(out) as stage:
        copy(root, stage, manifest)
        if met is not None:
            manifest = set_halfway(stage, *met)
        check_sizes(stage)
        fill(card, {**numbers, "pair": facts(stage, manifest)})  # what is missing is better known before the encoding
        kept = vectors or stage / ".vectors"
        taken = (Pair.load(stage), sample, kept) if sample is not None else None
        made = take_sample(*taken) if taken else encode_sample(Pair.load(stage), base, kept, device)
        (stage / SAMPLE).mkdir()
        for name in PARTS:
            shutil.copyfile(made / name, stage / SAMPLE / name)
        shutil.rmtree(stage / ".vectors", ignore_errors=True)
        (stage / CARD).write_text(fill(card, {**numbers, "pair": facts(stage, manifest)}), encoding="utf-8")
        check_sizes(stage)
        verify(stage)
    return out


def chosen(
    manifest: Manifest,
    tiers: Sequence[str],
    blends: Mapping[str, Mapping[str, float]] | None = None,
    blend_documents: bool = True,
) -> Manifest:
    """The manifest with these tiers alone, and with something said where the pair's own says nothing."""
    if not isinstance(manifest.document, AdapterDocument):
        raise ShipError(
            f"{manifest.name} holds no adapter: its documents are encoded by a {manifest.document.kind}. Name the "
            "light pair that the stage `export` wrote"
        )
    if missing := [name for name in tiers if name not in manifest.tiers]:
        raise ShipError(f"{manifest.name} has no tier {', '.join(missing)}: choose among {', '.join(manifest.tiers)}")
    if not tiers:
        raise ShipError("no tier is left to encode queries: name some with --tiers")
    said = manifest.model_dump()
    said |= {
        "form": "light",
        "tiers": _blended({name: said["tiers"][name] for name in tiers}, blends or {}, blend_documents),
        "default_tier": manifest.default_tier if manifest.default_tier in tiers else tiers[0],
        "licence": manifest.licence or LICENCE,
        "notes": manifest.notes or NOTES,
    }
    try:
        return Manifest.model_validate(said)
    except ValidationError as error:
        raise ShipError(f"{manifest.name}: {error.errors()[0]['msg']}") from error


def _blended(tiers: dict[str, Any], blends: Mapping[str, Mapping[str, float]], documents: bool) -> dict[str, Any]:
    """The tiers with these blends in place of their own; one that needs a tier which does not ship is refused."""
    if unknown := [name for name in blends if name not in tiers]:
        raise ShipError(f"--blend names {', '.join(unknown)}, which is not shipped: add it to --tiers")
    found = {name: {**tier, "blend": dict(blends.get(name, tier.get("blend", {})))} for name, tier in tiers.items()}
    for name in blends:
        found[name]["blend_documents"] = documents
    for name, tier in found.items():
        if missing := [other for other in tier["blend"] if other not in tiers]:
            raise ShipError(
                f"tier {name} adds the vectors of {', '.join(missing)}, which is not shipped: add it to --tiers, or "
                f"give {name} another blend with --blend"
            )
    return found


def read_blends(asked: Sequence[str]) -> dict[str, dict[str, float]]:
    """Blends as the command line gives them: ``TIER=OTHER:SHARE``, with a comma between several others."""
    try:
        parts = [(tier, others.split(",")) for tier, others in (one.split("=") for one in asked)]
        return {tier: {name: float(share) for name, share in (it.split(":") for it in found)} for tier, found in parts}
    except ValueError as error:
        raise ShipError(f"--blend {' '.join(asked)} cannot be read: write it as in --blend l6=static:0.5") from error


def halfway(asked: str) -> tuple[str, float]:
    """A tier and its share as the command line gives them: ``TIER:SHARE``."""
    tier, share = asked.split(":")
    return tier, float(share)


def copy(root: Path, stage: Path, manifest: Manifest) -> None:
    """Copy what the manifest and the adapter name, and nothing else that lies in the folder."""
    assert isinstance(manifest.document, AdapterDocument)
    adapter = manifest.document.path
    try:
        parts = json.loads((root / adapter / "adapter.json").read_text(encoding="utf-8"))["files"]
        files = ["probe.json", "probe.npy", f"{adapter}/adapter.json", *(f"{adapter}/{name}" for name in parts)]
        files += [f"{tier.path}/{name}" for tier in manifest.tiers.values() for name in tier.files]
        for name in files:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, stage / name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedPair(f"{root} is not whole ({error}): export the pair again") from error
    save_manifest(stage, manifest)
    verify_files(stage, manifest)


def encode_sample(pair: Pair, base: str, folder: Path, device: str | None) -> Path:
    """Load the document encoder, hold it to the probe, and store its vectors of the sample's passages in a folder.

    Raises:
        ShipError: The folder holds vectors that this document encoder does not give.
    """
    encoder = DocumentEncoder.load(pair.path, base=base, device=device, check=False)
    log.info("the base is right: least cosine over the probe %.5f", verify_probe(encoder, pair.path))
    passages = [(passage.id, passage.content) for passage in sample_passages(pair.count_tokens)]
    encode_to_folder(
        passages,
        encoder,
        folder,
        shard_size=SHARD,
        progress=lambda done, total: log.info("encoded %d of %d passages", done, total),
    )
    some = slice(None, None, len(passages) // 6)
    again = encoder.encode([text for _, text in passages[some]])
    stored = np.load(folder / "vectors.npy")[some].astype(np.float32)
    if (least := float(row_cosines(again, stored).min())) < LEAST_COSINE:
        raise ShipError(f"{folder} holds other vectors of the sample (least cosine {least:.4f}): name a new folder")
    return folder


def take_sample(pair: Pair, other: Path, folder: Path) -> Path:
    """Store another pair's vectors of the sample's passages in a folder, come half-way as the pair's documents do.

    Raises:
        ShipError: It has another document encoder, or none of its own vectors.
    """
    theirs = load_manifest(other).space
    if theirs.halfway is not None or theirs.id != pair.space.alone.id:
        raise ShipError(
            f"{other} is of {theirs.id}, not of {pair.space.alone.id}: name the pair with this document encoder"
        )
    passages = sample_passages(pair.count_tokens)
    ids = (other / SAMPLE / "ids.txt").read_text(encoding="utf-8").splitlines()
    if [line.partition("\t")[0] for line in ids] != [passage.id for passage in passages]:
        raise ShipError(f"{other} holds vectors of another sample collection: give --base in its place")
    stored = np.load(other / SAMPLE / "vectors.npy").astype(np.float32)
    meeting = Meeting.open(pair.path, pair.manifest)
    if meeting is not None:
        stored = meeting.begin([passage.content for passage in passages])(stored)
    folder.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        shutil.copyfile(other / SAMPLE / name, folder / name)
    np.save(folder / "vectors.npy", stored.astype(np.float16))
    said = json.loads((folder / "vectors.json").read_text(encoding="utf-8"))
    said |= {"space": pair.space.id, "sha256": sha256_of(folder / "vectors.npy")}
    (folder / "vectors.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    return folder


def verify(stage: Path) -> None:
    """Read the finished folder as a user's machine will, without torch."""
    from suwen.retrieve.sample import stored_vectors

    pair = Pair.load(stage)
    verify_files(stage, pair.manifest)
    card = (stage / CARD).read_text(encoding="utf-8").lower()
    if missing := [words for words in SAYS if words not in card]:
        raise ShipError(f"the card does not say {', '.join(map(repr, missing))}: add it to the card")
    stored_vectors(pair, sample_passages(pair.count_tokens)).close()
    for name in pair.tiers:
        found, asked = search_sample(pair, name)
        log.info(
            "tier %s finds a judged passage among the first 5 for %d of the sample's %d queries", name, found, asked
        )


def search_sample(pair: Pair, tier: str) -> tuple[int, int]:
    """How many of the sample's queries have a judged passage among the first five, and how many there are."""
    collection = Collection.open(sample_path())
    qrels, queries = collection.qrels(), list(collection.queries())
    owners = [passage.document_id for passage in sample_passages(pair.count_tokens)]
    vectors = np.load(pair.path / SAMPLE / "vectors.npy").astype(np.float32)
    asked = pair.encoder(tier).encode_queries([query.text for query in queries])
    best = np.argsort(-(asked @ vectors.T), axis=1)[:, :5]
    found = [
        any(qrels[query.id].get(owners[row], 0) > 0 for row in rows) for query, rows in zip(queries, best, strict=True)
    ]
    return sum(found), len(queries)


def check_sizes(folder: Path) -> None:
    """Refuse what a package cannot carry, with the numbers."""
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    largest = sorted(sizes, key=lambda name: -sizes[name])
    listed = ", ".join(f"{name} {sizes[name] / 1e6:.1f} MB" for name in largest[:6])
    if over := [name for name in largest if sizes[name] > LARGEST]:
        raise ShipError(
            f"{', '.join(over)}: over {LARGEST / 2**20:.0f} MiB a file ({listed}). Use a smaller vocabulary or shape"
        )
    if (total := sum(sizes.values())) > ALL:
        raise ShipError(
            f"{total / 1e6:.1f} MB in all, over {ALL / 1e6:.0f} ({listed}). Choose fewer --tiers, or freeze the "
            "adapter with a lower rank or 8 bits"
        )
    log.info("%d files, %.1f MB in all: %s", len(sizes), total / 1e6, listed)


def facts(stage: Path, manifest: Manifest) -> dict[str, Any]:
    """What the pair says of itself, for the card."""
    space, document = manifest.space, manifest.document
    assert isinstance(document, AdapterDocument)
    adapter = json.loads((stage / document.path / "adapter.json").read_text(encoding="utf-8"))
    tiers = [
        {
            "tier": f"`{name}`" + (" (default)" if name == manifest.default_tier else ""),
            "kind": " + ".join(
                [
                    tier.kind if tier.layers is None else f"{tier.layers} layers of {tier.width}",
                    *(f"{share:g} of `{other}`" for other, share in tier.blend.items()),
                ]
            ),
            "precision": tier.precision,
            "tokens": str(tier.max_length),
            "size": f"{size_of(stage / tier.path) / 1e6:.1f} MB",
        }
        for name, tier in manifest.tiers.items()
    ]
    return {
        "name": manifest.name,
        "space": space.id,
        "dimension": str(space.dimension),
        "full_dimension": str(space.full_dimension),
        "max_length": str(space.max_length),
        "query_prompt": f"`{space.prompts.query}`" if space.prompts.query else "none",
        "document_prompt": f"`{space.prompts.document}`" if space.prompts.document else "none",
        "halfway": f"{space.halfway.share:g} of `{space.halfway.tier}`" if space.halfway else "none",
        "base": document.base,
        "base_sha256": space.base.sha256,
        "adapter_rank": str(adapter["rank"]),
        "adapter_bits": str(adapter["bits"]),
        "adapter_size": f"{size_of(stage / document.path) / 1e6:.1f} MB",
        "default_tier": str(manifest.default_tier),
        "tiers": tiers,
        "size": f"{size_of(stage) / 1e6:.0f} MB",
    }


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def fill(card: str, values: Mapping[str, Any]) -> str:
    """The card with every place filled.

    Raises:
        ShipError: Places have nothing to fill them, or a value is neither text, number nor table.
    """
    places = dict.fromkeys(_PLACE.findall(card))
    found = {place: _look_up(values, place) for place in places}
    if missing := [place for place, value in found.items() if value is None]:
        raise ShipError(f"the card asks for {', '.join(missing)}: add them to the numbers file")
    return _PLACE.sub(lambda match: _written(match[1], found[match[1]]), card)


def _look_up(values: Mapping[str, Any], place: str) -> Any:
    found: Any = values
    for part in place.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _written(place: str, value: Any) -> str:
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        heads = list(value[0])
        if uneven := [row for row in value if list(row) != heads]:
            raise ShipError(f"{place}: the row {uneven[0]} has not the columns {', '.join(heads)} of the first")
        rows = [[str(cell) for cell in row.values()] for row in value]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))
    raise ShipError(f"{place} is {value!r}: give a text, a number, or a list of objects for a table")


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that takes its place if all goes well; what was there stays until then."""
    stage, old = (out.parent / f".{out.name}.{os.getpid()}.{what}" for what in ("new", "old"))
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    try:
        yield stage
        if out.exists():
            out.rename(old)
        try:
            stage.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if out.exists():
            shutil.rmtree(old, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", type=Path, help="the light pair with an adapter")
    parser.add_argument("--base", help="the adapter's base: a GGUF file, a folder or a hub id")
    parser.add_argument("--sample-of", type=Path, help="in place of --base: a pair of the same document encoder")
    parser.add_argument("--card", type=Path, help="the model card, with places to fill")
    parser.add_argument("--numbers", type=Path, help="JSON to fill the card's places with")
    parser.add_argument("--tiers", default="l6,static", help="the tiers to ship [l6,static]")
    parser.add_argument("--blend", action="append", default=[], help="a tier's blend, e.g. l6=static:0.5; repeatable")
    parser.add_argument("--blend-queries", action="store_true", help="the blends are of queries alone")
    parser.add_argument("--halfway", type=halfway, metavar="TIER:SHARE", help="e.g. l6:0.3 [as in the pair]")
    parser.add_argument("--out", type=Path, default=Path("src/suwen/models/default"), help="the folder to replace")
    parser.add_argument("--vectors", type=Path, help="a folder to keep the sample's vectors in")
    parser.add_argument("--only-vectors", action="store_true", help="make --vectors and stop")
    parser.add_argument("--device", help="where the document encoder runs, e.g. cpu")
    asked = parser.parse_args(arguments)
    if (asked.only_vectors and asked.vectors is None) or not (asked.only_vectors or asked.card):
        parser.error("--only-vectors needs --vectors" if asked.only_vectors else "--card is needed")
    if (asked.base is None) == (asked.sample_of is None) or (asked.only_vectors and asked.sample_of):
        parser.error("give --base, or --sample-of where the sample's vectors are another pair's")
    if asked.only_vectors and asked.halfway:
        parser.error("--only-vectors takes the pair as it is: say `halfway` in its recipe's export stage")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        _run(asked)
    except (OSError, ValueError, SuwenError) as error:
        sys.exit(f"ship_pair: {error}")


def _run(asked: argparse.Namespace) -> None:
    tiers, blends = [name.strip() for name in asked.tiers.split(",") if name.strip()], read_blends(asked.blend)
    if asked.only_vectors:
        pair = Pair(asked.pair, chosen(load_manifest(asked.pair), tiers, blends))  # the default tier cuts the passages
        log.info("%s is ready", encode_sample(pair, asked.base, asked.vectors, asked.device))
        return
    # Numbers are kept as they are written: 42.10 stays 42.10.
    numbers = json.loads(asked.numbers.read_text(encoding="utf-8"), parse_float=str) if asked.numbers else {}
    card = asked.card.read_text(encoding="utf-8")
    documents = not asked.blend_queries
    options = (tiers, asked.out, asked.device, asked.vectors, blends, asked.halfway, asked.sample_of, documents)
    ship(asked.pair, asked.base, card, numbers, *options)
    log.info("%s is ready", asked.out)


if __name__ == "__main__":
    main()
