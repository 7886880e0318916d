"""Vectors on disk, by what they are vectors of: a second tier or prompt costs only its queries, a crash one shard.

A shard is named after the hash of its texts, its folder after the hash of the contract that encoded them, so it can
never be taken for another. Searching in the vectors is for ``exact_search``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suwen.bench.task_data import text_hash
from suwen.durable import replacing, write_text
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

Encode = Callable[[Sequence[str]], Vectors]
#: Called with how much is done: ``progress(done, total)``.
Progress = Callable[[int, int], None]
#: Texts per shard: what a crash can cost. 2,048 vectors of 1,024 dimensions are 8 MB.
SHARD_SIZE = 2048


class VectorError(SuwenError):
    """An encoder gave something that cannot be compared."""


def contract_hash(contract: Mapping[str, Any]) -> str:
    """The hash of a contract: of its canonical JSON."""
    canonical = json.dumps(contract, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class VectorCache:
    """A folder of vectors, cut into shards. Several runs may share it.

    Args:
        folder: Where to keep them; None keeps nothing.
        shard_size: Texts per shard. Another size finds none of the shards of this one.
    """

    def __init__(self, folder: Path | str | None, *, shard_size: int = SHARD_SIZE) -> None:
        if shard_size < 1:
            raise VectorError(f"a shard of {shard_size} texts holds nothing: give at least 1")
        self.folder = None if folder is None else Path(folder)
        self.shard_size = shard_size

    def shards(
        self, contract: Mapping[str, Any], texts: Sequence[str], encode: Encode, progress: Progress | None = None
    ) -> Iterator[Vectors]:
        """The vectors of texts, a shard at a time, in the order of the texts; only missing shards are encoded.

        Args:
            contract: Everything that fixes the vectors beside the texts.
            texts: The texts.
            encode: Encodes texts under that contract.
            progress: Called with the texts done and the texts in all, after each shard.

        Raises:
            VectorError: The encoder gave the wrong number of vectors, or one that is not finite.
        """
        folder = None if self.folder is None else self.folder / contract_hash(contract)
        if folder is not None and not (folder / "contract.json").is_file():
            described = json.dumps(contract, ensure_ascii=False, indent=2, sort_keys=True)
            write_text(folder / "contract.json", described)
        width: int | None = None
        for start in range(0, len(texts), self.shard_size):
            piece = texts[start : start + self.shard_size]
            vectors = self._shard(folder, piece, encode)
            if width is not None and vectors.shape[1] != width:
                raise VectorError(f"vectors of {width} and of {vectors.shape[1]} dimensions came from one encoder")
            width = vectors.shape[1]
            yield vectors
            if progress is not None:
                progress(start + len(piece), len(texts))

    def all(
        self, contract: Mapping[str, Any], texts: Sequence[str], encode: Encode, progress: Progress | None = None
    ) -> Vectors:
        """The vectors of texts in one array: for queries, of which there are few."""
        return np.concatenate([np.asarray(shard) for shard in self.shards(contract, texts, encode, progress)])

    def _shard(self, folder: Path | None, texts: Sequence[str], encode: Encode) -> Vectors:
        if folder is None:
            return _checked(encode(texts), len(texts))
        file = folder / f"{text_hash(texts)[:32]}.npy"
        if (stored := _read(file, len(texts))) is not None:
            return stored
        vectors = _checked(encode(texts), len(texts))
        with replacing(file) as stream:
            np.save(stream, vectors)
        return vectors


def _read(file: Path, count: int) -> Vectors | None:
    """A stored shard, mapped; None where there is none or it is damaged, so that it is made again."""
    try:
        stored: Vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    whole = stored.ndim == 2 and len(stored) == count and stored.dtype == np.float32
    return stored if whole else None


def _checked(vectors: Vectors, count: int) -> Vectors:
    array = np.ascontiguousarray(vectors, dtype=np.float32)
    if array.ndim != 2 or len(array) != count:
        raise VectorError(f"{count} texts gave an array of shape {array.shape}; an encoder gives one vector per text")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise VectorError(f"the vector of text {row} is not finite; run the model in fp32 or bf16")
    return array
