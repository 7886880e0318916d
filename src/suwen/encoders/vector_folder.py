"""A folder of document vectors: written in shards, resumed after a crash, finished as one array. No index here."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from suwen.durable import replacing, write_json
from suwen.encoders.crew import Crew, Processes, encode_by
from suwen.encoders.document import DescribedEncoder, DocumentEncoder, Progress
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.shards import Shard, VectorsError, cut, write_shard

FORMAT = 1


def encode_to_folder(
    texts: Iterable[tuple[str, str]],
    encoder: DocumentEncoder | DescribedEncoder,
    out: Path,
    *,
    shard_size: int = 10_000,
    workers: int = 1,
    crew: Crew | None = None,
    progress: Progress | None = None,
) -> Path:
    """Encode ``(id, text)`` pairs into a folder. Run it again after a crash and finished shards are not redone.

    The folder ends up with ``vectors.npy`` (fp16), ``ids.txt`` (``id<TAB>first 12 hex digits of the text's sha1``, a
    line per row) and ``vectors.json`` (space, dimension, count, hashes), which is written last.

    Args:
        texts: Ids and texts, streamed; on a rerun they must be the same, in the same order.
        encoder: The document encoder; one that is only described needs workers, which load it themselves.
        out: The folder.
        shard_size: Texts per shard: how much a crash can cost.
        workers: Processes. Above one, each loads the encoder by its path (on a GPU of its own where there are several).
        crew: Other workers than processes of this machine.
        progress: Called with the texts done and the texts in all (0 where that is not known), after each shard.

    Raises:
        VectorsError: The folder holds the work of another run.
    """
    out = Path(out)
    settings = _settings(encoder, shard_size)
    if (out / "vectors.json").is_file():
        return _already_done(out, texts, settings)
    shards = _begin(out, settings)
    total = len(texts) if isinstance(texts, Sized) else 0
    if crew is None and (workers > 1 or isinstance(encoder, DescribedEncoder)):
        crew = Processes(workers)
    with replacing(out / "ids.txt") as ids_file:
        seen = _Seen(ids_file, total, progress)
        todo = seen.unfinished(cut(texts, shard_size), shards)
        for count in _encoded_by(crew, todo, encoder, shards) if crew else _encoded(todo, encoder, shards):
            seen.finished(count)
    return _finish(out, seen, settings)


def _encoded(todo: Iterable[Shard], encoder: DocumentEncoder | DescribedEncoder, folder: Path) -> Iterator[int]:
    for shard in todo:
        write_shard(shard.file(folder), encoder.encode(shard.texts))  # type: ignore[union-attr]  # else there is a crew
        yield len(shard.ids)


def _encoded_by(
    crew: Crew, todo: Iterator[Shard], encoder: DocumentEncoder | DescribedEncoder, folder: Path
) -> Iterator[int]:
    return encode_by(crew, todo, DescribedEncoder(encoder.space, encoder.name, encoder.settings), folder)


def encode_share(
    texts: Iterable[tuple[str, str]],
    encoder: DocumentEncoder,
    out: Path,
    rank: int,
    size: int,
    *,
    shard_size: int,
    progress: Progress | None = None,
) -> int:
    """Encode one of ``size`` shares of the shards; :func:`join_shares` makes one array of them, once all are done.

    Args:
        texts: All ids and texts, as :func:`encode_to_folder` gets them.
        encoder: The document encoder.
        out: The folder.
        rank: Which share, from 0.
        size: Of how many.
        shard_size: As that function gets it.
        progress: Called with the texts of all shares gone by and the texts in all.

    Returns:
        How many shards were encoded: those that had a file are left as they are.
    """
    settings = _settings(encoder, shard_size)
    if (out / "vectors.json").is_file():
        _same_settings(out / "manifest.json", settings)
        return 0
    shards, made, gone_by = _begin(out, settings), 0, 0
    total = len(texts) if isinstance(texts, Sized) else 0
    for shard in cut(texts, shard_size):
        if shard.number % size == rank and not (file := shard.file(shards)).is_file():
            _no_others(shard, shards)
            write_shard(file, encoder.encode(shard.texts))
            made += 1
        gone_by += len(shard.ids)
        if progress is not None:
            progress(gone_by, total)
    return made


def join_shares(texts: Iterable[tuple[str, str]], out: Path, *, progress: Progress | None = None) -> Path:
    """Make one array of the shards that shares have left; needs no encoder.

    Args:
        texts: All ids and texts, as the shares got them.
        out: The folder.
        progress: Called with the texts found and the texts in all.

    Raises:
        VectorsError: Nothing was begun there, or shards are missing.
    """
    out = Path(out)
    if not (out / "manifest.json").is_file():
        raise VectorsError(f"{out} holds no shares to join: encode them first, with --share 1/4 to 4/4 or --share auto")
    settings = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    if (out / "vectors.json").is_file():
        return _already_done(out, texts, settings)
    total = len(texts) if isinstance(texts, Sized) else 0
    with replacing(out / "ids.txt") as ids_file:
        seen = _Seen(ids_file, total, progress)
        missing = [shard.number for shard in seen.unfinished(cut(texts, settings["shard_size"]), out / "shards")]
        if missing:
            some = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
            raise VectorsError(
                f"{len(missing)} of {len(seen.files)} shards are not there yet ({some}): run the shares that are "
                f"missing or were cut off, or leave --share and --join out to encode the rest here"
            )
    return _finish(out, seen, settings)


def _settings(encoder: DocumentEncoder | DescribedEncoder, shard_size: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "space": encoder.space.id,
        "space_name": encoder.name,
        "dimension": encoder.space.dimension,
        "dtype": "float16",
        "shard_size": shard_size,
    }


def _begin(out: Path, settings: dict[str, Any]) -> Path:
    shards = out / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    _same_settings(out / "manifest.json", settings)
    return shards


class _Seen:
    """What has gone by so far: ids written down, source hashed, shards counted."""

    def __init__(self, ids_file: BinaryIO, total: int, progress: Progress | None) -> None:
        self.total, self.progress = total, progress
        self.files: list[Path] = []
        self.count = self.done = 0
        self.source = hashlib.sha256()
        self._ids_file = ids_file

    def unfinished(self, shards: Iterable[Shard], folder: Path) -> Iterator[Shard]:
        """Take note of every shard; give only those without a file."""
        for shard in shards:
            self._note(shard)
            file = shard.file(folder)
            self.files.append(file)
            _no_others(shard, folder)
            if file.is_file():
                self.finished(len(shard.ids))
            else:
                yield shard

    def finished(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total)

    def _note(self, shard: Shard) -> None:
        for id_, text in zip(shard.ids, shard.texts, strict=True):
            mark = hashlib.sha1(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
            self._ids_file.write(f"{id_}\t{mark}\n".encode())
        self.count += len(shard.ids)
        self.source.update(shard.source.encode())


def _no_others(shard: Shard, folder: Path) -> None:
    file = shard.file(folder)
    if others := [other for other in folder.glob(f"{shard.number:06d}-*.npy") if other != file]:
        raise VectorsError(
            f"{others[0]} was made of other texts than shard {shard.number} has now: give the same texts in "
            f"the same order, or another folder"
        )


def _same_settings(file: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a first run down; refuse a rerun with others, and say which."""
    if not file.is_file():
        write_json(file, settings)
        return
    first = json.loads(file.read_text(encoding="utf-8"))
    different = [
        f"{key} was {first.get(key)!r} and is now {value!r}"
        for key, value in settings.items()
        if first.get(key) != value
    ]
    if different:
        raise VectorsError(
            f"{file.parent} was begun with other settings ({'; '.join(different)}): use those, or another folder"
        )


def _already_done(out: Path, texts: Iterable[tuple[str, str]], settings: dict[str, Any]) -> Path:
    _same_settings(out / "manifest.json", settings)
    source = hashlib.sha256()
    for shard in cut(texts, settings["shard_size"]):
        source.update(shard.source.encode())
    if json.loads((out / "vectors.json").read_text(encoding="utf-8"))["source_sha256"] != source.hexdigest():
        raise VectorsError(f"{out} holds the vectors of other texts: give the same texts, or another folder")
    return out


def _finish(out: Path, seen: _Seen, settings: dict[str, Any]) -> Path:
    """Join the shards into one array; the description comes last, so that its presence means that all is there."""
    dtype = np.lib.format.dtype_to_descr(np.dtype(np.float16))
    header = {"descr": dtype, "fortran_order": False, "shape": (seen.count, settings["dimension"])}
    with replacing(out / "vectors.npy") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for file in seen.files:
            try:
                stream.write(np.load(file, allow_pickle=False).data)
            except FileNotFoundError as problem:  # a network's file system may show it late
                raise VectorsError(f"{file} is not to be seen yet: run it again; finished shards are kept") from problem
    described = {key: value for key, value in settings.items() if key != "shard_size"}
    hashes = {"sha256": sha256_of(out / "vectors.npy"), "source_sha256": seen.source.hexdigest()}
    write_json(out / "vectors.json", {**described, "count": seen.count, **hashes})
    shutil.rmtree(out / "shards")
    for leftover in out.glob("*.tmp"):  # of processes that were killed
        leftover.unlink()
    return out
