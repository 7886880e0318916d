"""What the cluster engine costs beside the embedded one: adding, copying, dense and lexical search.

    python benchmarks/cluster_cost.py [--passages 15000] [--out docs/data/cluster-cost.json]

CPU is that of this process and of the servers; a query's time is the median. Needs the servers of ``tools/postgres.py``
and ``tools/milvus.py`` (run both with ``make`` first). All engines get the same made-up passages in the same run, so
only the ratios mean anything. Copies are of a tenth of the passages, out of the embedded engine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import milvus
import postgres

from suwen.corpora.readers import read_documents
from suwen.corpora.records import Document, Passage
from suwen.corpora.sample_collection import sample_path
from suwen.index.copying import copy_index
from suwen.index.engine import EncodedDocument, Engine
from suwen.index.opening import create_engine
from suwen.index.recall import measure_recall

DIMENSION, BATCH, QUERIES = 512, 64, 100


def made_up(count: int, rng: np.random.Generator) -> list[EncodedDocument]:
    """Documents of one passage: sentences of the sample, shuffled, with vectors around 200 centres."""
    parts = [part for one in read_documents(sample_path()) for part in one.text.split("。") if part]
    centres = rng.standard_normal((200, DIMENSION)).astype(np.float32)
    documents = []
    for number in range(count):
        text = "。".join(rng.choice(parts, 6))
        vector = centres[rng.integers(200)] + 0.7 * rng.standard_normal(DIMENSION).astype(np.float32)
        vector = vector[None, :] / np.linalg.norm(vector)
        document = Document(f"d{number}", text, "", {"year": int(rng.integers(2000, 2026))})
        passages = [Passage(document.id, 0, text, 0, len(text))]
        documents.append(EncodedDocument(document, passages, vector, "static", str(number)))
    return documents


class Servers:
    """What the cluster engine runs on."""

    def __init__(self) -> None:
        self.database, self.searcher = postgres.Server(), milvus.Server()

    def spent(self) -> float:
        """CPU seconds of this process, of the servers, and of those of their processes that have ended."""
        total = time.process_time()
        for server in (self.database, self.searcher):
            assert server.process is not None
            master = psutil.Process(server.process.pid)
            times = [master.cpu_times(), *(one.cpu_times() for one in master.children())]
            total += times[0].children_user + times[0].children_system
            total += sum(one.user + one.system for one in times)
        return total

    def close(self) -> None:
        self.searcher.close()
        self.database.close()


def measured(servers: Servers, work: Callable[[], object], count: int) -> float:
    """CPU milliseconds of each of so many things."""
    before = servers.spent()
    work()
    return 1000 * (servers.spent() - before) / count


def add(engine: Engine, documents: list[EncodedDocument]) -> None:
    for start in range(0, len(documents), BATCH):
        engine.add(documents[start : start + BATCH])


def costs(servers: Servers, engine: Engine, documents: list[EncodedDocument]) -> dict[str, float]:
    """What an engine spends on all passages, and on queries once they are there and compacted."""
    found = {"adding a passage": measured(servers, lambda: add(engine, documents), len(documents))}
    found["compacting after it, a passage"] = measured(servers, engine.compact, len(documents))
    rng = np.random.default_rng(1)
    chosen = [documents[int(number)] for number in rng.integers(0, len(documents), QUERIES)]
    times: list[float] = []

    def each(search: Callable[[Any, EncodedDocument], Any]) -> None:
        times.clear()
        for one in chosen:
            began = time.perf_counter()
            with engine.snapshot() as view:
                view.fetch(search(view, one).rows.tolist())
            times.append(1000 * (time.perf_counter() - began))

    quarter = {"year": {"gte": 2019}}
    kinds: dict[str, Callable[[Any, EncodedDocument], Any]] = {
        "dense search": lambda view, one: view.dense(one.vectors[0], 10),
        "dense search, a filter that admits a quarter": lambda view, one: view.dense(one.vectors[0], 10, quarter),
        "lexical search": lambda view, one: view.lexical(one.passages[0].text[:24], 10),
    }
    for what, search in kinds.items():
        each(search)
        found[what] = measured(servers, partial(each, search), QUERIES)
        found[f"{what}: its time"] = statistics.median(times)
    found["recall@10 of dense search"] = measure_recall(engine, 50).recall
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=15_000)
    parser.add_argument("--out", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args()
    documents = made_up(given.passages, np.random.default_rng(0))
    servers = Servers()
    database, outside = servers.database.address, f"&milvus={servers.searcher.address}"
    results: dict[str, dict[str, float]] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            part = documents[: max(1, len(documents) // 10)]
            engine = create_engine(f"{folder}/part", space="sp-benchmark", dimension=DIMENSION)
            add(engine, part)
            engine.close()
            places = {"embedded": (f"{folder}/index", f"{folder}/copy")}
            places["pgvector"] = (f"{database}?index=one", f"{database}?index=copied")
            places["milvus"] = (f"{database}?index=two{outside}", f"{database}?index=copied_too{outside}")
            for name, (address, copy) in places.items():
                copying = measured(servers, partial(copy_index, f"{folder}/part", copy), len(part))
                engine = create_engine(address, space="sp-benchmark", dimension=DIMENSION)
                results[name] = {"copying a passage": copying, **costs(servers, engine, documents)}
                engine.close()
                print(name, json.dumps(results[name]), flush=True)
    finally:
        servers.close()
    told(given.passages, results)
    if given.out:
        report = {"passages": given.passages, "dimension": DIMENSION, "milliseconds": results}
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def told(count: int, results: dict[str, dict[str, float]]) -> None:
    print(f"{count} passages of {DIMENSION} dimensions; CPU milliseconds, the servers' included, and ratios")
    print(f"{'':48}{'embedded':>10}{'pgvector':>10}{'ratio':>8}{'milvus':>10}{'ratio':>8}")
    for what, embedded in results["embedded"].items():
        beside = "".join(
            f"{results[name][what]:10.3f}{results[name][what] / max(embedded, 1e-9):8.2f}"
            for name in ("pgvector", "milvus")
        )
        print(f"{what:48}{embedded:10.3f}{beside}")


if __name__ == "__main__":
    main()
