"""CPU of the cluster engine beside the embedded one, the servers' own included: adding, dense and lexical search.

Needs the servers of ``tools/postgres.py`` and ``tools/milvus.py`` (run both with ``make`` first). All engines get the
same made-up passages in the same run, so only the ratios mean anything.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import milvus
import postgres

from suwen.corpora.readers import read_documents
from suwen.corpora.records import Document, Passage
from suwen.corpora.sample_collection import sample_path
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


def costs(servers: Servers, engine: Engine, documents: list[EncodedDocument]) -> dict[str, float]:
    def add() -> None:
        for start in range(0, len(documents), BATCH):
            engine.add(documents[start : start + BATCH])

    found = {"adding a passage": measured(servers, add, len(documents))}
    engine.compact()
    rng = np.random.default_rng(1)
    chosen = [documents[int(number)] for number in rng.integers(0, len(documents), QUERIES)]

    def dense(where: dict[str, object] | None = None) -> None:
        for one in chosen:
            with engine.snapshot() as view:
                view.fetch(view.dense(one.vectors[0], 10, where).rows.tolist())

    def lexical() -> None:
        for one in chosen:
            with engine.snapshot() as view:
                view.fetch(view.lexical(one.passages[0].text[:24], 10).rows.tolist())

    for work in (dense, lexical):
        work()
    found["dense search"] = measured(servers, dense, QUERIES)
    found["dense search, a filter that admits a quarter"] = measured(
        servers, lambda: dense({"year": {"gte": 2019}}), QUERIES
    )
    found["lexical search"] = measured(servers, lexical, QUERIES)
    found["recall@10 of dense search"] = measure_recall(engine, 50).recall
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=15_000)
    count = parser.parse_args().passages
    documents = made_up(count, np.random.default_rng(0))
    servers = Servers()
    database = servers.database.address
    addresses = {
        "pgvector": f"{database}?index=one",
        "milvus": f"{database}?index=two&milvus={servers.searcher.address}",
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            results = {}
            for name, address in ({"embedded": f"{folder}/index"} | addresses).items():
                engine = create_engine(address, space="sp-benchmark", dimension=DIMENSION)
                results[name] = costs(servers, engine, documents)
                engine.close()
    finally:
        servers.close()
    print(f"{count} passages of {DIMENSION} dimensions; CPU milliseconds, the servers' included, and ratios")
    print(f"{'':48}{'embedded':>10}{'pgvector':>10}{'ratio':>8}{'milvus':>10}{'ratio':>8}")
    for what, embedded in results["embedded"].items():
        told = "".join(f"{results[name][what]:10.3f}{results[name][what] / embedded:8.2f}" for name in addresses)
        print(f"{what:48}{embedded:10.3f}{told}")


if __name__ == "__main__":
    main()
