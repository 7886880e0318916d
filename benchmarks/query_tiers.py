"""What a query costs each tier of a pair: CPU time of encoding one query, side by side, as ratios to the cheapest.

    python benchmarks/query_tiers.py [PAIR] [--rounds 20]

The queries are those of the bundled sample collection, one text per run as the service encodes them, one thread; tiers
take turns, so that a slow moment of the machine meets all of them. The median of the rounds is shown.
"""

from __future__ import annotations

import argparse
import statistics
import time

from suwen.corpora.collection import Collection
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import Pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", nargs="?", help="a pair's folder; the default pair where left out")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    pair = Pair.load(given.pair)
    queries = [query.text for query in Collection.open(sample_path()).queries()]
    encoders = {name: pair.encoder(name) for name in pair.tiers}
    spent: dict[str, list[float]] = {name: [] for name in encoders}
    for encoder in encoders.values():
        encoder.encode_queries(queries[:3])
    for _ in range(given.rounds):
        for name, encoder in encoders.items():
            started = time.process_time()
            for text in queries:
                encoder.encode_queries([text])
            spent[name].append((time.process_time() - started) / len(queries))
    median = {name: statistics.median(times) for name, times in spent.items()}
    least = min(median.values())
    print("| tier | CPU time of a query, to the cheapest tier |\n|---|---|")
    for name, value in median.items():
        print(f"| `{name}` | {value / least:.1f} |")


if __name__ == "__main__":
    main()
