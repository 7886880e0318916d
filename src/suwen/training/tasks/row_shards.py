"""Training rows as arrays: a shard of some thousand rows, and all shards of some sources joined by one numbering.

Every distinct text of a shard's queries, and of its documents, stands in it once, in one UTF-8 blob with offsets, with
the instruction that it is put with; rows are numbers. What is made of them is ``row_tables``' business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suwen.corpora.training_rows import TrainingRow
from suwen.training.loop.batches import Arrays, Ints, offsets_of

#: Rows of a shard: what a crash can cost, and what is held in memory as Python objects at a time.
SHARD_ROWS = 50_000
#: In the names of folders: another layout, or another number of rows in a shard, is another folder.
FORMAT = 1
_Known = dict[tuple[str, str | None], int]


def shard_of(rows: Sequence[TrainingRow], *, prompts: bool = True) -> Arrays:
    """Rows as arrays; every distinct text has an id: it is tokenised, encoded and masked once, by id.

    Args:
        rows: The rows.
        prompts: Whether they keep the instructions they name.
    """
    queries, documents = _Known(), _Known()
    asked, lists = [], dict[str, list[list[int]]](positives=[], negatives=[])
    for row in rows:
        instruction = row.prompt if prompts else ""
        both_sides = instruction if row.type.startswith("symmetric") else None
        asked.append(queries.setdefault((row.query, instruction), len(queries)))
        for name, texts in (("positives", row.pos), ("negatives", row.neg)):
            lists[name].append([documents.setdefault((text, both_sides), len(documents)) for text in texts])
    instructions = np.unique([own for _, own in (*queries, *documents) if own is not None])
    made: Arrays = {"asked": np.array(asked, np.int32), "instructions": instructions}
    for name, some in lists.items():
        made[name] = np.fromiter(chain.from_iterable(some), np.int32)
        made[f"{name}-lengths"] = np.array([len(ids) for ids in some], np.int32)
    codes = {own: code for code, own in enumerate(instructions.tolist())}
    for side, known in (("query", queries), ("document", documents)):
        encoded = [text.encode("utf-8", "surrogatepass") for text, _ in known]
        made[side] = np.frombuffer(b"".join(encoded), np.uint8)
        made[f"{side}-offsets"] = offsets_of([np.array([len(text) for text in encoded])])
        made[f"{side}-codes"] = np.array([codes.get(own, -1) for _, own in known], np.int32)
        made[f"{side}-words"] = np.array([hashlib.blake2b(text, digest_size=12).digest() for text in encoded], "S12")
    return made


def joined(shards: Sequence[Path]) -> Arrays:
    """The rows of several shards, their texts numbered in the order in which the rows name them first."""

    def column(name: str) -> list[npt.NDArray[Any]]:
        return [np.load(shard / f"{name}.npy", allow_pickle=False) for shard in shards]

    made: Arrays = {"instructions": np.unique(np.concatenate(column("instructions")))}
    recoded = [np.append(np.searchsorted(made["instructions"], own), -1) for own in column("instructions")]
    ids = {}
    for side in ("query", "document"):
        parts = column(f"{side}-codes")
        codes = np.concatenate([new[old] for new, old in zip(recoded, parts, strict=True)]).astype(np.int32)
        numbers, words, first = _numbered(np.concatenate(column(f"{side}-words")), codes)
        made[f"{side}-starts"], made[f"{side}-places"] = np.cumsum([0, *map(len, parts)]), first
        ids[side] = np.split(numbers, made[f"{side}-starts"][1:-1])
        made[f"{side}-codes"], made["words"] = codes[first], words[first]
    made["asked"] = np.concatenate([of[own] for of, own in zip(ids["query"], column("asked"), strict=True)])
    for name in ("positives", "negatives"):
        made[name] = np.concatenate([of[own] for of, own in zip(ids["document"], column(name), strict=True)])
        made[f"{name}-offsets"] = offsets_of(column(f"{name}-lengths"))
    # By their words: what is right as a query is put is right as a document is.
    kinds = len(made["words"]) + 1
    asked = np.repeat(made["asked"].astype(np.int64), np.diff(made["positives-offsets"]))
    right = np.unique(asked * kinds + made["words"][made["positives"]])
    made["right"] = (right % kinds).astype(np.int32)
    made["right-offsets"] = np.searchsorted(right, np.arange(len(made["query-places"]) + 1) * kinds)
    return made


def _numbered(words: npt.NDArray[Any], codes: npt.NDArray[np.int32]) -> tuple[Any, Any, Any]:
    """Number texts by their words with their instructions, in the order in which they come, and by their words alone.

    Also where each comes first. Written out, as ``np.unique`` takes twice the memory.
    """
    order = np.lexsort((codes, words))  # a stable sort: the first of those alike stays the first of them
    numbers, of_words = np.empty((2, len(order)), np.int32)
    fresh = np.append(True, (ordered := words[order])[1:] != ordered[:-1])
    of_words[order] = np.cumsum(fresh, dtype=np.int32)
    fresh[1:] |= np.diff(codes[order]) != 0
    first = order[fresh]
    ranks = np.argsort(np.argsort(first)).astype(np.int32)
    numbers[order] = np.repeat(ranks, np.diff(np.flatnonzero(np.append(fresh, True))))
    return numbers, of_words, np.sort(first)


@lru_cache(maxsize=8)  # texts are read from the first shard to the last
def _blob(shard: Path, side: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    blob, offsets = (np.load(shard / f"{name}.npy", "r", allow_pickle=False) for name in (side, f"{side}-offsets"))
    return np.asarray(blob), np.asarray(offsets)


def shard_text(shards: Sequence[Path], side: str, starts: Ints, place: int) -> str:
    """The text of a side that stands at a place, counted through the shards, each of which starts at its own."""
    shard = int(np.searchsorted(starts, place, "right")) - 1
    (blob, offsets), own = _blob(shards[shard], side), place - int(starts[shard])
    return bytes(blob[offsets[own] : offsets[own + 1]]).decode("utf-8", "surrogatepass")
