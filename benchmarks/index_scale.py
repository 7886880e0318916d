"""The embedded engine from 10k to 1M passages beside sentence-transformers + faiss exact: ratios of one run.

    python benchmarks/index_scale.py --data FOLDER --work SCRATCH [--largest 1000000] [--out docs/performance]

FOLDER holds public medical texts as .jsonl.gz (see docs/results/performance.md); SCRATCH needs about 8 GB of disk.

1. Recall: real spans, encoded by the fastest tier of the default pair, against exact search.
2. Speed and memory, streamed: the first of these vectors, then copies of them with noise of matched covariance, under
   the real texts. Queries are encoded by each tier of the default pair: by suwen, and by sentence-transformers with the
   same weights in fp32; then both sides search with suwen's vector. One thread on both sides; CPU time, not
   wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"

import faiss
import numpy as np
import numpy.typing as npt
from spans import queries as read_queries
from spans import spans as read_spans

from suwen.corpora.records import Document, Passage
from suwen.encoders.pair import Pair
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import EncodedDocument
from suwen.index.recall import recall

BATCH = 8192
SIZES = (10_000, 100_000, 300_000, 1_000_000)
Vectors = npt.NDArray[np.float32]


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.0f} s] {text}", flush=True)


def documents(texts: list[str], vectors: Vectors, first: int) -> list[EncodedDocument]:
    made = []
    for offset, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
        id_ = f"d{first + offset}"
        passage = Passage(id_, 0, text, 0, len(text))
        metadata = {"shelf": (first + offset) % 1000}
        made.append(EncodedDocument(Document(id_, text, "", metadata), [passage], vector[None, :], "static"))
    return made


# -- 1. recall on real spans --------------------------------------------------------------------------------------


def measure_recall(work: Path, texts: list[str], questions: list[str]) -> dict[str, Any]:
    pair = Pair.load()
    encoder = pair.encoder(pair.fastest)
    vectors = encoder.encode_documents(texts)
    asked = encoder.encode_queries(questions)
    engine = EmbeddedEngine.create(work / "recall", space=pair.space.id, dimension=pair.space.dimension)
    for start in range(0, len(texts), BATCH):
        part = slice(start, start + BATCH)
        engine.add(documents(texts[part], vectors[part], start))
    with engine.snapshot() as snapshot:
        grown = recall(snapshot, asked, 10)
    engine.rebuild()
    with engine.snapshot() as snapshot:
        rebuilt = recall(snapshot, asked, 10)
    engine.close()
    return {
        "spans": len(texts),
        "queries": len(questions),
        "tier": encoder.name,
        "pair": pair.name,
        "dimension": pair.space.dimension,
        "recall@10, grown batch by batch": round(grown, 4),
        "recall@10, after rebuild": round(rebuilt, 4),
    }


# -- 2. speed and memory ------------------------------------------------------------------------------------------


class Tier(NamedTuple):
    """A tier of the default pair and the same weights at the peer's: both turn one question into a vector."""

    name: str
    ours: Callable[[str], Vectors]
    theirs: Callable[[str], Vectors]


def tiers(pair: Pair, questions: list[str]) -> list[Tier]:
    """Each tier beside its peer, which is checked to give the same vectors but for int8 and what a tier blends in."""
    import torch
    from serve_throughput import peer_model
    from torch_of_tier import torch_of_tier

    torch.set_num_threads(1)
    table, made = peer_model(pair), []
    for name, tier in pair.manifest.tiers.items():
        encoder = pair.encoder(name)
        if tier.kind == "static":
            made.append(Tier(name, one(encoder.encode_queries), one(lambda texts: table(texts, 0))))
            least = 0.9999
        else:
            model = torch_of_tier(pair, name)
            encode = partial(model.encode, prompt_name="query", normalize_embeddings=True, show_progress_bar=False)
            made.append(Tier(name, one(encoder.encode_queries), one(encode)))
            least = 0.9
        near = [float(made[-1].ours(question) @ made[-1].theirs(question)) for question in questions[:20]]
        assert np.mean(near) > least, f"the peer's weights are not those of {name}: {np.mean(near)}"
    return made


def one(encode: Callable[[list[str]], Vectors]) -> Callable[[str], Vectors]:
    return lambda text: encode([text])[0]


def stream(base: Vectors, total: int, seed: int = 0) -> Iterator[Vectors]:
    """Real vectors first, then copies of them with noise of matched covariance: unit length, in batches."""
    generator = np.random.default_rng(seed)
    width = base.shape[1]
    factor = np.linalg.cholesky(np.cov(base.T) + 1e-7 * np.eye(width)).astype(np.float32).T
    done = 0
    while done < total:
        count = min(BATCH, total - done)
        if done + count <= len(base):
            made = base[done : done + count]
        else:
            noise = generator.standard_normal((count, width), dtype=np.float32) @ factor
            made = base[generator.integers(0, len(base), count)] + 0.5 * noise
            made /= np.linalg.norm(made, axis=1, keepdims=True)
        yield made.astype(np.float32)
        done += count


def anonymous() -> int:
    """Bytes this process holds that no file backs."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def cpu() -> float:
    return time.process_time()


def median_cpu(function: Any, arguments: list[Any]) -> float:
    """The median over the arguments, the least of three calls each: other processes empty a core's caches."""
    spent = []
    for argument in arguments:
        calls = []
        for _ in range(3):
            started = cpu()
            function(argument)
            calls.append(cpu() - started)
        spent.append(min(calls))
    return float(np.median(spent))


def ask(engine: EmbeddedEngine, vector: Vectors) -> Any:
    with engine.snapshot() as snapshot:
        return snapshot.dense(vector, 10)


def memory_of_opening(folder: Path, vectors: Path) -> dict[str, float]:
    """Open and search in a fresh process: what it allocates, and what opening costs."""
    script = f"""
import time, json, numpy as np
from suwen.index.embedded import EmbeddedEngine
def anonymous():
    return int(next(l for l in open('/proc/self/status') if l.startswith('RssAnon')).split()[1]) * 1024
before = anonymous()
cpu = time.process_time()
engine = EmbeddedEngine.open({str(folder)!r})
with engine.snapshot() as snapshot: snapshot.lexical('高血压', 1)
opened = time.process_time() - cpu
queries = np.load({str(vectors)!r})
for query in queries[:20]:
    with engine.snapshot() as snapshot: snapshot.dense(query, 10)
print(json.dumps(dict(anonymous=anonymous(), imports=before, open_cpu=opened)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def measure_scale(options: argparse.Namespace, report: dict[str, Any], texts: list[str], questions: list[str]) -> None:
    """Put a row into the report for each size, and write it."""
    pair, work, largest = Pair.load(), options.work, options.largest
    sides, base = tiers(pair, questions), pair.encoder(pair.fastest).encode_documents(texts[:8192])
    asked = {side.name: np.stack([side.ours(question) for question in questions]) for side in sides}
    np.save(work / "queries.npy", asked[pair.default_tier])
    matrix = np.lib.format.open_memmap(
        work / "vectors.npy", mode="w+", dtype=np.float32, shape=(largest, base.shape[1])
    )
    engine = EmbeddedEngine.create(work / "scale", space="sp-scale", dimension=base.shape[1])
    built, done = 0.0, 0
    checkpoints = [size for size in SIZES if size <= largest]
    for vectors in stream(base, largest):
        for part in np.split(vectors, [size - done for size in checkpoints if done < size < done + len(vectors)]):
            matrix[done : done + len(part)] = part
            batch = documents([texts[i % len(texts)] for i in range(done, done + len(part))], part, done)
            started = cpu()
            engine.add(batch)
            built += cpu() - started
            done += len(part)
            if done in checkpoints:
                row = {"passages": done, "build_cpu": built, "build_anonymous_mb": anonymous() / 2**20}
                row |= {side.name: beside(engine, side, matrix[:done], questions, asked[side.name]) for side in sides}
                report["scale"].append(row | as_a_whole(work, engine, matrix[:done]))
                write(options.out / "index_scale.json", report)
    report["scale"][-1] |= upkeep_cost(engine, base, texts)
    engine.close()


def beside(
    engine: EmbeddedEngine, side: Tier, matrix: Vectors, questions: list[str], asked: Vectors
) -> dict[str, float]:
    """One query by a tier, encoded and searched by both; and what ours misses of the exact top 10."""

    def ours_of(number: int) -> Any:
        side.ours(questions[number])
        return ask(engine, asked[number])

    def theirs_of(number: int) -> Any:
        side.theirs(questions[number])
        return faiss.knn(asked[number : number + 1], matrix, 10, metric=faiss.METRIC_INNER_PRODUCT)

    few = list(range(50 if len(matrix) <= 100_000 else 12))  # the same for both: queries differ in length
    for number in (0, 1, 2):
        ours_of(number)
    theirs_of(0)
    ours, theirs = median_cpu(ours_of, few), median_cpu(theirs_of, few)
    encode, encode_theirs = (median_cpu(encode, questions[: len(few)]) for encode in (side.ours, side.theirs))
    return {
        "ours_cpu_ms": 1000 * ours,
        "ours_encode_ms": 1000 * encode,
        "peer_cpu_ms": 1000 * theirs,
        "peer_encode_ms": 1000 * encode_theirs,
        "cpu_ratio": ours / theirs,
        "recall@10": recall_beside(engine, matrix, asked),
    }


def recall_beside(engine: EmbeddedEngine, matrix: Vectors, asked: Vectors) -> float:
    _, exact = faiss.knn(asked, matrix, 10, metric=faiss.METRIC_INNER_PRODUCT)
    hits = 0
    for vector, wanted in zip(asked, exact, strict=True):
        with engine.snapshot() as snapshot:
            found = snapshot.fetch(snapshot.dense(vector, 10).rows.tolist())
        hits += len({int(item.passage.document_id[1:]) for item in found} & set(wanted.tolist()))
    return round(hits / (10 * len(asked)), 4)


def as_a_whole(work: Path, engine: EmbeddedEngine, matrix: Vectors) -> dict[str, float]:
    """Memory, opening and disk, whatever the query."""
    opened = memory_of_opening(engine.folder, work / "queries.npy")
    return {
        "anonymous_mb": (opened["anonymous"] - opened["imports"]) / 2**20,
        "anonymous_ratio": (opened["anonymous"] - opened["imports"]) / matrix.nbytes,
        "anonymous_with_imports_ratio": opened["anonymous"] / matrix.nbytes,
        "matrix_mb": matrix.nbytes / 2**20,
        "open_cpu": opened["open_cpu"],
        "disk_mb": sum(f.stat().st_size for f in engine.folder.rglob("*") if f.is_file()) / 2**20,
    }


def write(file: Path, report: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    say(json.dumps(report.get("scale", [report])[-1]))


def upkeep_cost(engine: EmbeddedEngine, base: Vectors, texts: list[str]) -> dict[str, Any]:
    say("adding 1,000 passages, then rebuilding")
    fresh = documents(texts[:1000], base[:1000], 10_000_000)
    started = cpu()
    engine.add(fresh)
    add = cpu() - started
    started = cpu()
    engine.rebuild()
    rebuild = cpu() - started
    return {"add_1000_cpu": add, "rebuild_cpu": rebuild, "add_over_rebuild_cpu": add / rebuild}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--largest", type=int, choices=SIZES, default=SIZES[-1])
    parser.add_argument("--spans", type=int, default=150_000)
    parser.add_argument("--part", choices=("recall", "scale", "both"), default="both")
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    say("reading spans")
    texts, questions = read_spans(options.data, options.spans), read_queries(options.data, 300)
    say(f"{len(texts)} spans, {len(questions)} queries")
    if options.part != "scale":
        write(options.out / "recall.json", measure_recall(options.work, texts, questions))
    if options.part == "recall":
        return
    report: dict[str, Any] = {"scale": []}
    measure_scale(options, report, texts, questions)
    report["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    write(options.out / "index_scale.json", report)


STARTED = time.monotonic()
if __name__ == "__main__":
    main()
