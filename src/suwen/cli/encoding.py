"""The verb ``encode``: documents to a folder of vectors, by one process, several, a cluster, or in shares."""

from __future__ import annotations

import os
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suwen.choices import OVERLAP, SIZE
from suwen.cli.indexing import Overlap, Size, read_sources
from suwen.cli.options import (
    Base,
    DocumentEncoder,
    Dtype,
    Encoding,
    Format,
    IdField,
    Json,
    Ocr,
    OcrModel,
    PairFolder,
    SkipBad,
    Sources,
    TextField,
    TitleField,
)
from suwen.cli.output import measuring, plural, show
from suwen.cli.page_reading import scan_reading
from suwen.cli.source_notes import SourceNotes
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.corpora.passages import PassageStream
    from suwen.encoders.pair import Pair

Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes (one per GPU), or workers on Ray.")]
On = Annotated[str | None, typer.Option("--on", help="ray (on this machine) or ray:HOST:PORT, a cluster's head.")]
Gpus = Annotated[
    float | None, typer.Option("--gpus-per-worker", min=0, help="On Ray [1 where there are GPUs, else 0].")
]
ShareOption = Annotated[
    str | None, typer.Option("--share", help="Only this share of the shards: 1/4 to 4/4, or auto (Slurm, torchrun).")
]
Join = Annotated[bool, typer.Option("--join", help="Encode nothing: make one array of what the shares have left.")]


def encode(
    sources: Sources,
    to: Annotated[Path, typer.Option("--out", help="The folder for vectors.npy, ids.txt and vectors.json.")],
    document_encoder: DocumentEncoder = None,
    pair: PairFolder = None,
    base: Base = None,
    size: Size = None,
    overlap: Overlap = None,
    workers: Workers = 1,
    on: On = None,
    gpus: Gpus = None,
    share: ShareOption = None,
    join: Join = False,
    shard_size: Annotated[int, typer.Option("--shard-size", min=1, help="Passages per resumable shard.")] = 10_000,
    dtype: Dtype = "auto",
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
    encoding: Encoding = None,
    skip_bad: SkipBad = False,
    ocr: Ocr = True,
    ocr_model: OcrModel = None,
    json: Json = False,
) -> None:
    """Encode documents on a GPU machine, for `suwen index --vectors` where it is served (needs suwen[train]).

    Interrupt it and run it again: finished shards are kept, and a worker that dies is replaced. On several machines:
    `--on` a Ray cluster, or a `--share` for each and `--join` at the end; all of them see the folder. `--pair` is the
    pair that will serve: its tokenizer counts the passages' tokens, and its own document encoder is used where none is
    named (an adapter needs its `--base`).

    Example: `suwen encode articles.jsonl --base base.gguf --out vectors/`
    """
    from suwen.corpora.passages import PassageStream
    from suwen.encoders.pair import Pair

    _refuse_together(workers, on, gpus, share, join)
    serving, notes = Pair.load(pair), SourceNotes(skip_bad)
    chosen = {"document_encoder": document_encoder, "base": base, "dtype": dtype}
    with scan_reading(ocr, ocr_model) as scans:
        passages = PassageStream(
            lambda: read_sources(sources, format, id_field, text_field, title_field, encoding, notes, scans),
            serving.count_tokens,
            size or SIZE,
            OVERLAP if overlap is None else overlap,
        )
        if join:
            _join(passages, to, json)
        elif share is not None:
            _encode_share(passages, to, serving, chosen, share, shard_size, json)
        else:
            _encode(passages, to, serving, chosen, (workers, on, gpus), shard_size, json)


def _refuse_together(workers: int, on: str | None, gpus: float | None, share: str | None, join: bool) -> None:
    if share is not None and (workers > 1 or on is not None or join):
        raise SuwenError("a --share is one process's: leave --workers and --on out, and --join for the end")
    if join and (workers > 1 or on is not None):
        raise SuwenError("--join encodes nothing: leave --workers and --on out")
    if gpus is not None and on is None:
        raise SuwenError("--gpus-per-worker is for --on ray: processes take a GPU each by themselves")


def _encode(
    passages: PassageStream,
    to: Path,
    serving: Pair,
    chosen: dict[str, Any],
    crew: tuple[int, str | None, float | None],
    shard_size: int,
    json: bool,
) -> None:
    from suwen.encoders.vector_folder import encode_to_folder
    from suwen.encoders.who_encodes import describe_document_encoder, load_document_encoder

    workers, on, gpus = crew
    cluster = None
    if on is not None:
        from suwen.encoders.ray_crew import RayCrew, parse_place

        cluster = RayCrew(workers, address=parse_place(on), gpus=gpus)
    alone = workers == 1 and cluster is None
    encoder = (load_document_encoder if alone else describe_document_encoder)(serving, **chosen)
    with measuring("encoding") as progress:
        folder = encode_to_folder(
            passages, encoder, to, shard_size=shard_size, workers=workers, crew=cluster, progress=progress
        )
    _say(folder, encoder.space.id, json)


def _encode_share(
    passages: PassageStream,
    to: Path,
    serving: Pair,
    chosen: dict[str, Any],
    share: str,
    shard_size: int,
    json: bool,
) -> None:
    from suwen.encoders.shares import read_share
    from suwen.encoders.vector_folder import encode_share
    from suwen.encoders.who_encodes import load_document_encoder

    rank, size, local = read_share(share, os.environ)
    encoder = load_document_encoder(serving, **chosen, device=_own_gpu(local))
    with measuring("encoding") as progress:
        made = encode_share(passages, encoder, to, rank, size, shard_size=shard_size, progress=progress)
    said = f"share {rank + 1}/{size}: {plural(made, 'shard')} encoded; when all shares are done, run it with --join"
    show({"out": str(to), "space": encoder.space.id, "share": [rank + 1, size], "shards": made}, said, json=json)


def _own_gpu(local: int) -> str | None:
    """A GPU of its own for each process of a machine, where a launcher shows all of them to all."""
    import torch

    count = torch.cuda.device_count()
    return f"cuda:{local % count}" if count > 1 else None


def _join(passages: PassageStream, to: Path, json: bool) -> None:
    from suwen.encoders.vector_folder import join_shares

    with measuring("joining") as progress:
        folder = join_shares(passages, to, progress=progress)
    _say(folder, loads((folder / "vectors.json").read_text(encoding="utf-8"))["space"], json)


def _say(folder: Path, space: str, json: bool) -> None:
    show({"out": str(folder), "space": space}, f"vectors of space {space} are in {folder}", json=json)


VERBS = (encode,)
