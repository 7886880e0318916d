"""What goes into step n: token ids kept flat, and orders that depend on the seed and the step alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.durable import replacing
from suwen.encoders.side import Side
from suwen.errors import SuwenError

Ints = npt.NDArray[np.int64]
#: Texts tokenised at a time: enough for all cores, little enough memory.
_SLICE = 20_000


class BatchError(SuwenError):
    """Data of which no batch can be made."""


@dataclass(frozen=True)
class FlatTokens:
    """The token ids of many texts, end to end. ``offsets`` has one entry more than there are texts."""

    ids: npt.NDArray[np.int32]
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, rows: Ints) -> Ints:
        """How many tokens each of these texts has."""
        lengths: Ints = self.offsets[rows + 1] - self.offsets[rows]
        return lengths

    def take(self, rows: Ints) -> tuple[npt.NDArray[np.int32], Ints]:
        """The ids of these texts, end to end, and their lengths."""
        lengths = self.lengths(rows)
        ends = np.cumsum(lengths)
        places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return self.ids[places + np.repeat(self.offsets[rows], lengths)], lengths


def tokenise(
    side: Side,
    texts: Sequence[str],
    *,
    prompt: str | None = None,
    max_length: int | None = None,
    cache: Path | None = None,
) -> FlatTokens:
    """Tokenise texts once, with the side's prompt before each (or another), cut to the length.

    Args:
        side: Whose tokenizer.
        texts: The texts.
        prompt: What stands before each text; the side's own where none is given.
        max_length: The most tokens; the side's own limit by default.
        cache: A folder that keeps the ids: students of one vocabulary, and every run of a sweep, share them.

    Raises:
        BatchError: The prompt leaves no room for the texts.
    """
    before = side.prompt if prompt is None else prompt
    limit = min(max_length or side.max_length, side.max_length)
    file = None if cache is None else cache / f"tokens-{_key(side, texts, before, limit)}.npz"
    if file is not None and file.is_file():
        with np.load(file, allow_pickle=False) as stored:
            return FlatTokens(stored["ids"], stored["offsets"])
    parts = [np.zeros(0, np.int32)]
    lengths = np.zeros(len(texts) + 1, np.int64)
    for start in range(0, len(texts), _SLICE):
        rows = side.ids([before + text for text in texts[start : start + _SLICE]], max_length=limit)
        lengths[start + 1 : start + 1 + len(rows)] = [len(row) for row in rows]
        parts.append(np.fromiter(chain.from_iterable(rows), np.int32))
    tokens = FlatTokens(np.concatenate(parts), np.cumsum(lengths))
    if len(set(texts)) > 1 and (lengths[1:] == limit).all() and not np.ptp(tokens.ids.reshape(-1, limit), axis=0).any():
        raise BatchError(
            f"what stands before each text fills all of the {limit} tokens that are read, so that all are alike: "
            "shorten the prompt, or raise the length"
        )
    if file is not None:
        with replacing(file) as stream:
            np.savez(stream, ids=tokens.ids, offsets=tokens.offsets)
    return tokens


def _key(side: Side, texts: Sequence[str], prompt: str, limit: int) -> str:
    digest = hashlib.sha256(f"{side.backend.to_str()}\0{prompt}\0{limit}\0{side.is_static}\0".encode())
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:20]


def chunks(lengths: Ints, token_budget: int | None, most: int | None = None) -> list[slice]:
    """Cut a batch into consecutive pieces within a budget of tokens, or of rows; a longer text stands alone.

    They are filled from the end: the last piece, which gradient caching encodes but once, is a full one.
    """
    pieces: list[slice] = []
    end, used = len(lengths), 0
    for position in range(len(lengths) - 1, -1, -1):
        length = int(lengths[position])
        full = token_budget is not None and used + length > token_budget
        if position + 1 < end and (full or (most is not None and end - position > most)):
            pieces.append(slice(position + 1, end))
            end, used = position + 1, 0
        used += length
    if len(lengths):
        pieces.append(slice(0, end))
    return pieces[::-1]


class Shuffled:
    """Positions 0 to n-1 in a new order every epoch, cut into batches; step n is the same in every run.

    Args:
        count: How many positions.
        batch: How many per step; the rest of an epoch that fills no batch is left out.
        seed: Of the orders.
    """

    def __init__(self, count: int, batch: int, seed: int) -> None:
        if count < 2:
            raise BatchError(
                f"{count} texts are left to train on: give more (check limits, kinds and the held-out set)"
            )
        self.batch, self.seed, self._count = min(batch, count), seed, count
        self.per_epoch = count // self.batch
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    def rows(self, step: int) -> Ints:
        """The positions of step ``step``."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng((self.seed, epoch)).permutation(self._count)
        positions: Ints = self._order[place * self.batch : (place + 1) * self.batch]
        return positions


class RowBatch(NamedTuple):
    """Rows of one source."""

    source: str
    positions: Ints


class OneSourceBatches:
    """Batches of training rows, each of one source: negatives of another source would be too easy.

    Args:
        sizes: Rows per source.
        batch: Rows per step; a source with fewer gives one smaller batch an epoch.
        seed: Of the orders.
        limit: The most rows of a source in one epoch; other rows come in other epochs.
        weights: Factors on that limit (or on the size), by source.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch: int,
        seed: int,
        *,
        limit: int | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._sizes = {name: size for name, size in sorted(sizes.items()) if size >= 2}
        self._batch, self._seed, self._limit, self._weights = batch, seed, limit, dict(weights or {})
        if unknown := sorted(set(self._weights) - set(sizes)):
            raise BatchError(f"weights name {', '.join(unknown)}, but the sources are {', '.join(sorted(sizes))}")
        if not self._sizes:
            raise BatchError("no source has two rows to train on: check rows.sources and the data folder")
        self._epoch, self._plan = -1, self._make(0)
        self.per_epoch = len(self._plan)

    def rows(self, step: int) -> RowBatch:
        """The source and the rows of step ``step``."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._plan = epoch, self._make(epoch)
        return self._plan[place]

    def _share(self, name: str) -> int:
        size = self._sizes[name]
        return int(min(size, self._limit or size) * self._weights.get(name, 1.0))

    def _make(self, epoch: int) -> list[RowBatch]:
        plan = [batch for number, name in enumerate(self._sizes) for batch in self._of(number, name, epoch)]
        order = np.random.default_rng((self._seed, epoch, 1)).permutation(len(plan))
        return [plan[position] for position in order]

    def _of(self, number: int, name: str, epoch: int) -> Iterator[RowBatch]:
        """A source's batches in one epoch: it walks on through its own shuffles, so that a limit loses no row."""
        share, size = self._share(name), self._sizes[name]
        start = epoch * share
        first, last = start // size, (start + share) // size
        walks = [
            np.random.default_rng((self._seed, number, walk, 2)).permutation(size) for walk in range(first, last + 1)
        ]
        rows = np.concatenate(walks)[start - first * size :][:share]
        step = min(self._batch, share)
        for place in range(0, share - step + 1, max(step, 1)):
            if len(part := np.unique(rows[place : place + step])) >= 2:
                yield RowBatch(name, part)
