"""CPU time of scoring 10,000 queries x 1,000 hits: suwen.bench.retrieval_metrics beside ranx, after ranx has compiled.

Run: python benchmarks/scoring.py [--queries 10000 --hits 1000 --judged 20 --rounds 3 --ties]

Two lines of results. "dicts" is the claim: both start from the same Python dict of dicts and end with per-query values
of the same metrics; ranx takes the faster of its two documented ways in (`Run`/`Qrels` objects, or plain dicts).
"prepared" starts from what each keeps between evaluations: our `Judged`, ranx's sorted typed lists of arrays; there
ours has less to do, because it holds only the judged ranks.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

import numpy as np
import ranx
from ranx.utils import python_dict_to_typed_list

from suwen.bench import retrieval_metrics as metrics

OURS = ["ndcg@10", "ndcg@100", "map@100", "mrr@10", "recall@100", "recall@1000", "precision@5", "accuracy@10"]
THEIRS = [name.replace("accuracy", "hit_rate") for name in OURS]
LIMIT = 1.5


def make(queries: int, hits: int, judged: int, ties: bool, seed: int = 7):
    """A run over a corpus of 100,000 and qrels whose passages are mostly, not always, among the hits."""
    rng = np.random.default_rng(seed)
    names = [f"passage-{number}" for number in range(100_000)]
    run, qrels = {}, {}
    for query in range(queries):
        numbers = rng.choice(len(names), hits + judged, replace=False)
        scores = rng.random(hits)
        if ties:
            scores = scores.round(2)
        run[f"q{query}"] = {names[n]: s for n, s in zip(numbers[:hits].tolist(), scores.tolist(), strict=True)}
        known = rng.choice(numbers, judged, replace=False).tolist()
        qrels[f"q{query}"] = {names[n]: int(g) for n, g in zip(known, rng.integers(0, 4, judged), strict=True)}
        qrels[f"q{query}"][names[known[0]]] = 1
    return run, qrels


def cpu(work: Callable[[], object], rounds: int) -> float:
    """The least CPU time (all threads, user and system) of several rounds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def ranx_objects(run, qrels):
    """Ranx from dicts, by its `Run` and `Qrels` objects."""
    return ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), THEIRS, return_mean=False, save_results_in_run=False)


def ranx_dicts(run, qrels):
    """Ranx from dicts, handed over as they are."""
    return ranx.evaluate(qrels, run, THEIRS, return_mean=False)


def main() -> None:
    """Measure both, check that they agree, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("queries", 10_000), ("hits", 1_000), ("judged", 20), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ties", action="store_true", help="round scores to two digits (values then differ from ranx)")
    options = parser.parse_args()

    small = make(20, 50, 5, ties=False)
    for warm in (ranx_objects, ranx_dicts):
        warm(*small)
    run, qrels = make(options.queries, options.hits, options.judged, options.ties)

    if not options.ties:
        mine, other = metrics.evaluate(run, qrels, OURS), ranx_dicts(run, qrels)
        for ours, theirs in zip(OURS, THEIRS, strict=True):
            np.testing.assert_allclose(mine[ours], other[theirs], atol=1e-9)
        print(f"values agree on {len(OURS)} metrics x {options.queries} queries")

    ours = cpu(lambda: metrics.evaluate(run, qrels, OURS), options.rounds)
    dicts = cpu(lambda: ranx_dicts(run, qrels), options.rounds)
    objects = cpu(lambda: ranx_objects(run, qrels), options.rounds)
    judged = metrics.judge(run, qrels)
    typed = python_dict_to_typed_list(qrels), python_dict_to_typed_list(run)
    ours_ready = cpu(lambda: metrics.score(judged, OURS), options.rounds)
    ranx_ready = cpu(lambda: ranx.evaluate(*typed, THEIRS, return_mean=False), options.rounds)

    ratio = ours / min(dicts, objects)
    size = f"{options.queries} queries x {options.hits} hits, {options.judged} judged"
    print(f"{size}; CPU seconds, best of {options.rounds}")
    print(f"dicts:    suwen {ours:.3f}   ranx {dicts:.3f} (plain dicts) {objects:.3f} (Run, Qrels)   ratio {ratio:.3f}")
    print(f"prepared: suwen {ours_ready:.3f}   ranx {ranx_ready:.3f}   ratio {ours_ready / ranx_ready:.3f}")
    if ratio > LIMIT:
        raise SystemExit(f"over the limit of {LIMIT}")


if __name__ == "__main__":
    main()
