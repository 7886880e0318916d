"""Several rankings of the same passages into one: by what their scores mean, as hybrid search does, or by their ranks.

Pure functions over arrays; what is searched, and how deep, is the retriever's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from suwen.index.engine import Ranking, Rows, Vectors
from suwen.retrieve.results import Moved

#: What rankings are fused by.
Fusion = Literal["scores", "ranks"]
#: How deep each leg is read before its passages are fused.
DEPTH = 200
#: The constant of reciprocal rank fusion, as published.
CONSTANT = 60
#: Beside the dense leg, so many passages count by their words; all others are worth what the last of these is. From 30
#: to 70 it makes little difference, 200 is 0.2 to 0.3 points worse, and dearer (docs/results/search.md).
WORDS = 40
#: Weight of each leg of hybrid search where documents are by a transformer tier.
WEIGHTS: Mapping[str, float] = {"dense": 2.5, "lexical": 1.0}
#: And by who encoded them: the better their vectors, the more those count. Who encodes the query matters much less.
WEIGHTS_BY: Mapping[str, Mapping[str, float]] = {
    "document": {"dense": 4.5, "lexical": 1.0},
    "transformer": WEIGHTS,
    "static": {"dense": 1.5, "lexical": 1.0},
}
#: The power of the share that a BM25 score has of the most its query could score: half of a question's words say more
#: than half of what all of them do. Plain shares measured 0.3 points worse with `l6` (docs/results/search.md).
POWER = 0.6
#: A long query never has all of its words in one passage, and a word or two are soon had: what a share is worth grows
#: with the most that the query could score, to this power, and is itself where that is the typical height. It takes
#: the gain over the fusion of 0.1 from 0.27 to 0.42 on the mean of four tasks (docs/results/search.md).
GROWTH, TYPICAL = 0.25, 200.0
#: What is like the first hits is probably right too: of the first so many passages those move up that are nearer to the
#: first few than to all of them; each of the few counts the more the higher its score is, in steps of the last number.
#: Worth 0.2 points, whoever encoded the documents; 5 to 12 and 0.25 to 0.45 are alike (docs/results/search.md).
MOVED, FEW, NEARNESS, STEP = 40, 8, 0.3, 0.015
#: A passage stands out by its words where BM25 gives it so many times what it gives the fourth, and at least so much of
#: the most its query could score; or less often, where the two are that much of the most apart.
STANDS_OUT, LEAST_SHARE, LESS_OUT = 1.25, 0.1, 1.1
_FIRST = 3
#: How far passages that rise to the same place are kept apart.
_STEP_UP = 1e-6
# tantivy's sums of terms differ in the last bits from one segment to another: equal passages must stay equal.
_DIGITS = 5

Values = npt.NDArray[np.float64]
#: Gives the vectors of rows, in their order.
VectorsOf = Callable[[Rows], Vectors]
#: Takes why a row does not stand where its score put it.
Told = dict[int, tuple[Moved, ...]]


def fuse_hybrid(
    legs: Mapping[str, Ranking],
    k: int,
    weights: Mapping[str, float] = WEIGHTS,
    fusion: Fusion = "scores",
    unit: float = 1.0,
    vectors: VectorsOf | None = None,
    told: Told | None = None,
) -> Ranking:
    """The legs of hybrid search, ``dense`` and ``lexical``, as one; a leg without a weight takes no part."""
    used = {name: float(weights[name]) for name in legs if weights.get(name, 0.0) > 0}
    if fusion == "ranks":
        return reciprocal_rank_fusion([(legs[name].rows, weight) for name, weight in used.items()], k)
    return score_fusion({name: legs[name] for name in used}, used, k, unit, vectors, told)


def words_read(depth: int, weights: Mapping[str, float], fusion: Fusion) -> int:
    """How deep the lexical leg is read where the dense one is read so deep: no further than its words count."""
    both = fusion == "scores" and all(weights.get(leg) for leg in WEIGHTS)
    return WORDS if both and depth <= DEPTH else depth


def values(leg: str, ranking: Ranking, unit: float = 1.0) -> tuple[Values, float]:
    """What a leg's scores are worth in absolute terms, and the least that a passage is, found by the leg or not.

    A cosine is worth itself (``unit`` is 1); an inner product, which grows with the lengths of vectors, is counted in
    what off-topic questions find. A BM25 score is worth its share of the most that its query could score, to the
    power of :data:`POWER`: the best of a bad lot stays low, and the only passage with a rare word stands high. It is
    worth more where that most is higher, see :data:`GROWTH`.

    >>> values("lexical", Ranking(np.array([4, 2]), np.array([200.0, 6.25], np.float32), most=200.0))
    (array([1.   , 0.125]), 0.0)
    """
    scores = ranking.scores.astype(np.float64)
    if not len(scores):
        return scores, 0.0
    if leg == "lexical":
        most, growth = _most(ranking, float(scores[0]))
        found = (np.minimum(np.maximum(scores / most, 0.0), 1.0) ** POWER * growth).round(_DIGITS)
        # A list that ended by itself has every passage with a word of the query.
        return found, float(found[WORDS - 1]) if len(scores) >= WORDS else 0.0
    found = (scores / unit).round(_DIGITS)
    return found, float(found[-1])


def highest(leg: str, ranking: Ranking, unit: float = 1.0) -> float:
    """The best of a leg's :func:`values`, 0 at the least; of one number, which arrays take ten times as long for."""
    if not len(ranking.scores):
        return 0.0
    top = float(max(ranking.scores[:WORDS].tolist()))  # best first, but for the last digits
    if leg != "lexical":
        return max(round(top / unit, _DIGITS), 0.0)
    most, growth = _most(ranking, top)
    return float(round(min(max(top / most, 0.0), 1.0) ** POWER * growth, _DIGITS))


def _most(ranking: Ranking, top: float) -> tuple[float, float]:
    """The most that a query could score, by its best score where that is not known, and what a share of it grows by."""
    most = max(ranking.most or top, 1e-9)
    return most, (most / TYPICAL) ** GROWTH if ranking.most else 1.0


def score_fusion(
    legs: Mapping[str, Ranking],
    weights: Mapping[str, float],
    k: int,
    unit: float = 1.0,
    vectors: VectorsOf | None = None,
    told: Told | None = None,
) -> Ranking:
    """Fuse rankings by the weighted mean of their absolute :func:`values`.

    Args:
        legs: The rankings, of the same moment of the index.
        weights: How much each counts.
        k: How many to keep.
        unit: What the dense leg's scores are counted in.
        vectors: Of passages; with them the first are put in another order, see :func:`by_nearness`.
        told: Takes why rows do not stand where their scores put them.

    Returns:
        Rows by falling score; equal scores in ascending row order.

    >>> dense = Ranking(np.array([7, 3, 5]), np.array([0.9, 0.8, 0.4], np.float32))
    >>> lexical = Ranking(np.array([3, 9]), np.array([200.0, 50.0], np.float32), most=200.0)
    >>> fused = score_fusion({"dense": dense, "lexical": lexical}, {"dense": 1.0, "lexical": 1.0}, k=2)
    >>> fused.rows, fused.scores.round(3)
    (array([3, 7]), array([0.9 , 0.45], dtype=float32))
    """
    every = _rows([leg.rows for leg in legs.values()])
    scores = np.zeros(len(every))
    whole = sum(weights[name] for name in legs)
    for name, leg in legs.items():
        found, least = values(name, leg, unit)
        column = np.full(len(every), least)
        column[every.searchsorted(leg.rows)] = np.maximum(found, least) if len(legs) > 1 else found
        scores += weights[name] / whole * column
    if vectors is not None and len(legs) > 1 and len(every) > 1:
        first = (-scores).argsort(kind="stable")[:MOVED]
        best = scores[first]
        # The scores stay with the places: what they mean was measured without this.
        near = by_nearness(best, vectors(every[first]))
        scores[first[near]] = best
        _tell(told, every[first], near, "like_first", "less_like")
    return _best(every, _exact_first(every, _lifted(every, scores, legs, told), legs, told), k)


def _tell(told: Told | None, rows: Rows, order: Rows, higher: Moved, lower: Moved | None = None) -> None:
    """Note which of some rows, best first, stand higher in another order of them, or lower where that has a reason."""
    if told is None:
        return
    for place, before in enumerate(order.tolist()):
        if why := higher if place < before else lower if place > before else None:
            row = int(rows[before])
            told[row] = (*told.get(row, ()), why)


def by_nearness(scores: Values, vectors: Vectors) -> Rows:
    """The order of passages, best first, by their scores and by how much nearer they are to the first few than to all.

    >>> by_nearness(np.array([0.9, 0.8, 0.79]), np.array([[1, 0], [0, 1], [1, 0.1]], np.float32))
    array([0, 2, 1])
    """
    lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)), np.float32(1e-12))
    trust = np.exp((scores[:FEW] - scores[0]) / STEP)
    shares = np.full(len(scores), -1 / len(scores))
    shares[:FEW] += trust / trust.sum()
    middle = np.einsum("i,ij->j", (shares / lengths).astype(np.float32), vectors)
    near = np.einsum("ij,j->i", vectors, middle) / lengths
    order: Rows = (-(scores + NEARNESS * near).round(_DIGITS)).argsort(kind="stable")
    return order


def _lifted(rows: Rows, scores: Values, legs: Mapping[str, Ranking], told: Told | None) -> Values:
    """Scores in which a passage that stands out by its words, or holds a rare name, is among the first three.

    The only passage with a drug, a code or an order number may be about something else as a whole, and lie below all
    that the dense leg returns. With 200 such mentions in 10,000 documents this takes the share found in the first three
    from 0.85 to where docs/results/search.md has it; on the development tasks it changes next to nothing.
    """
    lexical = legs.get("lexical")
    if lexical is None or len(legs) < 2 or len(rows) <= _FIRST or not len(lexical.rows):
        return scores
    others = float(lexical.scores[_FIRST]) if len(lexical.rows) > _FIRST else 0.0
    least = LEAST_SHARE * (lexical.most or 0.0)
    lifted = [
        row
        for row, score in zip(lexical.rows[: _FIRST - 1].tolist(), lexical.scores[: _FIRST - 1].tolist(), strict=True)
        if score > least
        and (score > STANDS_OUT * others or (least and score > LESS_OUT * others and score - others > least))
    ]
    if not lifted and not lexical.rare:
        return scores
    third = np.partition(scores, -_FIRST)[-_FIRST]
    # Those that hold most of the rare names first, then those that have the best words.
    rising = [
        place for row in dict.fromkeys((*lexical.rare, *lifted)) if scores[place := rows.searchsorted(row)] < third
    ]
    for step, place in enumerate(reversed(rising), start=1):
        scores[place] = third + _STEP_UP * step
        if told is not None:
            told[int(rows[place])] = (*told.get(int(rows[place]), ()), "words")
    return scores


def _exact_first(rows: Rows, scores: Values, legs: Mapping[str, Ranking], told: Told | None) -> Values:
    """Scores in which what holds all of a query that is a rare name and no more comes first, as typed before otherwise.

    The scores stay with the places: what they mean was measured without this.
    """
    exact = legs["lexical"].exact if "lexical" in legs else {}
    if not exact or len(legs) < 2:
        return scores
    order = (-scores).argsort(kind="stable")
    held = np.array([exact.get(row, 0) for row in rows[order].tolist()])
    first = (-held).argsort(kind="stable")
    scores[order[first]] = scores[order]
    _tell(told, rows[order], first, "name")
    return scores


def reciprocal_rank_fusion(rankings: Sequence[tuple[Rows, float]], k: int, constant: int = CONSTANT) -> Ranking:
    """Fuse rankings by ``sum(weight / (constant + rank))``, ranks counted from 1 (Cormack et al., SIGIR 2009).

    Args:
        rankings: Rows best first, with the weight of that ranking.
        k: How many to keep.
        constant: How slowly the credit falls with the rank.

    Returns:
        Rows by falling score; equal scores in ascending row order.

    >>> fused = reciprocal_rank_fusion([(np.array([7, 3]), 1.0), (np.array([3, 9]), 1.0)], k=3)
    >>> fused.rows.tolist()
    [3, 7, 9]
    """
    every = _rows([rows for rows, _ in rankings])
    scores = np.zeros(len(every))
    for rows, weight in rankings:
        scores[np.searchsorted(every, rows)] += weight / (constant + 1 + np.arange(len(rows)))
    return _best(every, scores, k)


def _rows(parts: Sequence[Rows]) -> Rows:
    if not parts:
        return np.empty(0, np.int64)
    every = np.concatenate(parts).astype(np.int64, copy=False)
    every.sort()
    first = np.ones(len(every), dtype=bool)
    np.not_equal(every[1:], every[:-1], out=first[1:])  # a third of the time of np.unique
    return every[first]


def _best(rows: Rows, scores: Values, k: int) -> Ranking:
    order = (-scores).argsort(kind="stable")[:k]  # rows ascend
    return Ranking(rows[order], scores[order].astype(np.float32))
