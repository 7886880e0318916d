"""What goes into step n: numbers and texts that stay on disk, and orders that depend on the seed and the step alone."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.durable import FileLock, new_folder
from suwen.encoders.side import Side
from suwen.errors import SuwenError

Ints = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]
#: Texts tokenised at a time: enough for all cores, little enough memory.
_SLICE = 20_000
#: Arrays of fewer bytes together are kept in one file, this one: numpy's records end at 2 GB.
_SMALL, _RECORD = 2**24, "record"


class BatchError(SuwenError):
    """Data of which no batch can be made."""


@dataclass(frozen=True)
class Ragged:
    """Many lists of numbers, end to end: token ids of texts, documents of rows. ``offsets`` has one entry more.

    ``most`` is where lists were cut; None where none was.
    """

    ids: npt.NDArray[Any]
    offsets: Ints
    most: int | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def lengths(self, rows: Ints) -> Ints:
        """How many numbers each of these lists has."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def full(self, rows: Ints) -> int:
        """How many of these lists are as long as lists may be: cut there, or just so long."""
        return 0 if self.most is None else int((self.lengths(rows) >= self.most).sum())

    def take(self, rows: Ints) -> tuple[npt.NDArray[Any], Ints]:
        """The numbers of these lists, end to end, and their lengths."""
        lengths = self.lengths(rows)
        return self.ids[spans(self.offsets[rows], lengths)], lengths

    def of(self, rows: Ints) -> Ragged:
        """These lists alone."""
        ids, lengths = self.take(rows)
        return Ragged(ids, np.append(0, np.cumsum(lengths)))


def spans(starts: Ints, lengths: Ints) -> Ints:
    """The numbers of several ranges, one after the other.

    >>> spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


def kept(folder: Path, make: Callable[[Path], Arrays]) -> Arrays:
    """Arrays that are made once, by one process, and are then memory-mapped; the folder is there whole or not at all.

    Args:
        folder: Where they are kept.
        make: Makes them, and is given the unfinished folder: what is too large for memory it writes there itself, as
            ``.npy`` files.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.parent / ".lock")
    lock.acquire(float("inf"))
    try:
        if not folder.is_dir():
            with new_folder(folder) as unfinished:
                arrays = make(unfinished)
                if sum(array.nbytes for array in arrays.values()) < _SMALL:
                    # One record, as each file more would be waited for on the disk.
                    layout = [(name, array.dtype, array.shape) for name, array in arrays.items()]
                    arrays = {_RECORD: np.array(tuple(arrays.values()), np.dtype(layout, align=True))}
                for name, array in arrays.items():
                    np.save(unfinished / f"{name}.npy", array)
    finally:
        lock.release()
    return opened(folder)


def opened(folder: Path) -> Arrays:
    """What :func:`kept` made, memory-mapped."""
    # As plain arrays: a slice of an np.memmap costs ten times as much.
    arrays = {file.stem: np.asarray(np.load(file, mmap_mode="r", allow_pickle=False)) for file in folder.glob("*.npy")}
    record = arrays.pop(_RECORD, np.zeros(()))
    return arrays | {name: record[name] for name in record.dtype.names or ()}


class Lazy(Sequence[Any]):
    """A sequence whose items are made when they are asked for: one, a list for a slice, an array for an array.

    Args:
        count: How many items.
        item: Makes one, by its place; or, where it is asked so, an array by an array of places.
        identity: What says in every run that the items are the same; empty where they must be looked at for that.
    """

    def __init__(self, count: int, item: Callable[[Any], Any], identity: str = "") -> None:
        self._places, self._item, self.identity = range(count), item, identity

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        chosen = place if isinstance(place, np.ndarray) else self._places[place]
        return [*map(self._item, chosen)] if isinstance(chosen, range) else self._item(chosen)


def tokenise(
    side: Side,
    texts: Sequence[str],
    *,
    prompt: str | None = None,
    max_length: int | None = None,
    cache: Path | None = None,
) -> Ragged:
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

    def part(start: int) -> Arrays:
        rows = side.ids([before + text for text in texts[start : start + _SLICE]], max_length=limit)
        lengths = np.array([len(row) for row in rows], np.int64)
        return {"ids": np.fromiter(chain.from_iterable(rows), np.int32), "lengths": lengths}

    starts = range(0, len(texts), _SLICE)
    if cache is not None:
        tokens = _stored(cache / f"tokens-{_key(side, texts, before, limit)}", part, starts)
    else:
        parts: list[Arrays] = [{"ids": np.zeros(0, np.int32), "lengths": np.zeros(1, np.int64)}, *map(part, starts)]
        ids, lengths = (np.concatenate([one[name] for one in parts]) for name in ("ids", "lengths"))
        tokens = Ragged(ids, np.cumsum(lengths))
    full = len(texts) > 1 and (np.diff(tokens.offsets) == limit).all()
    if full and not np.ptp(tokens.ids.reshape(-1, limit), axis=0).any() and any(text != texts[0] for text in texts):
        raise BatchError(
            f"what stands before each text fills all of the {limit} tokens that are read, so that all are alike: "
            "shorten the prompt, or raise the length"
        )
    return replace(tokens, most=limit)


def _stored(folder: Path, part: Callable[[int], Arrays], starts: Sequence[int]) -> Ragged:
    """Tokens on disk, made once; where that was cut short, the parts that are there are not made again."""
    parts = folder.with_name(f"{folder.name}-parts")

    def join(unfinished: Path) -> Arrays:
        # A single part is as soon made again.
        made = [
            kept(parts / str(start), lambda _, start=start: part(start)) if len(starts) > 1 else part(start)  # type: ignore[misc]
            for start in starts
        ]
        offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(one["lengths"] for one in made)]))
        ids = np.lib.format.open_memmap(unfinished / "ids.npy", "w+", np.int32, (int(offsets[-1]),))
        for start, one in zip(starts, made, strict=True):
            ids[offsets[start] : offsets[start : start + _SLICE + 1][-1]] = one["ids"]
        return {"offsets": offsets}

    made = kept(folder, join)
    shutil.rmtree(parts, ignore_errors=True)
    return Ragged(made["ids"], made["offsets"])


def _key(side: Side, texts: Sequence[str], prompt: str, limit: int) -> str:
    digest = hashlib.sha256(f"{side.backend.to_str()}\0{prompt}\0{limit}\0{side.is_static}\0".encode())
    for text in [known] if (known := getattr(texts, "identity", "")) else texts:
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
        return np.asarray(self._order[place * self.batch : (place + 1) * self.batch])


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

    def _make(self, epoch: int) -> list[RowBatch]:
        plan = [batch for number, name in enumerate(self._sizes) for batch in self._of(number, name, epoch)]
        order = np.random.default_rng((self._seed, epoch, 1)).permutation(len(plan))
        return [plan[position] for position in order]

    def _of(self, number: int, name: str, epoch: int) -> Iterator[RowBatch]:
        """A source's batches in one epoch: it walks on through its own shuffles, so that a limit loses no row."""
        size = self._sizes[name]
        share = int(min(size, self._limit or size) * self._weights.get(name, 1.0))
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
