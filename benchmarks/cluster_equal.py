"""Whether the cluster engine answers as the embedded one does: the same collections, copied, and the same queries.

Needs the servers of ``tools/postgres.py`` and ``tools/milvus.py``. Documents are encoded by the tier ``static``, which
is enough to compare engines. Every engine gets a copy, so that passages have the same order in all of them: it decides
where scores tie. Prints for each collection and searcher which share of queries has the same ten hits in dense and in
hybrid search, in the same order but for ties, and which the same verdict; ``--out`` keeps it in a file.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import milvus
import postgres

from suwen.corpora.collection import Collection
from suwen.corpora.readers import read_documents
from suwen.corpora.sample_collection import sample_path
from suwen.index.copying import copy_index
from suwen.retrieve.results import Results
from suwen.retrieve.retriever import Index

TIER, K = "static", 10


def build(folder: Path, collection: str) -> list[str]:
    """Make an embedded index of a collection; its queries."""
    documents = read_documents(sample_path()) if collection == "sample" else Collection.open(collection).documents()
    with Index.create(folder) as index:
        index.add(documents, encoder=index.pair.encoder(TIER), duplicates="last")
    where = sample_path() if collection == "sample" else collection
    return [query.text for query in Collection.open(where).queries()]


def same(ours: Results, theirs: Results) -> bool:
    """Whether the hits are the same; those that tie with the last may differ."""
    mine, other = ([(hit.id, hit.score) for hit in found] for found in (ours, theirs))
    if len(mine) != len(other) or not np.allclose([s for _, s in mine], [s for _, s in other], atol=1e-4):
        return False
    last = min((score for _, score in other), default=0.0) + 2e-4
    return {id_ for id_, score in mine if score > last} == {id_ for id_, score in other if score > last}


def compared(embedded: Path, address: str, queries: list[str]) -> dict[str, float]:
    """The shares of queries with the same dense hits, the same hybrid ones, and the same verdict."""
    counts = np.zeros(3)
    with Index.open(embedded) as reference, Index.open(address) as index:
        for query in queries:
            dense = [one.search(query, K, mode="dense", tier=TIER) for one in (index, reference)]
            hybrid = [one.search(query, K, tier=TIER) for one in (index, reference)]
            counts += [same(*dense), same(*hybrid), hybrid[0].relevant == hybrid[1].relevant]
        shares = dict(zip(("dense", "hybrid", "verdict"), (counts / len(queries)).tolist(), strict=True))
        return {"passages": reference.engine.stats().passages, "queries": len(queries), **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="*", default=["sample"], help="folders, or sample")
    parser.add_argument("--queries", type=int, default=200, help="of each collection at most, drawn evenly")
    parser.add_argument("--version", choices=milvus.VERSIONS, default=milvus.VERSIONS[0], help="of milvus-lite")
    parser.add_argument("--out", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args()
    database, searcher = postgres.Server(), milvus.Server(given.version)
    found = []
    try:
        print(f"{'collection':24}{'searcher':>10}{'passages':>10}{'queries':>9}{'dense':>8}{'hybrid':>8}{'verdict':>9}")
        for number, collection in enumerate(given.collections):
            with tempfile.TemporaryDirectory() as folder:
                embedded = Path(folder) / "copy"
                queries = build(Path(folder) / "index", collection)
                copy_index(Path(folder) / "index", embedded)
                queries = queries[:: max(1, len(queries) // given.queries)][: given.queries]
                for name, options in (("pgvector", ""), ("milvus", f"&milvus={searcher.address}")):
                    address = f"{database.address}?index={name}{number}{options}"
                    copy_index(embedded, address)
                    one = compared(embedded, address, queries)
                    found.append({"collection": Path(collection).name, "searcher": name, **one})
                    told = f"{one['passages']:10}{one['queries']:9}{one['dense']:8.3f}{one['hybrid']:8.3f}"
                    print(f"{Path(collection).name:24}{name:>10}{told}{one['verdict']:9.3f}", flush=True)
                    if given.out:
                        report = {"tier": TIER, "k": K, "milvus-lite": given.version, "runs": found}
                        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    finally:
        searcher.close()
        database.close()


if __name__ == "__main__":
    main()
