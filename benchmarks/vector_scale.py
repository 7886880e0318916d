"""The vector files alone, from 100k to 10M passages: recall, CPU and memory of a search; nothing else of an index.

    python benchmarks/vector_scale.py --data FOLDER --work SCRATCH [--largest 10000000] [--old CHECKOUT]
    python benchmarks/vector_scale.py --measure SCRATCH          # what was built there once more

FOLDER is that of index_scale.py, and so are the vectors: real ones laid into 768 dimensions, then copies of them with
noise of matched covariance. The noise comes from a store of 262,144 draws: ten million fresh ones would take longer
than all else. The files are built as the engine builds them, batch by batch; exact search runs beside it over the fp32
vectors, which are not kept. SCRATCH needs 10 GB for 10M passages. With --old the same files are searched by another
checkout's code too. One core, CPU time.

A search gives k + 32 by int8 scores, which the index orders by its fp16 vectors: recall@10 is the share of the exact
top 10 among those 42.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import numpy.typing as npt

from suwen.index.vectors import VectorFiles

WIDTH, BATCH, DRAWS, QUERIES, K = 768, 16_384, 262_144, 100, 10
SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
Vectors = npt.NDArray[np.float32]
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.0f} s] {text}", flush=True)


def noise_store(base: Vectors, work: Path) -> Vectors:
    """Draws with the covariance of the real vectors, in a file: they count as nobody's memory."""
    made = np.lib.format.open_memmap(work / "noise.npy", mode="w+", dtype=np.float32, shape=(DRAWS, WIDTH))
    generator = np.random.default_rng(0)
    factor = np.linalg.cholesky(np.cov(base.T) + 1e-7 * np.eye(WIDTH)).astype(np.float32).T
    for start in range(0, DRAWS, BATCH):
        made[start : start + BATCH] = generator.standard_normal((BATCH, WIDTH), dtype=np.float32) @ factor
    return made


def stream(base: Vectors, noise: Vectors, total: int) -> Iterator[Vectors]:
    generator = np.random.default_rng(1)
    yield base
    for start in range(len(base), total, BATCH):
        count = min(BATCH, total - start)
        made = base[generator.integers(0, len(base), count)]
        made += 0.5 * noise[np.sort(generator.integers(0, DRAWS, count))]
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        yield made


class Exact:
    """The best ten of each query so far."""

    def __init__(self, queries: Vectors) -> None:
        self.queries, self.seen = queries, 0
        self.scores = np.full((len(queries), K), -np.inf, np.float32)
        self.ids = np.zeros((len(queries), K), np.int64)

    def add(self, vectors: Vectors) -> None:
        scores = np.hstack([self.scores, self.queries @ vectors.T])
        ids = np.hstack(
            [self.ids, np.broadcast_to(np.arange(self.seen, self.seen + len(vectors)), scores[:, K:].shape)]
        )
        order = np.argpartition(-scores, K, axis=1)[:, :K]
        self.scores, self.ids = np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)
        self.seen += len(vectors)


def real_vectors(data: Path) -> tuple[Vectors, Vectors]:
    """What index_scale.py begins with: the same spans and queries."""
    from index_scale import lifted
    from spans import queries as read_queries
    from spans import spans as read_spans

    from suwen.encoders.pair import Pair

    pair = Pair.load()
    encoder = pair.encoder(pair.fastest)
    spans, queries = read_spans(data, 150_000)[:8192], read_queries(data, 300)[:QUERIES]
    return lifted(encoder.encode_documents(spans)), lifted(encoder.encode_queries(queries))


def build(base: Vectors, asked: Vectors, work: Path, largest: int) -> None:
    # Nobody cuts the power of a benchmark, and a busy disk would keep it waiting for hours.
    os.fsync = lambda handle: None
    np.save(work / "queries.npy", asked)
    noise, exact, sizes, tops = noise_store(base, work), Exact(asked), [n for n in SIZES if n <= largest], {}
    np.save(work / "mean.npy", base.mean(axis=0, dtype=np.float64).astype(np.float32))
    VectorFiles.create(work, "vector-scale", WIDTH)
    files = VectorFiles(work, "vector-scale", WIDTH, 0, np.load(work / "mean.npy"))
    say("building")
    spent, most = 0.0, 0
    for vectors in stream(base, noise, max(sizes)):
        for part in np.split(vectors, [size - exact.seen for size in sizes if 0 < size - exact.seen < len(vectors)]):
            exact.add(part)
            began = time.process_time()
            files.append(np.arange(files.count, files.count + len(part)), part)
            spent, files.count, most = spent + time.process_time() - began, exact.seen, max(most, _anonymous())
            if exact.seen in sizes:
                tops[str(exact.seen)] = exact.ids
                say(f"{exact.seen:,} passages, {spent:.0f} s of CPU to write them, at most {most >> 20} MiB anonymous")
                np.savez(work / "exact.npz", **tops)
                made = {"build_cpu_s": round(spent, 1), "build_anonymous_mb": most >> 20, "passages": exact.seen}
                (work / "built.json").write_text(json.dumps(made), encoding="utf-8")
    (work / "noise.npy").unlink()


def measure(work: Path) -> list[dict[str, Any]]:
    """What a search of each size costs and finds, by the code this process has."""
    cores = os.sched_getaffinity(0)
    queries, exact, mean = np.load(work / "queries.npy"), np.load(work / "exact.npz"), np.load(work / "mean.npy")
    rows = []
    for size in sorted(map(int, exact.files)):
        files = VectorFiles(work, "vector-scale", WIDTH, size, mean)
        os.sched_setaffinity(0, {min(cores)})
        files.search(queries[0], K + 32, None, None)
        cpu, found = [], 0
        for query, wanted in zip(queries, exact[str(size)], strict=True):
            began = time.process_time()
            ranking = files.search(query, K + 32, None, None)
            cpu.append(time.process_time() - began)
            found += len(np.intersect1d(ranking.rows, wanted))
        os.sched_setaffinity(0, cores)
        rows.append({"passages": size, "recall@10": found / wanted.size / len(queries)})
        rows[-1] |= {"candidates": files._candidates(K + 32), "cpu_ms": 1000 * float(np.median(cpu))}
        rows[-1]["cpu_mean_ms"] = 1000 * float(np.mean(cpu))
        rows[-1]["anonymous_mb"] = _anonymous() >> 20
    return rows


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def measure_with(source: Path, work: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, __file__, "--measure", str(work)], env=environment, capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--old", type=Path, help="another checkout, whose code searches the same files")
    parser.add_argument("--measure", type=Path, help="only search what was built in this folder")
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    if not (options.work / "built.json").is_file():
        shutil.rmtree(options.work, ignore_errors=True)
        options.work.mkdir(parents=True)
        build(*real_vectors(options.data), options.work, options.largest)
    say("searching")
    report: dict[str, Any] = json.loads((options.work / "built.json").read_text(encoding="utf-8"))
    report |= {
        "dimension": WIDTH,
        "queries": QUERIES,
        "new": measure_with(Path(__file__).parents[1] / "src", options.work),
    }
    if options.old:
        report["old"] = measure_with(options.old / "src", options.work)
        for new, old in zip(report["new"], report["old"], strict=True):
            new["cpu_over_old"] = new["cpu_ms"] / old["cpu_ms"]
    (options.out / "vector_scale.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    say(json.dumps(report))


if __name__ == "__main__":
    main()
