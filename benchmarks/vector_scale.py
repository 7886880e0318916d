"""The vector files alone, from 100k to 10M passages: recall, CPU and memory of a search; nothing else of an index.

    python benchmarks/vector_scale.py --data FOLDER --work SCRATCH [--largest 10000000] [--old CHECKOUT]
    python benchmarks/vector_scale.py --measure SCRATCH          # what was built there once more

FOLDER is that of index_scale.py, and so are the vectors: real ones of the default pair's fastest tier, then copies of
them with noise of matched covariance. The noise comes from a store of 262,144 draws: ten million fresh ones would take
longer than all else. The files are built as the engine builds them, batch by batch; exact search runs beside it over
the fp32 vectors, which are not kept. Run again, it goes on where it was stopped. SCRATCH needs 7 GB for 10M passages
of 512 dimensions, the pair's own; --dimension 768 lays the same vectors into more, for 11 GB.

With --old the same files are searched by another checkout's code too, where that reads them. One core, CPU time, and
from four million passages on also all cores. A search gives k + 32 by int8 scores, which the index orders by its fp16
vectors: recall@10 is the share of the exact top 10 among those 42.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import faiss
import numpy as np
import numpy.typing as npt

from suwen.index.vectors import VectorFiles

try:
    from suwen.index import bit_scan
except ImportError:  # another checkout's code may have other steps
    bit_scan = None  # type: ignore[assignment]

REAL, BATCH, DRAWS, QUERIES, K = 8192, 16_384, 262_144, 300, 10
SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
#: Passages between two states that a stopped run goes on from.
SAVED = 250_000
Vectors = npt.NDArray[np.float32]
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.0f} s] {text}", file=sys.stderr, flush=True)


# -- what there is to search --------------------------------------------------------------------------------------


def prepare(data: Path, work: Path, dimension: int) -> None:
    """Real vectors and queries, their mean, and draws with their covariance: files, so that nobody holds them."""
    from spans import queries as read_queries
    from spans import spans as read_spans

    from suwen.encoders.pair import Pair

    pair = Pair.load()
    encoder = pair.encoder(pair.fastest)
    base = widened(encoder.encode_documents(read_spans(data, 150_000)[:REAL]), dimension)
    np.save(work / "queries.npy", widened(encoder.encode_queries(read_queries(data, QUERIES)), dimension))
    np.save(work / "mean.npy", base.mean(axis=0, dtype=np.float64).astype(np.float32))
    noise = np.lib.format.open_memmap(work / "noise.npy", mode="w+", dtype=np.float32, shape=(DRAWS, dimension))
    generator = np.random.default_rng(0)
    factor = np.linalg.cholesky(np.cov(base.T) + 1e-7 * np.eye(dimension)).astype(np.float32).T
    for start in range(0, DRAWS, BATCH):
        noise[start : start + BATCH] = generator.standard_normal((BATCH, dimension), dtype=np.float32) @ factor
    noise.flush()
    np.save(work / "base.npy", base)


def widened(vectors: Vectors, dimension: int) -> Vectors:
    """The same vectors in more dimensions: lengths and angles are kept."""
    if vectors.shape[1] == dimension:
        return vectors
    full = np.random.default_rng(1).standard_normal((dimension, dimension))
    return np.asarray(vectors @ np.linalg.qr(full)[0][: vectors.shape[1]], dtype=np.float32)


def batches(work: Path, begin: int, total: int) -> Iterator[Vectors]:
    """The passages from one edge on; each batch is made from where it starts alone."""
    base, noise = np.load(work / "base.npy"), np.load(work / "noise.npy", mmap_mode="r")
    edges = sorted({0, *range(REAL, total, BATCH), *(size for size in SIZES if size < total), total})
    for start, end in itertools.pairwise(edges):
        if start < begin:
            continue
        if end <= REAL:
            yield base[start:end]
            continue
        generator = np.random.default_rng([1, start])
        made = base[generator.integers(0, REAL, end - start)]
        made += 0.5 * noise[np.sort(generator.integers(0, DRAWS, end - start))]
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        yield made


class Built:
    """How far the files in a folder are: the exact best ten of each query so far, and what writing them cost."""

    def __init__(self, work: Path) -> None:
        self.path, self.queries = work / "built.npz", np.load(work / "queries.npy")
        self.ids = np.zeros((len(self.queries), K), np.int64)
        self.scores = np.full((len(self.queries), K), -np.inf, np.float32)
        self.seen, self.cpu, self.anonymous, self.tops = 0, 0.0, 0, dict[str, npt.NDArray[np.int64]]()
        if self.path.is_file():
            with np.load(self.path) as kept:
                self.ids, self.scores = kept["ids"], kept["scores"]
                self.seen, self.cpu, self.anonymous = int(kept["seen"]), float(kept["cpu"]), int(kept["anonymous"])
                self.tops = {key: kept[key] for key in kept.files if key.isdigit()}

    def add(self, vectors: Vectors) -> None:
        scores, ids = faiss.knn(self.queries, np.ascontiguousarray(vectors), K, metric=faiss.METRIC_INNER_PRODUCT)
        scores, ids = np.hstack([self.scores, scores]), np.hstack([self.ids, ids + self.seen])
        order = np.argsort(-scores, axis=1, kind="stable")[:, :K]
        self.scores, self.ids = np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)
        self.seen += len(vectors)

    def save(self) -> None:
        state = {"seen": self.seen, "cpu": self.cpu, "anonymous": self.anonymous}
        new = self.path.with_suffix(".new.npz")
        np.savez(new, ids=self.ids, scores=self.scores, **state, **self.tops)
        new.replace(self.path)


def build(work: Path, largest: int, dimension: int) -> None:
    """Write what is missing up to the largest size."""
    # Nobody cuts the power of a benchmark, and a busy disk would keep it waiting for hours.
    os.fsync = lambda handle: None
    built = Built(work)
    if not built.seen:
        VectorFiles.create(work, "vector-scale", dimension)
    files = VectorFiles(work, "vector-scale", dimension, 0, np.load(work / "mean.npy"))
    files.count = built.seen
    say(f"building; {built.seen:,} passages are there")
    with peak_of_anonymous(0.05) as peak:
        for vectors in batches(work, built.seen, largest):
            began = time.process_time()
            files.append(np.arange(files.count, files.count + len(vectors)), vectors)
            built.cpu += time.process_time() - began
            before, built.anonymous = built.seen, max(built.anonymous, peak())
            built.add(vectors)
            files.count = built.seen
            if built.seen in SIZES:
                built.tops[str(built.seen)] = built.ids
            if built.seen in SIZES or built.seen // SAVED > before // SAVED:
                built.save()
                say(f"{built.seen:,} passages, {built.cpu:.0f} s of CPU to write them, {built.anonymous >> 20} MiB")


# -- what a search costs and finds --------------------------------------------------------------------------------


def measure(work: Path) -> list[dict[str, Any]]:
    """Each size that was built, by the code this process has."""
    built, mean = Built(work), np.load(work / "mean.npy")
    rows = []
    for size in sorted(map(int, built.tops)):
        files = VectorFiles(work, "vector-scale", len(mean), size, mean)
        row: dict[str, Any] = {"passages": size, "candidates": files._candidates(K + 32)}
        with one_core():
            row |= searches(files, built.queries, built.tops[str(size)])
            row |= parts(files, built.queries[:50])
        if bit_scan and size >= 2 * bit_scan.SLICE:
            row["all_cores"] = on_all_cores(files, built.queries[:50])
        rows.append(row | {"search_anonymous_mb": memory_of_searching(files, built.queries[:20])})
        say(json.dumps(rows[-1]))
    return rows


def searches(files: VectorFiles, queries: Vectors, wanted: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Recall with its 95% interval over the queries, and the CPU of one."""
    files.search(queries[0], K + 32, None, None)
    cpu, found = [], []
    for query, best in zip(queries, wanted, strict=True):
        began = time.process_time()
        ranking = files.search(query, K + 32, None, None)
        cpu.append(time.process_time() - began)
        found.append(len(np.intersect1d(ranking.rows, best)) / K)
    drawn = np.random.default_rng(0).choice(found, (10_000, len(found))).mean(axis=1)
    interval = [round(float(end), 4) for end in np.quantile(drawn, [0.025, 0.975])]
    row = {"recall@10": round(float(np.mean(found)), 4), "interval": interval}
    return row | {"cpu_ms": milliseconds(cpu), "cpu_mean_ms": 1000 * float(np.mean(cpu))}


def parts(files: VectorFiles, queries: Vectors) -> dict[str, float]:
    """The CPU of each step of a search; nothing where the code has other steps."""
    if not bit_scan:
        return {}
    spent: dict[str, list[float]] = {"scan_ms": [], "nearest_ms": [], "rescore_ms": []}
    for query in queries:
        marks = [time.process_time()]
        asked = files._axes(query)
        found = bit_scan.distances(bit_scan.binarise((asked - files._centre)[None, :]), files.bits)
        marks.append(time.process_time())
        positions = bit_scan.nearest(found, files._candidates(K + 32))
        marks.append(time.process_time())
        files._rescore(asked, positions, K + 32)
        marks.append(time.process_time())
        for step, seconds in zip(spent.values(), np.diff(marks), strict=True):
            step.append(float(seconds))
    return {step: milliseconds(seconds) for step, seconds in spent.items()}


def on_all_cores(files: VectorFiles, queries: Vectors) -> dict[str, float]:
    """One core and all of them in turn: the clock and the CPU of all over those of one, medians over the queries."""
    clock, cpu = [], []
    for query in queries:
        with one_core():
            alone = timed(partial(files.search, query, K + 32, None, None))
        together = timed(partial(files.search, query, K + 32, None, None))
        clock.append(together[0] / alone[0])
        cpu.append(together[1] / alone[1])
    ratios = {"clock_over_one_core": float(np.median(clock)), "cpu_over_one_core": float(np.median(cpu))}
    return {"cores": len(os.sched_getaffinity(0)), **ratios}


def timed(call: Callable[[], object]) -> tuple[float, float]:
    clock, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - cpu


def memory_of_searching(files: VectorFiles, queries: Vectors) -> int:
    with peak_of_anonymous(0.002) as peak:
        for query in queries:
            files.search(query, K + 32, None, None)
        return peak() >> 20


@contextmanager
def one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def peak_of_anonymous(seconds: float) -> Iterator[Callable[[], int]]:
    """Bytes this process held that no file backs, at most, looked at every so often from a thread."""
    most, done = {"bytes": anonymous()}, threading.Event()

    def look() -> None:
        while not done.wait(seconds):
            most["bytes"] = max(most["bytes"], anonymous())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: most["bytes"]
    finally:
        done.set()
        thread.join()


def anonymous() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def milliseconds(seconds: list[float]) -> float:
    return round(1000 * float(np.median(seconds)), 3)


def measure_with(source: Path, work: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--measure", str(work)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return list(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--largest", type=int, choices=SIZES, default=SIZES[-1])
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--old", type=Path, help="another checkout, whose code searches the same files")
    parser.add_argument("--measure", type=Path, help="only search what was built in this folder")
    parser.add_argument("--out", type=Path, default=Path("docs/performance/vector_scale.json"))
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "base.npy").is_file():
        # In a process of its own, so that the texts are none of the building's memory.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
            apart.submit(prepare, options.data, options.work, options.dimension).result()
    build(options.work, options.largest, options.dimension)
    say("searching")
    built = Built(options.work)
    report: dict[str, Any] = {"passages": built.seen, "dimension": options.dimension, "queries": len(built.queries)}
    report |= {"build_cpu_s": round(built.cpu, 1), "build_anonymous_mb": built.anonymous >> 20}
    report["new"] = measure_with(Path(__file__).parents[1] / "src", options.work)
    if options.old:
        report["old"] = measure_with(options.old / "src", options.work)
        for new, old in zip(report["new"], report["old"], strict=True):
            new["cpu_over_old"] = new["cpu_ms"] / old["cpu_ms"]
    options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
