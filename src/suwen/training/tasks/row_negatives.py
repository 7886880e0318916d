"""Hard negatives and nearest documents from teacher vectors in memory. What may be one is for ``curate.mine``."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from suwen.curate.mine import Window
from suwen.training.loop.batches import Ints, Lazy, Ragged
from suwen.training.recipe.key_groups import Mine
from suwen.training.tasks.fused_queries import fused
from suwen.training.tasks.row_tables import PairTable, SourceRows

_AT_ONCE = 1024
#: Documents this alike in the teacher's eyes are one document worded twice.
_NEAR_DUPLICATE = 0.98


def mine_rows(
    table: PairTable,
    queries: npt.NDArray[np.floating] | Lazy,
    documents: npt.NDArray[np.floating] | Lazy,
    settings: Mine,
    *,
    device: str,
    seed: int = 0,
    by_dot: bool = False,
    weight: float | None = None,
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
        by_dot: Vectors keep their lengths.
        weight: Of a query among its hypothetical documents, with which it is asked; None asks with the query alone.
    """
    window = Window(settings.first_rank, settings.last_rank, settings.margin, settings.count, _NEAR_DUPLICATE)
    mined = replace(table, sources={})
    for number, (source, rows) in enumerate(table.sources.items()):
        every, wrong, ends = np.arange(len(rows.queries)), array("i"), array("q", [0])
        pool = np.unique(np.concatenate([rows.positives.take(every)[0], rows.negatives.take(every)[0]]))
        matrix = torch.from_numpy(np.asarray(documents[pool])).to(device).float()
        rng = np.random.default_rng((seed, number, 5))
        for row, ids in _candidates(rows, queries, documents, pool, matrix, window, by_dot, weight):
            fresh = ids[~np.isin(table.words[ids], table.right[rows.queries[row]])]
            if len(fresh) > window.count:
                fresh = fresh[np.sort(rng.choice(len(fresh), window.count, replace=False))]
            wrong.extend(dict.fromkeys([*rows.negatives[row].tolist(), *fresh.tolist()]))
            ends.append(len(wrong))
        mined.sources[source] = rows._replace(negatives=Ragged(np.array(wrong, np.int32), np.array(ends)))
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
    rows: SourceRows,
    queries: npt.NDArray[np.floating] | Lazy,
    documents: npt.NDArray[np.floating] | Lazy,
    pool: Ints,
    matrix: torch.Tensor,
    window: Window,
    by_dot: bool,
    weight: float | None,
) -> Iterator[tuple[int, Ints]]:
    """Each row with the pool's documents within the window that are neither too near the query nor the positive."""
    for start in range(0, len(rows.queries), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        asked = torch.from_numpy(np.asarray(queries[rows.queries[part]])).to(matrix)
        if weight is not None:
            ids, lengths = rows.hypothetical.take(np.arange(len(rows.queries))[part])
            beside = torch.from_numpy(np.asarray(documents[ids])).to(matrix)
            asked = fused(asked, beside, np.arange(len(asked)).repeat(lengths), weight)
        right = torch.from_numpy(np.asarray(documents[rows.positives.ids[rows.positives.offsets[:-1][part]]])).to(
            matrix
        )
        best = torch.topk(asked @ matrix.T, min(window.last_rank, len(pool)), dim=1)
        near = torch.gather(right @ matrix.T, 1, best.indices)
        if by_dot:  # a copy is one by its cosine
            near = near / (right.norm(dim=1, keepdim=True) * matrix.norm(dim=1)[best.indices])
        positive = (asked * right).sum(1, keepdim=True).cpu().numpy()
        usable = window.allows(best.values.cpu().numpy(), positive) & ~window.is_copy(near.cpu().numpy())
        for row, (places, may) in enumerate(zip(best.indices.cpu().numpy(), usable, strict=True), start):
            yield row, pool[places[may]]
