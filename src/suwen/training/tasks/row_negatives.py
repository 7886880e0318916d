"""Hard negatives and nearest documents from teacher vectors in memory. What may be one is for ``curate.mine``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from suwen.curate.mine import Window
from suwen.training.loop.batches import Ints
from suwen.training.recipe.key_groups import Mine
from suwen.training.tasks.row_tables import PairTable

_AT_ONCE = 1024
#: Documents this alike in the teacher's eyes are one document worded twice.
_NEAR_DUPLICATE = 0.98


def mine_rows(
    table: PairTable,
    queries: npt.NDArray[np.floating],
    documents: npt.NDArray[np.floating],
    settings: Mine,
    *,
    device: str,
    seed: int = 0,
) -> PairTable:
    """Give every row negatives from the teacher's ranking of its source's documents; labelled ones stay.

    Left out: documents that are right for the query by any row, those that score above ``margin`` of the positive
    (likely right, only unlabelled), near copies of the positive, and what stands outside the window of ranks.

    Args:
        table: The rows.
        queries: The teacher's vectors of the table's queries.
        documents: The teacher's vectors of the table's documents.
        settings: Window, margin and count.
        device: Where to multiply.
        seed: Of the draw where more are left than wanted.
    """
    window = Window(settings.first_rank, settings.last_rank, settings.margin, settings.count, _NEAR_DUPLICATE)
    mined = replace(table, sources={})
    for number, (source, rows) in enumerate(table.sources.items()):
        pool = np.unique(np.array([id_ for row in rows for id_ in (*row[1], *row[2])], np.int64))
        matrix = torch.from_numpy(np.asarray(documents[pool])).to(device).float()
        rng = np.random.default_rng((seed, number, 5))
        kept = mined.sources.setdefault(source, [])
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            candidates = _candidates(part, queries, documents, pool, matrix, window)
            for row, ids in zip(part, candidates, strict=True):
                known = table.right[row[0]]
                fresh = ids[~np.isin(ids, known)]
                if len(fresh) > window.count:
                    fresh = fresh[np.sort(rng.choice(len(fresh), window.count, replace=False))]
                kept.append((row[0], row[1], list(dict.fromkeys([*row[2], *fresh.tolist()]))))
    return mined


def nearest_documents(
    queries: npt.NDArray[np.float16], documents: npt.NDArray[np.float16], count: int, *, device: str
) -> npt.NDArray[np.int32]:
    """The rows of each query's nearest documents by the teacher, nearest first; ``[queries, count]``.

    Args:
        queries: The teacher's vectors of texts in query form; may be memory-mapped.
        documents: Those of the documents, in document form.
        count: How many; all where there are fewer.
        device: Where to multiply.
    """
    matrix = torch.from_numpy(np.asarray(documents)).to(device)
    matrix = matrix.float() if matrix.device.type == "cpu" else matrix  # half precision is slow on a CPU
    count = min(count, len(documents))
    nearest = np.empty((len(queries), count), np.int32)
    for start in range(0, len(queries), _AT_ONCE):
        asked = torch.from_numpy(np.ascontiguousarray(queries[start : start + _AT_ONCE])).to(matrix)
        best = torch.topk(asked @ matrix.T, count, dim=1).indices
        nearest[start : start + len(asked)] = best.cpu().numpy()
    return nearest


def _candidates(
    rows: list[tuple[int, list[int], list[int]]],
    queries: npt.NDArray[np.float16],
    documents: npt.NDArray[np.float16],
    pool: Ints,
    matrix: torch.Tensor,
    window: Window,
) -> list[Ints]:
    """Per row, the pool's documents within the window that are neither too near the query nor the positive."""
    asked = torch.from_numpy(np.asarray(queries[np.array([row[0] for row in rows])])).to(matrix)
    right = torch.from_numpy(np.asarray(documents[np.array([row[1][0] for row in rows])])).to(matrix)
    best = torch.topk(asked @ matrix.T, min(window.last_rank, len(pool)), dim=1)
    near = torch.gather(right @ matrix.T, 1, best.indices).cpu().numpy()
    positive = (asked * right).sum(1, keepdim=True).cpu().numpy()
    usable = window.allows(best.values.cpu().numpy(), positive) & ~window.is_copy(near)
    return [pool[places[may]] for places, may in zip(best.indices.cpu().numpy(), usable, strict=True)]
