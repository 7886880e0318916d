"""What a query costs each tier of a pair: CPU time of encoding one query, side by side, as ratios to the cheapest.

    python benchmarks/query_tiers.py [PAIR] [--rounds 20]
    python benchmarks/query_tiers.py --folder BASE --folder OTHER [--folder ...] [--rounds 20]

The queries are those of the bundled sample collection, one text per run as the service encodes them, one thread; tiers
take turns, so that a slow moment of the machine meets all of them. The median of the rounds is shown. With --folder,
models of sentence-transformers are compared to the first of them, with the quarters of the rounds' ratios beside.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from suwen.corpora.collection import Collection
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import Pair

Encode = Callable[[Sequence[str]], Any]


def encoders_of(folders: Sequence[str]) -> dict[str, Encode]:
    """The query sides of models of sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    models = {folder: SentenceTransformer(folder, device="cpu") for folder in folders}
    return {name: lambda texts, model=model: model.encode_query(list(texts)) for name, model in models.items()}


def spent_by(encoders: dict[str, Encode], queries: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of a query, by encoder and round."""
    spent: dict[str, list[float]] = {name: [] for name in encoders}
    for encode in encoders.values():
        encode(queries[:3])
    for _ in range(rounds):
        for name, encode in encoders.items():
            started = time.process_time()
            for text in queries:
                encode([text])
            spent[name].append((time.process_time() - started) / len(queries))
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", nargs="?", help="a pair's folder; the default pair where left out")
    parser.add_argument("--folder", action="append", help="a model of sentence-transformers; repeat")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    queries = [query.text for query in Collection.open(sample_path()).queries()]
    if given.folder:
        spent = spent_by(encoders_of(given.folder), queries, given.rounds)
        first = spent[given.folder[0]]
        print("| model | CPU time of a query, to the first | quarters |\n|---|---|---|")
        for name, times in spent.items():
            ratios = [one / base for one, base in zip(times, first, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"| {name} | {middle:.2f} | {low:.2f} to {high:.2f} |")
        return
    pair = Pair.load(given.pair)
    spent = spent_by({name: pair.encoder(name).encode_queries for name in pair.tiers}, queries, given.rounds)
    median = {name: statistics.median(times) for name, times in spent.items()}
    least = min(median.values())
    print("| tier | CPU time of a query, to the cheapest tier |\n|---|---|")
    for name, value in median.items():
        print(f"| `{name}` | {value / least:.1f} |")


if __name__ == "__main__":
    main()
