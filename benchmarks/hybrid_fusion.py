"""How hybrid search should fuse its two legs: nDCG@10 of every fusion and weight, one setting for all tasks.

Beside the shipped fusion stands the one of 0.1 (each leg on the query's own range, two to one, no phrase counted less),
with the paired difference and its interval: old and new over the same vectors, in one run.

    python benchmarks/hybrid_fusion.py DEV [--vectors FOLDER --documents document|transformer|static]
        [--pair PAIR --tier TIER] [--every-weight]

DEV is a folder that tools/make_dev_collections.py wrote. The dense leg is exact search over the vectors of a pair (the
default pair where none is named), or over ready ones: FOLDER holds `<task>-queries.npy` and `<task>-documents.npy`, a
row for each query and document in the order of `suwen.bench.task_loading.load_data`; `--documents` says what made those
of the documents, by which the shipped fusion weighs the legs, and moves what is near the first hits, as the retriever
does. The lexical leg is the index's own BM25. Both are read to the depth that the retriever reads first.

The weight is the dense leg's share of the whole. A setting qualifies when it is at most 0.3 behind the better leg on
every task; of those the highest mean wins. "held out" fits the weight on the other tasks and measures on the one left.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args
from unittest.mock import patch

import numpy as np

from suwen.bench.dense_systems import PairSystem
from suwen.bench.exact_search import prepared, scan, tie_order
from suwen.bench.paired_statistics import paired_bootstrap
from suwen.bench.retrieval_metrics import evaluate
from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_data import Ranked
from suwen.bench.task_loading import load_data
from suwen.encoders.who_encodes import Maker
from suwen.index import lexical_terms
from suwen.index.engine import Ranking
from suwen.index.lexical import Lexical
from suwen.index.vectors import best
from suwen.retrieve.fuse import DEPTH, WEIGHTS_BY, VectorsOf, fuse_hybrid, reciprocal_rank_fusion

TASKS = ("consultation", "cmedir", "cmedqa", "nfcorpus")
GRID = tuple(round(0.05 * step, 2) for step in range(2, 19))
TOLERANCE = 0.3
SHIPPED = "scores in absolute terms"
OLD = ("scores, each list's own range (0.1)", 2 / 3)
NOBODY = np.empty(0, dtype=np.int64)
Values = np.ndarray[Any, Any]


class Query(NamedTuple):
    """A query's two lists, and the true scores of whatever stands in either."""

    dense: Ranking
    lexical: Ranking
    #: The lexical list as 0.1 read it, with every word at its full weight.
    plain: Ranking
    rows: Values
    cosines: Values
    bm25: Values
    #: The cosine's mean over the whole corpus.
    mean: float
    #: Of documents; None where nothing is to be moved by them.
    vectors: VectorsOf | None


Fuse = Callable[[Query, float], Values]


class Task(NamedTuple):
    data: Ranked
    queries: list[Query]
    #: The dense leg's share in what ships.
    share: float


# -- the fusions: a query and the dense leg's share, to rows in order -------------------------------------------------


def ordered(query: Query, scores: Values) -> Values:
    return query.rows[np.lexsort((query.rows, -scores))]


def by_rank(constant: int) -> Fuse:
    def fuse(query: Query, weight: float) -> Values:
        legs = [(query.dense.rows, weight), (query.lexical.rows, 1 - weight)]
        return reciprocal_rank_fusion(legs, len(query.rows), constant).rows

    return fuse


def legs_of(query: Query) -> dict[str, Ranking]:
    """The legs as the retriever fuses them: what words found has its true cosine, however far down it stands."""
    return {"dense": best(query.rows, query.cosines.astype(np.float32), len(query.rows)), "lexical": query.lexical}


def shipped(query: Query, weight: float) -> Values:
    weights = {"dense": weight, "lexical": 1 - weight}
    return fuse_hybrid(legs_of(query), len(query.rows), weights, vectors=query.vectors).rows


def not_moved(query: Query, weight: float) -> Values:
    return shipped(query._replace(vectors=None), weight)


def relative(ranking: Ranking, floor: float | None) -> tuple[Values, float]:
    """The fusion of 0.1: the query's best is 1, its 200th is 0, or the floor where the list ends before."""
    scores = ranking.scores.astype(np.float64)
    if not len(scores):
        return scores, 0.0
    best, last = scores[0], scores[min(DEPTH, len(scores)) - 1]
    zero = floor if floor is not None and len(scores) < DEPTH else last
    found = (scores - zero) / (best - zero) if best > zero else (scores >= best).astype(np.float64)
    return np.round(found, 5), min(float(found[-1]), 0.0)


def of_0_1(query: Query, weight: float) -> Values:
    rows = np.union1d(query.dense.rows, query.plain.rows)
    scores = np.zeros(len(rows))
    for leg, share, floor in ((query.dense, weight, None), (query.plain, 1 - weight, 0.0)):
        found, missing = relative(leg, floor)
        column = np.full(len(rows), missing)
        column[np.searchsorted(rows, leg.rows)] = found
        scores += share * column
    best: Values = rows[np.lexsort((rows, -scores))]
    return best


def apply(fuse: Fuse, weight: float, query: Query) -> Values:
    return fuse(query, weight)


def convex(dense: Callable[[Query], Values], lexical: Callable[[Query], Values]) -> Fuse:
    return lambda query, weight: ordered(query, weight * dense(query) + (1 - weight) * lexical(query))


def between(values: Values, low: float, high: float) -> Values:
    scaled: Values = (values - low) / max(high - low, 1e-9)
    return scaled


def true_range(query: Query) -> Values:
    return between(query.cosines, query.dense.scores[-1], query.dense.scores[0])


def of_top(query: Query) -> Values:
    return between(query.bm25, 0.0, float(query.bm25.max()))


def theoretical(query: Query) -> Values:
    return between(query.cosines, -1.0, query.cosines.max())


def from_mean(query: Query) -> Values:
    return between(query.cosines, query.mean, query.cosines.max())


FUSIONS: dict[str, Fuse] = {
    "reciprocal rank, 60": by_rank(60),
    "reciprocal rank, 20": by_rank(20),
    OLD[0]: of_0_1,
    SHIPPED: shipped,
    "the same, nothing moved": not_moved,
    "cosine in its range, BM25 / top": convex(true_range, of_top),
    "cosine from mean to top, BM25 / top": convex(from_mean, of_top),
    "(cosine + 1) / (top + 1), BM25 / top": convex(theoretical, of_top),
}


# -- the legs ---------------------------------------------------------------------------------------------------------


def vectors_of(name: str, data: Ranked, folder: Path | None, system: PairSystem | None) -> tuple[Values, Values]:
    if system is not None:
        return system.encode(data.queries, None, "query"), system.encode(data.documents, None, "document")
    assert folder is not None
    found = []
    for side, texts in (("queries", data.queries), ("documents", data.documents)):
        stored = np.load(folder / f"{name}-{side}.npy").astype(np.float32)
        if len(stored) != len(texts):
            raise SystemExit(
                f"{folder}: {len(stored)} vectors for the {len(texts)} {side} of {name}; encode them again"
            )
        found.append(prepared(stored, "cosine"))
    return found[0], found[1]


@contextmanager
def plain_words() -> Iterator[None]:
    """Every word of a query at its full weight, as in 0.1."""
    with patch.object(lexical_terms, "QUESTION_WEIGHT", 1.0):
        yield


def read_legs(data: Ranked, queries: Values, documents: Values, maker: Maker = "transformer") -> Task:
    rows, scores = scan(queries, [documents], tie_order(data.document_ids), similarity="cosine", depth=DEPTH)
    middle = documents.mean(axis=0)
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        index = Lexical(Path(scratch) / "lexical", create=True)
        index.add(enumerate(data.documents, start=1))
        searcher = index.reload()
        last = len(documents)
        for number, text in enumerate(data.queries):
            hits = index.search(searcher, searcher.doc_freq, text, DEPTH, None, NOBODY, last)
            dense, lexical = Ranking(rows[number], scores[number]), hits._replace(rows=hits.rows - 1)
            with plain_words():
                every = index.search(searcher, searcher.doc_freq, text, DEPTH, None, NOBODY, last)
            either = np.union1d(dense.rows, lexical.rows)
            bm25 = np.zeros(len(either))
            true = index.search(searcher, searcher.doc_freq, text, len(either), either + 1, NOBODY, last)
            bm25[np.searchsorted(either, true.rows - 1)] = true.scores
            query, plain = queries[number], every._replace(rows=every.rows - 1)
            cosines, mean = documents[either] @ query, float(middle @ query)
            found.append(Query(dense, lexical, plain, either, cosines, bm25, mean, documents.__getitem__))
        index.close()
    weights = WEIGHTS_BY[maker]
    return Task(data, found, weights["dense"] / sum(weights.values()))


# -- measuring --------------------------------------------------------------------------------------------------------


def ndcg(task: Task, rank: Callable[[Query], Values]) -> Values:
    """nDCG@10 of each query, in points; the order given is the order scored."""
    run = {}
    for id_, query in zip(task.data.query_ids, task.queries, strict=True):
        best = rank(query)[:10].tolist()
        run[id_] = ([task.data.document_ids[row] for row in best], [-float(place) for place in range(len(best))])
    return 100 * evaluate(run, task.data.qrels, ["ndcg@10"])["ndcg@10"]


def choose(means: Mapping[tuple[str, float], Values], better: Values) -> tuple[str, float]:
    """The setting with the highest mean among those that qualify; the least far behind where none does."""
    behind = {key: float((found - better).min()) for key, found in means.items()}
    able = [key for key in means if behind[key] >= -TOLERANCE]
    return max(able, key=lambda key: float(means[key].mean())) if able else max(behind, key=lambda key: behind[key])


def held_out(means: Mapping[tuple[str, float], Values], better: Values) -> Values:
    """What each task gets from a setting chosen on the others."""
    found = np.zeros(len(better))
    for left in range(len(better)):
        others = [place for place in range(len(better)) if place != left]
        found[left] = means[choose({key: value[others] for key, value in means.items()}, better[others])][left]
    return found


def mean_interval(left: Sequence[Values], right: Sequence[Values], rounds: int = 2000) -> tuple[float, float, float]:
    """The difference of two means over tasks and its 95% interval, queries redrawn within each task."""
    rng = np.random.default_rng(7)
    gaps = [one - other for one, other in zip(left, right, strict=True)]
    drawn = [np.mean([gap[rng.integers(0, len(gap), len(gap))].mean() for gap in gaps]) for _ in range(rounds)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.mean([gap.mean() for gap in gaps])), float(low), float(high)


# -- telling ----------------------------------------------------------------------------------------------------------


def row(name: str, weight: str, found: Values, better: Values, held: Values | None = None) -> str:
    cells = [*(f"{value:.2f}" for value in found), f"{found.mean():.2f}", f"{(found - better).min():+.2f}"]
    cells += ["", ""] if held is None else [f"{held.mean():.2f}", f"{(held - better).min():+.2f}"]
    return f"| {' | '.join([name, weight, *cells])} |"


def tell(tasks: Mapping[str, Task], every_weight: bool) -> None:
    legs = {
        "dense": [ndcg(task, lambda query: query.dense.rows) for task in tasks.values()],
        "BM25": [ndcg(task, lambda query: query.lexical.rows) for task in tasks.values()],
    }
    plain = {name: np.array([values.mean() for values in per]) for name, per in legs.items()}
    better = np.maximum(plain["dense"], plain["BM25"])
    print(f"| fusion | weight | {' | '.join(tasks)} | mean | worst gap | held out: mean | worst gap |")
    print("|---|" + "---|" * (len(tasks) + 5))
    for name, found in plain.items():
        print(row(name, "", found, better), flush=True)
    every: dict[tuple[str, float], Values] = {}
    for name, fuse in FUSIONS.items():
        grid = {}
        for weight in GRID:
            rank = partial(apply, fuse, weight)
            grid[name, weight] = np.array([ndcg(task, rank).mean() for task in tasks.values()])
        chosen, held = choose(grid, better), held_out(grid, better)
        for key in grid if every_weight or name == SHIPPED else [chosen]:
            print(row(name, f"{key[1]:g}", grid[key], better, held if key == chosen else None), flush=True)
        every |= grid
    best = choose(every, better)
    (share,) = {task.share for task in tasks.values()}
    print(f"\nBest: {best[0]}, weight {best[1]:g}: mean {every[best].mean():.2f}. Shipped: weight {share:g}.\n")
    against = {**legs, OLD[0]: [ndcg(task, lambda q: of_0_1(q, OLD[1])) for task in tasks.values()]}
    against |= {"reciprocal rank, 60": [ndcg(task, lambda q: by_rank(60)(q, 0.5)) for task in tasks.values()]}
    against |= {"nothing moved": [ndcg(task, lambda q: not_moved(q, share)) for task in tasks.values()]}
    ours = [ndcg(task, lambda query: shipped(query, share)) for task in tasks.values()]
    print(row("shipped", f"{share:g}", np.array([values.mean() for values in ours]), better) + "\n")
    print(
        f"| shipped setting minus | {' | '.join(tasks)} | mean | even queries | odd queries |\n|---|"
        + "---|" * (len(tasks) + 3)
    )
    for name, theirs in against.items():
        cells = [paired_bootstrap(one, other)[:3] for one, other in zip(ours, theirs, strict=True)]
        cells.append(mean_interval(ours, theirs))
        cells += [mean_interval([one[start::2] for one in ours], [one[start::2] for one in theirs]) for start in (0, 1)]
        print(f"| {name} | " + " | ".join(f"{gap:+.2f} ({low:+.2f} to {high:+.2f})" for gap, low, high in cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--vectors", type=Path, help="a folder of ready vectors")
    parser.add_argument("--documents", choices=get_args(Maker), default="transformer", help="what made ready vectors")
    parser.add_argument("--pair", help="a pair's folder; the default pair where left out")
    parser.add_argument("--tier", help="the query encoder; the pair's default where left out")
    parser.add_argument("--every-weight", action="store_true", help="show the whole grid of every fusion")
    options = parser.parse_args()
    system = None if options.vectors else PairSystem.open("pair", options.pair or "", options.tier)[0]
    maker = options.documents if system is None else system.maker
    suite = load_suite(options.dev / "dev.toml")
    tasks = {}
    for task in suite.tasks:
        if task.name in TASKS:
            data = load_data(suite, task)
            assert isinstance(data, Ranked)
            tasks[task.name] = read_legs(data, *vectors_of(task.name, data, options.vectors, system), maker)
    tell(tasks, options.every_weight)


if __name__ == "__main__":
    main()
