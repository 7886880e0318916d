"""Metrics of a run against qrels, of paired scores and of paired vectors; pure functions over arrays, no files.

A metric of a ranking depends only on the ranks of the judged passages, so :func:`judge` never sorts whole lists of ids:
it finds the rank of each judged passage (a handful among a thousand hits) and every metric is arithmetic on those.

What is decided here, once, for every metric:

- **Ties** are broken as trec_eval does: score descending, then passage id descending, compared as strings (code points,
  which is the order of UTF-8 bytes, `strcmp`'s). Scores are compared as float64, as trec_eval 10 and ranx do
  (trec_eval 9 and pytrec_eval round them to float32 first, and so have more ties).
- **Which queries**: each query with a judgement of any grade, in the order of the qrels (trec_eval -c, ranx's
  `make_comparable`). One without hits scores 0; hits of a query without judgements are left out; a query none of whose
  judgements is relevant scores 0 and counts in the mean (trec_eval and ranx agree on that).
- **Grades** are whole numbers. A passage is relevant from grade `relevant_from` (1, trec_eval's -l); nDCG uses the
  grade itself. An unjudged hit is not relevant, and a negative grade means "pooled but not judged".
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.errors import SuwenError

Floats = npt.NDArray[np.float64]
AnyFloats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]
Similarity = Literal["cosine", "dot"]
Qrels = Mapping[str, Mapping[str, int]]
#: The hits of one query: scores by passage id, or ids beside their scores, in any order.
Hits = Mapping[str, float] | tuple[Sequence[str], Sequence[float] | AnyFloats]
Run = Mapping[str, Hits]

# Exponential gain is 2^grade, and float64 ends at 2^1023.
LARGEST_GRADE = 1000


class MetricError(SuwenError):
    """Scores, judgements or a metric's name that cannot be evaluated."""


class Judged(NamedTuple):
    """A run seen through its qrels: sparse arrays, one entry per judged passage. Made by :func:`judge`.

    `owner`, `rank` and `grade` describe the judged passages among the hits, by query and then by rank;
    `ideal_owner`, `ideal_rank` and `ideal_grade` the passages of positive grade in their best possible order.
    """

    queries: tuple[str, ...]
    hits: Ints  # per query: how many passages the run holds
    relevant: Ints  # per query: how many passages the qrels call relevant, found or not
    owner: Ints  # the query's position in `queries`
    rank: Ints  # from 1
    grade: Ints
    ideal_owner: Ints
    ideal_rank: Ints
    ideal_grade: Ints
    relevant_from: int


def judge(run: Run, qrels: Qrels, *, relevant_from: int = 1) -> Judged:
    """Find the rank of every judged passage of a run.

    Args:
        run: The hits of each query.
        qrels: The grades of each query's passages; ids that no corpus holds are simply never found.
        relevant_from: The least grade that counts as relevant (nDCG ignores it).

    Raises:
        MetricError: For a NaN score, a passage twice in one query's hits, a fractional grade, no judgement at all, or a
            run none of whose queries is judged.
    """
    if relevant_from < 1:
        raise MetricError(f"relevant_from is {relevant_from}; grade 0 means not relevant, so give at least 1.")
    queries = tuple(query for query, judgements in qrels.items() if judgements)
    _check_overlap(run, queries)
    counts = np.fromiter((len(qrels[query]) for query in queries), np.int64, len(queries))
    grades = _checked_grades(qrels, queries, int(counts.sum()))
    owners = np.repeat(np.arange(len(queries)), counts)
    hits = np.zeros(len(queries), np.int64)
    rank_lists: list[Ints] = []
    for row, query in enumerate(queries):
        scores = _as_mapping(query, run.get(query, {}))
        hits[row] = len(scores)
        rank_lists.append(_ranks(query, scores, qrels[query]))
    ranks = np.concatenate(rank_lists)
    ideal = np.flatnonzero(grades > 0)
    ideal = ideal[np.lexsort((-grades[ideal], owners[ideal]))]
    seen = np.flatnonzero((ranks > 0) & (grades >= 0))
    seen = seen[np.lexsort((ranks[seen], owners[seen]))]
    return Judged(
        queries=queries,
        hits=hits,
        relevant=np.bincount(owners[grades >= relevant_from], minlength=len(queries)),
        owner=owners[seen],
        rank=ranks[seen],
        grade=grades[seen],
        ideal_owner=owners[ideal],
        ideal_rank=_ordinals(owners[ideal]),
        ideal_grade=grades[ideal],
        relevant_from=relevant_from,
    )


def _check_overlap(run: Run, queries: Sequence[str]) -> None:
    if not queries:
        raise MetricError("The qrels hold no judgement, so nothing can be scored; check the split that was loaded.")
    if run and not any(query in run for query in queries):
        names = f"the run has {next(iter(run))!r}, the qrels have {queries[0]!r}"
        raise MetricError(f"No query of the run is judged: {names}. Check that both are of one collection and split.")


def _checked_grades(qrels: Qrels, queries: Sequence[str], total: int) -> Ints:
    try:
        raw = np.fromiter(chain.from_iterable(qrels[query].values() for query in queries), np.float64, total)
        if np.array_equal(raw, np.rint(raw)) and np.all(np.abs(raw) <= LARGEST_GRADE):
            return raw.astype(np.int64)
    except (TypeError, ValueError):
        pass
    for query in queries:
        for passage, grade in qrels[query].items():
            if not isinstance(grade, int | np.integer) and not (isinstance(grade, float) and grade.is_integer()):
                where = f"Query {query!r} grades passage {passage!r} as {grade!r}"
                raise MetricError(f"{where}; grades are whole numbers. Scale or round fractional ones before scoring.")
    raise MetricError(f"A grade of the qrels is beyond {LARGEST_GRADE}; give small whole numbers such as 0, 1 and 2.")


def _as_floats(query: str, scores: Collection[float] | AnyFloats) -> Floats:
    try:
        return np.fromiter(scores, np.float64, len(scores))
    except (TypeError, ValueError) as error:
        raise MetricError(f"Query {query!r} has a score that is no number ({error}); give floats.") from error


def _as_mapping(query: str, hits: Hits) -> Mapping[str, float]:
    if isinstance(hits, Mapping):
        return hits
    ids, scores = hits
    if len(ids) != len(scores):
        raise MetricError(f"Query {query!r} has {len(ids)} passage ids but {len(scores)} scores; give as many.")
    mapping = dict(zip(ids, _as_floats(query, scores).tolist(), strict=True))
    if len(mapping) != len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise MetricError(f"Query {query!r} has passage {twice!r} twice among its hits; keep each passage once.")
    return mapping


def _ranks(query: str, hits: Mapping[str, float], judgements: Mapping[str, int]) -> Ints:
    """The rank of each judged passage, in the order of the judgements; 0 where it is no hit."""
    ranks = np.zeros(len(judgements), np.int64)
    if not hits:
        return ranks
    scores = _as_floats(query, hits.values())
    # Sorting the scores alone is several times cheaper than an argsort, and the ids are needed only where scores tie.
    ordered = np.sort(scores)
    if math.isnan(ordered[-1]):
        passage = list(hits)[int(np.isnan(scores).argmax())]
        raise MetricError(
            f"Query {query!r} scores passage {passage!r} as {hits[passage]!r} (NaN); check what scored it."
        )
    where = [at for at, passage in enumerate(judgements) if passage in hits]
    passages = [passage for passage in judgements if passage in hits]
    wanted = np.array([hits[passage] for passage in passages], np.float64)
    upper = ordered.searchsorted(wanted, "right")
    ranks[where] = len(hits) - upper + 1
    tied = np.flatnonzero(upper - ordered.searchsorted(wanted, "left") > 1).tolist()
    if tied:
        above = _above_in_tie(list(hits), scores, [(passages[at], wanted[at].item()) for at in tied])
        ranks[[where[at] for at in tied]] += above
    return ranks


def _above_in_tie(ids: list[str], scores: AnyFloats, tied: list[tuple[str, float]]) -> list[int]:
    """For each tied passage, how many ids of its score come after it in string order, and so stand above it."""
    ties = {score for _, score in tied}
    groups = {tie: sorted(ids[at] for at in np.flatnonzero(scores == tie).tolist()) for tie in ties}
    return [len(groups[score]) - bisect_right(groups[score], passage) for passage, score in tied]


def _ordinals(owners: Ints) -> Ints:
    """1, 2, 3, … within each run of equal owners."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    lengths = np.diff(starts, append=len(owners))
    return np.arange(1, len(owners) + 1) - np.repeat(starts, lengths)


def _checked(k: int | None) -> float:
    if k is None:
        return math.inf
    if k < 1:
        raise MetricError(f"The cutoff k is {k}; give 1 or more, or leave it out to score every hit.")
    return k


def _sum(judged: Judged, owners: Ints, values: Floats | None = None) -> Floats:
    return np.bincount(owners, values, minlength=len(judged.queries)).astype(np.float64, copy=False)


def _share(part: Floats, whole: Floats | Ints) -> Floats:
    return np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)


def _relevant_ranks(judged: Judged, k: int | None) -> tuple[Ints, Ints]:
    """Owner and rank of the relevant hits within the cutoff."""
    keep = (judged.grade >= judged.relevant_from) & (judged.rank <= _checked(k))
    return judged.owner[keep], judged.rank[keep]


def ndcg(judged: Judged, k: int | None = None, gain: Literal["linear", "exponential"] = "linear") -> Floats:
    """Discounted cumulative gain over the best possible one; the gain is the grade, or 2^grade - 1."""
    limit = _checked(k)
    shown, best = judged.rank <= limit, judged.ideal_rank <= limit

    def discounted(owner: Ints, rank: Ints, grade: Ints) -> Floats:
        gains = np.maximum(grade, 0).astype(np.float64)
        return _sum(judged, owner, (gains if gain == "linear" else np.exp2(gains) - 1) / np.log2(rank + 1))

    dcg = discounted(judged.owner[shown], judged.rank[shown], judged.grade[shown])
    return _share(dcg, discounted(judged.ideal_owner[best], judged.ideal_rank[best], judged.ideal_grade[best]))


def _summed_precision(judged: Judged, k: int | None) -> Floats:
    owner, rank = _relevant_ranks(judged, k)
    return _sum(judged, owner, _ordinals(owner) / rank)


def average_precision(judged: Judged, k: int | None = None) -> Floats:
    """Precision summed over the ranks of relevant hits, over the number of relevant passages (trec_eval's map_cut)."""
    return _share(_summed_precision(judged, k), judged.relevant)


def average_precision_min(judged: Judged, k: int | None = None) -> Floats:
    """Like :func:`average_precision`, but over min(k, relevant passages), so that a full top k scores 1."""
    return _share(_summed_precision(judged, k), np.minimum(judged.relevant, _checked(k)))


def reciprocal_rank(judged: Judged, k: int | None = None) -> Floats:
    """One over the rank of the first relevant hit; 0 if the top k holds none."""
    owner, rank = _relevant_ranks(judged, k)
    first = _ordinals(owner) == 1
    return _sum(judged, owner[first], 1 / rank[first])


def recall(judged: Judged, k: int | None = None) -> Floats:
    """Relevant hits in the top k over the number of relevant passages."""
    return _share(_sum(judged, _relevant_ranks(judged, k)[0]), judged.relevant)


def precision(judged: Judged, k: int | None = None) -> Floats:
    """Relevant hits in the top k over k, even where there are fewer hits (over the hits, without k)."""
    whole = judged.hits if k is None else np.full(len(judged.queries), k)
    return _share(_sum(judged, _relevant_ranks(judged, k)[0]), whole)


def accuracy(judged: Judged, k: int | None = None) -> Floats:
    """1 if the top k holds a relevant hit, else 0 (hit rate, trec_eval's success)."""
    return (_sum(judged, _relevant_ranks(judged, k)[0]) > 0).astype(np.float64)


def hole(judged: Judged, k: int | None = None) -> Floats:
    """Hits without a judgement for this query, over the hits in the top k; 0 where there are no hits."""
    shown = np.minimum(judged.hits, _checked(k))
    return _share(shown - _sum(judged, judged.owner[judged.rank <= _checked(k)]), shown)


#: The metrics of a ranking, by the name that stands before "@k".
RANKING: dict[str, Callable[[Judged, int | None], Floats]] = {
    "ndcg": ndcg,
    "ndcg_exp": partial(ndcg, gain="exponential"),
    "map": average_precision,
    "map_min": average_precision_min,
    "mrr": reciprocal_rank,
    "recall": recall,
    "precision": precision,
    "accuracy": accuracy,
    "hole": hole,
}

#: What each metric is, in a sentence that a report can print under its table.
DEFINITIONS: dict[str, str] = {
    "ndcg": "nDCG with linear gain (the grade) and discount log2(rank + 1), as trec_eval's ndcg_cut.",
    "ndcg_exp": "nDCG with exponential gain (2^grade - 1) and discount log2(rank + 1), after Burges et al.",
    "map": "Average precision of the top k divided by the number of relevant passages, as trec_eval's map_cut.",
    "map_min": "Average precision of the top k divided by min(k, number of relevant passages).",
    "mrr": "Reciprocal rank of the first relevant hit in the top k, 0 if there is none.",
    "recall": "Share of the relevant passages that are in the top k.",
    "precision": "Relevant hits in the top k divided by k, even where fewer passages were found.",
    "accuracy": "Share of queries with at least one relevant hit in the top k (hit rate).",
    "hole": "Share of the hits in the top k that are not judged for their query.",
    "pearson": "Pearson correlation of the similarities with the gold scores.",
    "spearman": "Spearman correlation of the similarities with the gold scores, ties sharing their average rank.",
    "positive_similarity": "Mean similarity of each query with its positive passage.",
    "positive_similarity_deviation": "Standard deviation of that similarity over the queries.",
}


def parse(name: str) -> tuple[str, int | None]:
    """Split a metric's name: `"ndcg@10"` is `("ndcg", 10)`, `"map"` is `("map", None)`, an unknown one an error."""
    base, at, cutoff = name.partition("@")
    if base not in DEFINITIONS:
        raise MetricError(f"Unknown metric {name!r}; known are {', '.join(DEFINITIONS)}, a ranking's followed by @k.")
    if not at:
        return base, None
    if base not in RANKING:
        raise MetricError(f"Metric {name!r} takes no cutoff; write {base!r}.")
    if not (cutoff.isascii() and cutoff.isdigit() and int(cutoff) > 0):
        raise MetricError(f"Metric {name!r} has no usable cutoff; write a whole number from 1, such as '{base}@10'.")
    return base, int(cutoff)


def definition(name: str) -> str:
    """The sentence that says what a metric is; the cutoff of `name` does not matter."""
    return DEFINITIONS[parse(name)[0]]


def score(judged: Judged, metrics: Sequence[str]) -> dict[str, Floats]:
    """Compute metrics by name, each one value per query in the order of `judged.queries`."""
    parsed = {name: parse(name) for name in metrics}
    for name, (base, _) in parsed.items():
        if base not in RANKING:
            raise MetricError(f"{name!r} does not score a ranking; those that do are {', '.join(RANKING)}.")
    return {name: RANKING[base](judged, k) for name, (base, k) in parsed.items()}


def evaluate(run: Run, qrels: Qrels, metrics: Sequence[str]) -> dict[str, Floats]:
    """Score a run: per metric, one value for each judged query, in the order of the qrels.

    Example:
        >>> run = {"q1": {"d1": 0.9, "d2": 0.8}}
        >>> {name: values.mean().item() for name, values in evaluate(run, {"q1": {"d2": 1}}, ["mrr@10"]).items()}
        {'mrr@10': 0.5}
    """
    return score(judge(run, qrels), metrics)


def _paired(predicted: npt.ArrayLike, gold: npt.ArrayLike) -> tuple[Floats, Floats]:
    left, right = np.asarray(predicted, np.float64), np.asarray(gold, np.float64)
    if left.ndim != 1 or left.shape != right.shape:
        raise MetricError(f"Correlation needs two lists of one length; these have shapes {left.shape}, {right.shape}.")
    if len(left) < 2:
        raise MetricError(f"Correlation needs at least two pairs; there are {len(left)}.")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise MetricError("A score to correlate is NaN or infinite; check the system that scored it.")
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        raise MetricError("Correlation is undefined: one side has the same value everywhere. Check what scored it.")
    return left, right


def pearson(predicted: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Pearson's correlation of two lists of scores; a constant list, NaN or a missing pair is an error."""
    # Scaled first, so that neither squares nor tiny deviations leave the range of float64.
    left, right = ((side - side.mean()) / np.ptp(side) for side in _paired(predicted, gold))
    return float(np.corrcoef(left, right)[0, 1])


def spearman(predicted: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Spearman's correlation: Pearson's of the ranks, where tied values share their average rank."""
    return pearson(*(_average_ranks(side) for side in _paired(predicted, gold)))


def _average_ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def pair_similarities(queries: AnyFloats, positives: AnyFloats, similarity: Similarity = "cosine") -> Floats:
    """The similarity of each query's vector with its positive's, row by row; a zero vector's cosine is an error."""
    if queries.ndim != 2 or queries.shape != positives.shape:
        shapes = f"Queries have shape {queries.shape} and positives {positives.shape}"
        raise MetricError(f"{shapes}; give one positive per query, both from encoders of one space.")
    dots: Floats = np.einsum("ij,ij->i", queries, positives, dtype=np.float64)
    if similarity == "dot":
        return dots
    norms = np.linalg.norm(queries.astype(np.float64), axis=1) * np.linalg.norm(positives.astype(np.float64), axis=1)
    usable = np.isfinite(norms) & (norms > 0)
    if not usable.all():
        row = int(usable.argmin())
        raise MetricError(f"A vector of row {row} is zero or not finite, so it has no cosine; check text and encoder.")
    return np.asarray(dots / norms, np.float64)
