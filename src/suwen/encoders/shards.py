"""Shards of texts: how a stream is cut into them, and the file of vectors that each becomes. No folder's end here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from suwen.durable import replacing
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError


class VectorsError(SuwenError):
    """A folder of vectors that belongs to other texts, another space or other settings, or cannot be filled."""


class Shard(NamedTuple):
    """Texts that are encoded in one go."""

    number: int
    ids: list[str]
    texts: list[str]
    source: str

    def file(self, folder: Path) -> Path:
        """Its vectors. The hash of the texts is part of the name: a finished shard says what it is the shard of."""
        return folder / f"{self.number:06d}-{self.source[:16]}.npy"


def cut(texts: Iterable[tuple[str, str]], size: int) -> Iterator[Shard]:
    """Cut ``(id, text)`` pairs into shards, as they come."""
    if size < 1:
        raise VectorsError(f"shard_size {size} is not a number of texts: give at least 1")
    stream = iter(texts)
    for number, part in enumerate(iter(lambda: list(islice(stream, size)), [])):
        ids, held = [id_ for id_, _ in part], [text for _, text in part]
        for id_ in ids:
            if not id_ or any(mark in id_ for mark in "\t\n\r"):
                raise VectorsError(f"the id {id_!r} is empty or holds a tab or a line break: ids.txt has one id a line")
        yield Shard(number, ids, held, hashlib.sha256(json.dumps([ids, held]).encode()).hexdigest())


def write_shard(file: Path, vectors: Vectors) -> None:
    """Write the vectors of a shard, whole or not at all."""
    with replacing(file) as stream:
        np.save(stream, vectors.astype(np.float16))
