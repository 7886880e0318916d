"""What precise mode gains over hybrid search, over rerankers and hits read: nDCG@10, and CPU milliseconds a query.

    python benchmarks/precise_mode.py DEV RERANKER [RERANKER ...] [--vectors FOLDER] [--pair PAIR --tier TIER]
        [--hits 5 10 20 50] [--queries 200] [--record]

DEV is a folder that tools/make_dev_collections.py wrote; RERANKER is the model folder of an `export-reranker` stage. A
hybrid ranking is the shipped one, over exact search, both sides by one tier of a pair, or over ready vectors: see
benchmarks/hybrid_fusion.py. What a hybrid score counts beside the reranker's is chosen on the even queries, and all is
told of the odd ones: differences are paired, with 95% intervals by bootstrap over queries. CPU time is that of reading
alone, in one thread. With --record, the weight and the gains at 20 hits are written into each reranker.json: where it
loses, precise mode does not use it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hybrid_fusion import TASKS, Task, legs_of, mean_interval, read_legs, vectors_of

from suwen.bench.dense_systems import PairSystem
from suwen.bench.exact_search import Ranks
from suwen.bench.reranked import HITS, Reading, gains, ndcg, read_again, reordered
from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_data import Ranked
from suwen.bench.task_loading import load_data
from suwen.durable import write_json
from suwen.encoders.reranker import DESCRIPTION, Reranker
from suwen.retrieve.fuse import fuse_hybrid


def hybrid(task: Task, depth: int) -> Ranks:
    """The shipped fusion of a task's legs."""
    fused = [fuse_hybrid(legs_of(query), depth) for query in task.queries]
    rows = np.full((len(fused), depth), -1, np.int64)
    scores = np.full((len(fused), depth), -np.inf)
    for number, one in enumerate(fused):
        rows[number, : len(one.rows)], scores[number, : len(one.rows)] = one.rows, one.scores
    return Ranks(rows, scores)


def cut(data: Ranked, queries: Any, most: int | None) -> tuple[Ranked, Any]:
    """A task with its first queries alone."""
    if most is None or len(data.queries) <= most:
        return data, queries
    kept = {"query_ids": data.query_ids[:most], "queries": data.queries[:most]}
    return Ranked(**{**vars(data), **kept}), queries[:most]


def tell(reranker: Reranker, tasks: Mapping[str, Reading], hits: int, cpu_ms: float) -> None:
    """One line: the reranker with so many hits read."""
    less = {name: task._replace(read=[one[:hits] for one in task.read]) for name, task in tasks.items()}
    weight, _ = gains(less)
    before = [ndcg(task, task.ranks)[1::2] for task in less.values()]
    after = [ndcg(task, reordered(task.ranks, task.read, weight))[1::2] for task in less.values()]
    gap, low, high = mean_interval(after, before)
    cells = [f"{one.mean():.2f} → {other.mean():.2f}" for one, other in zip(before, after, strict=True)]
    about = [reranker.name, str(reranker.manifest.layers), str(hits), f"{weight:g}"]
    print(f"| {' | '.join([*about, *cells, f'{gap:+.2f} ({low:+.2f} to {high:+.2f})', f'{cpu_ms:.0f}'])} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dev", type=Path)
    parser.add_argument("rerankers", type=Path, nargs="+")
    parser.add_argument("--vectors", type=Path, help="a folder of ready vectors")
    parser.add_argument("--pair", help="a pair's folder; the default pair where left out")
    parser.add_argument("--tier", help="who encodes both sides; the pair's default where left out")
    parser.add_argument("--hits", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--queries", type=int, help="the first so many of each task; all where left out")
    parser.add_argument("--record", action="store_true", help="write the gain at 20 hits into reranker.json")
    options = parser.parse_args()
    system = None if options.vectors else PairSystem.open("pair", options.pair or "", options.tier)[0]
    suite = load_suite(options.dev / "dev.toml")
    found: dict[str, Task] = {}
    for task in suite.tasks:
        if task.name in TASKS:
            data = load_data(suite, task)
            assert isinstance(data, Ranked)
            queries, documents = vectors_of(task.name, data, options.vectors, system)
            data, queries = cut(data, queries, options.queries)
            found[task.name] = read_legs(data, queries, documents)
    most = max(*options.hits, HITS)
    print(f"| reranker | layers | hits | weight | {' | '.join(found)} | mean gain | CPU ms |")
    print("|---|" + "---|" * (len(found) + 5))
    for folder in options.rerankers:
        reranker, began = Reranker.load(folder), time.process_time()
        tasks = {}
        for name, task in found.items():
            ranks = hybrid(task, 2 * most)
            tasks[name] = Reading(task.data, ranks, read_again(reranker, task.data, ranks, most))
        read = sum(len(one) for task in tasks.values() for one in task.read)
        each = 1000 * (time.process_time() - began) / max(1, read)
        for hits in sorted(options.hits):
            tell(reranker, tasks, hits, hits * each)
        if options.record:
            first = {name: task._replace(read=[one[:HITS] for one in task.read]) for name, task in tasks.items()}
            weight, measured = gains(first)
            said = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            said |= {"hybrid_weight": weight, "measured": {name: one.model_dump() for name, one in measured.items()}}
            write_json(folder / DESCRIPTION, said)


if __name__ == "__main__":
    main()
