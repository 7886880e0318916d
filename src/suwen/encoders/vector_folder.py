"""A folder of document vectors: written in shards, resumed after a crash, finished as one array. No index here."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from suwen.durable import replacing, write_json
from suwen.encoders.document import DocumentEncoder, EncoderSettings, Progress
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

FORMAT = 1


class VectorsError(SuwenError):
    """A folder of vectors that belongs to other texts, another space or other settings."""


class _Shard(NamedTuple):
    number: int
    ids: list[str]
    texts: list[str]
    source: str

    def file(self, folder: Path) -> Path:
        # The hash of the texts is part of the name: a finished shard says by itself what it is the shard of.
        return folder / f"{self.number:06d}-{self.source[:16]}.npy"


def encode_to_folder(
    texts: Iterable[tuple[str, str]],
    encoder: DocumentEncoder,
    out: Path,
    *,
    shard_size: int = 10_000,
    workers: int = 1,
    progress: Progress | None = None,
) -> Path:
    """Encode ``(id, text)`` pairs into a folder. Run it again after a crash and finished shards are not redone.

    The folder ends up with ``vectors.npy`` (fp16), ``ids.txt`` (``id<TAB>first 12 hex digits of the text's sha1``, a
    line per row) and ``vectors.json`` (space, dimension, count, hashes), which is written last.

    Args:
        texts: Ids and texts, streamed; on a rerun they must be the same, in the same order.
        encoder: The document encoder.
        out: The folder.
        shard_size: Texts per shard: how much a crash can cost.
        workers: Processes. Above one, each loads the encoder by its path (on a GPU of its own where there are several).
        progress: Called with the texts done and the texts in all (0 where that is not known), after each shard.

    Raises:
        VectorsError: The folder holds the work of another run.
    """
    out = Path(out)
    shards = out / "shards"
    settings = {
        "format": FORMAT,
        "space": encoder.space.id,
        "space_name": encoder.name,
        "dimension": encoder.space.dimension,
        "dtype": "float16",
        "shard_size": shard_size,
    }
    if (out / "vectors.json").is_file():
        return _already_done(out, texts, settings, shard_size)
    shards.mkdir(parents=True, exist_ok=True)
    _same_settings(out / "manifest.json", settings)
    total = len(texts) if isinstance(texts, Sized) else 0
    with replacing(out / "ids.txt") as ids_file:
        seen = _Seen(ids_file, total, progress)
        todo = seen.unfinished(_cut(texts, shard_size), shards)
        if workers > 1:
            _encode_in_processes(todo, encoder, shards, workers, seen)
        else:
            for shard in todo:
                _write_array(shard.file(shards), encoder.encode(shard.texts))
                seen.finished(len(shard.ids))
    return _finish(out, seen, settings)


def encode_share(
    texts: Iterable[tuple[str, str]], encoder: DocumentEncoder, out: Path, rank: int, size: int, *, shard_size: int
) -> None:
    """Encode one of ``size`` shares of the shards; :func:`encode_to_folder` finds them done, once all shares are.

    Args:
        texts: All ids and texts, as that function gets them.
        encoder: The document encoder.
        out: The folder.
        rank: Which share, from 0.
        size: Of how many.
        shard_size: As that function gets it.
    """
    if (out / "vectors.json").is_file():
        return
    shards = out / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    for shard in _cut(texts, shard_size):
        if shard.number % size == rank and not (file := shard.file(shards)).is_file():
            _write_array(file, encoder.encode(shard.texts))


class _Seen:
    """What has gone by so far: ids written down, source hashed, shards counted."""

    def __init__(self, ids_file: BinaryIO, total: int, progress: Progress | None) -> None:
        self.total, self.progress = total, progress
        self.files: list[Path] = []
        self.count = self.done = 0
        self.source = hashlib.sha256()
        self._ids_file = ids_file

    def unfinished(self, shards: Iterable[_Shard], folder: Path) -> Iterator[_Shard]:
        """Take note of every shard; give only those without a file."""
        for shard in shards:
            self._note(shard)
            file = shard.file(folder)
            self.files.append(file)
            if others := [other for other in folder.glob(f"{shard.number:06d}-*.npy") if other != file]:
                raise VectorsError(
                    f"{others[0]} was made of other texts than shard {shard.number} has now: give the same texts in "
                    f"the same order, or another folder"
                )
            if file.is_file():
                self.finished(len(shard.ids))
            else:
                yield shard

    def finished(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total)

    def _note(self, shard: _Shard) -> None:
        for id_, text in zip(shard.ids, shard.texts, strict=True):
            mark = hashlib.sha1(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
            self._ids_file.write(f"{id_}\t{mark}\n".encode())
        self.count += len(shard.ids)
        self.source.update(shard.source.encode())


def _cut(texts: Iterable[tuple[str, str]], size: int) -> Iterator[_Shard]:
    if size < 1:
        raise VectorsError(f"shard_size {size} is not a number of texts: give at least 1")
    stream = iter(texts)
    for number, part in enumerate(iter(lambda: list(islice(stream, size)), [])):
        ids, held = [id_ for id_, _ in part], [text for _, text in part]
        for id_ in ids:
            if not id_ or any(mark in id_ for mark in "\t\n\r"):
                raise VectorsError(f"the id {id_!r} is empty or holds a tab or a line break: ids.txt has one id a line")
        yield _Shard(number, ids, held, hashlib.sha256(json.dumps([ids, held]).encode()).hexdigest())


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


def _already_done(out: Path, texts: Iterable[tuple[str, str]], settings: dict[str, Any], size: int) -> Path:
    _same_settings(out / "manifest.json", settings)
    source = hashlib.sha256()
    for shard in _cut(texts, size):
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
            stream.write(np.load(file, allow_pickle=False).data)
    described = {key: value for key, value in settings.items() if key != "shard_size"}
    hashes = {"sha256": sha256_of(out / "vectors.npy"), "source_sha256": seen.source.hexdigest()}
    write_json(out / "vectors.json", {**described, "count": seen.count, **hashes})
    shutil.rmtree(out / "shards")
    for leftover in out.glob("*.tmp"):  # of processes that were killed
        leftover.unlink()
    return out


def _write_array(file: Path, vectors: Vectors) -> None:
    with replacing(file) as stream:
        np.save(stream, vectors.astype(np.float16))


_worker_encoder: DocumentEncoder | None = None


def _encode_in_processes(
    todo: Iterable[_Shard], encoder: DocumentEncoder, folder: Path, workers: int, seen: _Seen
) -> None:
    context = multiprocessing.get_context("spawn")  # fork is not safe once torch or CUDA has threads
    numbers = context.Queue()
    for number in range(workers):
        numbers.put(number)
    running: dict[Future[int], int] = {}
    try:
        loading = (encoder.settings, encoder.space.id, numbers, workers)
        with ProcessPoolExecutor(workers, context, _start_worker, loading) as pool:
            for shard in todo:
                running[pool.submit(_encode_shard, shard, folder)] = shard.number
                while len(running) >= 2 * workers:  # the texts of a whole collection are not queued at once
                    _collect(running, seen)
            while running:
                _collect(running, seen)
    except BrokenProcessPool as error:
        raise VectorsError(
            "a worker process died (out of memory?): run it again with fewer workers; finished shards are kept"
        ) from error


def _collect(running: dict[Future[int], int], seen: _Seen) -> None:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        del running[future]
        seen.finished(future.result())


def _start_worker(settings: EncoderSettings, space: str, numbers: Any, workers: int) -> None:
    global _worker_encoder
    import torch

    number, device = numbers.get(), settings.device
    if device in (None, "cuda") and torch.cuda.device_count() > 1:
        device = f"cuda:{number % torch.cuda.device_count()}"
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    _worker_encoder = DocumentEncoder.load(
        settings.path,
        device=device,
        dtype=settings.dtype,
        trust_remote_code=settings.trust_remote_code,
        base=settings.base,
        check=False,  # the first process has held it against the probe
    ).of_space(space)


def _encode_shard(shard: _Shard, folder: Path) -> int:
    if _worker_encoder is None:
        raise VectorsError("a worker has no encoder: this function is for encode_to_folder's own processes")
    _write_array(shard.file(folder), _worker_encoder.encode(shard.texts))
    return len(shard.ids)
