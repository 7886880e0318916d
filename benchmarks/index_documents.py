"""What all cores are worth when a tier encodes the documents of an index: wall time, side by side.

    python benchmarks/index_documents.py dev/consultation --limit 2000

The folder is one of those that tools/make_dev_collections.py writes, or any BEIR folder. The same documents are indexed
by turns with one thread and with a thread for each core; of three rounds the best counts.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

from suwen.corpora.collection import Collection
from suwen.encoders.cores import OnAllCores, cores
from suwen.encoders.pair import Pair
from suwen.encoders.query import Encoder
from suwen.retrieve.retriever import Index

ROUNDS = 3


def seconds(collection: Collection, limit: int, pair: Pair, encoder: Encoder) -> float:
    """How long one index takes."""
    scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with scratch as folder, Index.create(Path(folder) / "index", pair=pair) as index:
        return index.add(itertools.islice(collection.documents(), limit), encoder=encoder).seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--limit", type=int, default=2000, help="documents")
    parser.add_argument("--tier", help="the default tier by default")
    chosen = parser.parse_args()
    pair, collection = Pair.load(None), Collection.open(chosen.collection)
    encoder = pair.encoder(chosen.tier)
    ways = {"one thread": encoder, f"{cores()} threads": OnAllCores(encoder)}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            best[name] = min(best[name], seconds(collection, chosen.limit, pair, way))
    alone, shared = best.values()
    said = f"{chosen.limit} documents, tier {encoder.name}: {cores()} threads take"
    print(f"{said} {shared / alone:.2f} of one thread's time")


if __name__ == "__main__":
    main()
