"""Bytes on disk of a passage, by what holds them, in the embedded engine and in PostgreSQL: for the sizing page.

    python benchmarks/bytes_per_passage.py [--passages 12000] [--out docs/data]

The same made-up passages as in cluster_cost.py, of 512 dimensions: six sentences of the sample each, one year as
metadata, a document a passage. Needs the server of ``tools/postgres.py``; without it the embedded engine alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import postgres
from cluster_cost import BATCH, DIMENSION, made_up

from suwen.index.engine import EncodedDocument, Engine
from suwen.index.opening import create_engine


def fill(engine: Engine, documents: list[EncodedDocument]) -> float:
    began = time.process_time()
    for start in range(0, len(documents), 16 * BATCH):
        engine.add(documents[start : start + 16 * BATCH])
    engine.compact()
    engine.close()
    return time.process_time() - began


def in_files(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for file in folder.rglob("*"):
        if file.is_file():
            part = file.relative_to(folder).parts
            name = "lexical" if "lexical" in part else "truth.db" if part[0].startswith("truth.db") else part[-1]
            found[name] = found.get(name, 0) + file.stat().st_size
    return found


def in_tables(address: str) -> dict[str, int]:
    import psycopg

    query = (
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
        "(SELECT oid FROM pg_namespace WHERE nspname = 'suwen')"
    )
    with psycopg.connect(address) as connection:
        connection.execute("CHECKPOINT")
        return {name: int(size) for name, size in connection.execute(query)}


def each(sizes: dict[str, int], count: int) -> dict[str, float]:
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    named = {name: round(size / count, 1) for name, size in largest if size / count >= 1}
    return {**named, "all": round(sum(sizes.values()) / count, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--passages", type=int, default=12_000)
    parser.add_argument("--out", type=Path, default=Path("docs/data"))
    options = parser.parse_args()
    documents = made_up(options.passages, np.random.default_rng(0))
    characters = float(np.mean([len(one.passages[0].text) for one in documents]))
    utf8 = float(np.mean([len(one.passages[0].text.encode()) for one in documents]))
    report: dict[str, Any] = {"passages": len(documents), "dimension": DIMENSION}
    report |= {"characters a passage": round(characters, 1), "bytes of text a passage": round(utf8, 1)}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "index"
        cpu = fill(create_engine(str(place), space="sp-benchmark", dimension=DIMENSION), documents)
        report["embedded, bytes a passage"] = each(in_files(place), len(documents))
        report["embedded, CPU ms a passage, ready vectors"] = round(1000 * cpu / len(documents), 3)
    if postgres.is_made():
        server = postgres.Server()
        try:
            fill(create_engine(server.address, space="sp-benchmark", dimension=DIMENSION), documents)
            report["PostgreSQL, bytes a passage"] = each(in_tables(server.address), len(documents))
        finally:
            server.close()
    text = json.dumps(report, indent=2, ensure_ascii=False)
    (options.out / "bytes-per-passage.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
