"""The embedded engine from 10k to 1M passages beside sentence-transformers + faiss exact: ratios of one run.

    python benchmarks/index_scale.py --data FOLDER --work SCRATCH [--largest 1000000] [--out docs/performance]

FOLDER holds public medical texts as .jsonl.gz (see docs/results/performance.md); SCRATCH needs about 12 GB of disk.

1. Recall: real spans, encoded by the fastest tier of the default pair at its own dimension, against exact search.
2. Speed and memory, 768 dimensions, streamed: the real vectors, laid into 768 dimensions by a fixed orthonormal map,
   plus noise of matched covariance. Queries are encoded by a 6 x 384 encoder with 768 outputs and random weights, by
   torch for the peer and by its own export for us; its vectors mean nothing, so both sides search with the real ones.
   One thread on both sides; CPU time, not wall-clock time.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"

import faiss
import numpy as np
import numpy.typing as npt
from spans import queries as read_queries
from spans import spans as read_spans

from suwen.corpora.records import Document, Passage
from suwen.encoders.pair import Pair
from suwen.encoders.query import Encoder
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import EncodedDocument
from suwen.index.recall import recall

WIDTH = 768
BATCH = 8192
Vectors = npt.NDArray[np.float32]


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.0f} s] {text}", flush=True)


def documents(texts: list[str], vectors: Vectors, first: int) -> list[EncodedDocument]:
    made = []
    for offset, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
        id_ = f"d{first + offset}"
        passage = Passage(id_, 0, text, 0, len(text))
        metadata = {"shelf": (first + offset) % 1000}
        made.append(EncodedDocument(Document(id_, text, "", metadata), [passage], vector[None, :], "l6"))
    return made


# -- 1. recall on real spans --------------------------------------------------------------------------------------


def measure_recall(data: Path, work: Path, texts: list[str], questions: list[str]) -> dict[str, Any]:
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


def make_encoder(work: Path, tokenizer: Path) -> tuple[Any, Encoder]:
    """A 6 x 384 encoder with 768 outputs and random weights: torch for the peer, its own export for us."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as parts
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from suwen.training.ship.exporting import export

    torch.set_num_threads(1)
    torch.manual_seed(0)
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), pad_token="[PAD]", unk_token="[UNK]")
    fast.model_max_length = 128
    config = BertConfig(
        vocab_size=len(fast), hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    BertModel(config).save_pretrained(work / "bert")
    fast.save_pretrained(work / "bert")
    transformer = parts.Transformer(str(work / "bert"), max_seq_length=128)
    modules = [transformer, parts.Pooling(384, "mean"), parts.Dense(384, WIDTH), parts.Normalize()]
    peer = SentenceTransformer(modules=modules, device="cpu")
    peer.save(str(work / "peer"))
    export(work / "peer", work / "light", tier="l6")
    return SentenceTransformer(str(work / "peer"), device="cpu"), Pair.load(work / "light").encoder()


def stream(base: Vectors, total: int, seed: int = 0) -> Iterator[Vectors]:
    """Real vectors first, then copies of them with noise of matched covariance: unit length, in batches."""
    generator = np.random.default_rng(seed)
    factor = np.linalg.cholesky(np.cov(base.T) + 1e-7 * np.eye(WIDTH)).astype(np.float32).T
    done = 0
    while done < total:
        count = min(BATCH, total - done)
        if done + count <= len(base):
            made = base[done : done + count]
        else:
            noise = generator.standard_normal((count, WIDTH), dtype=np.float32) @ factor
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
    spent = []
    for argument in arguments:
        started = cpu()
        function(argument)
        spent.append(cpu() - started)
    return float(np.median(spent))


def ask(engine: EmbeddedEngine, encoder: Encoder, question: str, vector: Vectors) -> Any:
    encoder.encode_queries([question])
    with engine.snapshot() as snapshot:
        return snapshot.dense(vector, 10)


def lifted(vectors: Vectors) -> Vectors:
    """The same vectors in 768 dimensions: lengths and angles are kept."""
    full = np.random.default_rng(1).standard_normal((WIDTH, WIDTH))
    return np.asarray(vectors @ np.linalg.qr(full)[0][: vectors.shape[1]], dtype=np.float32)


def memory_of_opening(folder: Path, vectors: Path) -> dict[str, float]:
    """Open and search in a fresh process: what it allocates, and how long opening takes."""
    script = f"""
import time, json, numpy as np
from suwen.index.embedded import EmbeddedEngine
def anonymous():
    return int(next(l for l in open('/proc/self/status') if l.startswith('RssAnon')).split()[1]) * 1024
before = anonymous()
started, cpu = time.perf_counter(), time.process_time()
engine = EmbeddedEngine.open({str(folder)!r})
with engine.snapshot() as snapshot: snapshot.lexical('高血压', 1)
opened, opened_cpu = time.perf_counter() - started, time.process_time() - cpu
queries = np.load({str(vectors)!r})
for query in queries[:20]:
    with engine.snapshot() as snapshot: snapshot.dense(query, 10)
print(json.dumps(dict(anonymous=anonymous(), imports=before, open=opened, open_cpu=opened_cpu)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def measure_scale(work: Path, texts: list[str], questions: list[str], largest: int) -> list[dict[str, Any]]:
    pair = Pair.load()
    peer, encoder = make_encoder(work, pair.path / pair.manifest.tiers[pair.fastest].path / "tokenizer.json")
    real = pair.encoder(pair.fastest)
    base, asked = lifted(real.encode_documents(texts[:8192])), lifted(real.encode_queries(questions[:50]))
    np.save(work / "queries.npy", asked)
    matrix = np.lib.format.open_memmap(work / "vectors.npy", mode="w+", dtype=np.float32, shape=(largest, WIDTH))
    engine = EmbeddedEngine.create(work / "scale", space="sp-scale", dimension=WIDTH)
    rows: list[dict[str, Any]] = []
    built_cpu = built = 0.0
    done = 0
    checkpoints = [size for size in (10_000, 100_000, 300_000, 1_000_000) if size <= largest]
    for vectors in stream(base, largest):
        for part in np.split(vectors, [size - done for size in checkpoints if done < size < done + len(vectors)]):
            matrix[done : done + len(part)] = part
            batch = documents([texts[i % len(texts)] for i in range(done, done + len(part))], part, done)
            started, started_cpu = time.perf_counter(), cpu()
            engine.add(batch)
            built, built_cpu = built + time.perf_counter() - started, built_cpu + cpu() - started_cpu
            done += len(part)
            if done in checkpoints:
                row = {"passages": done, "build_cpu": built_cpu, "build": built}
                row["build_anonymous_mb"] = anonymous() / 2**20
                rows.append(row | at_size(work, engine, peer, encoder, matrix[:done], questions[:50], asked))
                say(json.dumps(rows[-1]))
    rows[-1] |= upkeep_cost(engine, base, texts)
    engine.close()
    return rows


def at_size(
    work: Path,
    engine: EmbeddedEngine,
    peer: Any,
    encoder: Encoder,
    matrix: Vectors,
    questions: list[str],
    asked: Vectors,
) -> dict[str, Any]:
    def ours_of(number: int) -> Any:
        return ask(engine, encoder, questions[number], asked[number])

    def theirs_of(number: int) -> Any:
        peer.encode([questions[number]], normalize_embeddings=True, show_progress_bar=False)
        return faiss.knn(asked[number : number + 1], matrix, 10, metric=faiss.METRIC_INNER_PRODUCT)

    few = list(range(len(asked) if len(matrix) <= 100_000 else 12))
    for number in (0, 1, 2):
        ours_of(number)
    theirs_of(0)
    ours, theirs = median_cpu(ours_of, list(range(len(asked)))), median_cpu(theirs_of, few)
    encode = median_cpu(lambda question: encoder.encode_queries([question]), questions)
    _, exact = faiss.knn(asked, matrix, 10, metric=faiss.METRIC_INNER_PRODUCT)
    hits = 0
    for vector, wanted in zip(asked, exact, strict=True):
        with engine.snapshot() as snapshot:
            found = snapshot.fetch(snapshot.dense(vector, 10).rows.tolist())
        hits += len({int(item.passage.document_id[1:]) for item in found} & set(wanted.tolist()))
    opened = memory_of_opening(engine.folder, work / "queries.npy")
    return {
        "ours_cpu_ms": 1000 * ours,
        "ours_encode_ms": 1000 * encode,
        "peer_cpu_ms": 1000 * theirs,
        "cpu_ratio": ours / theirs,
        "recall@10": hits / (10 * len(asked)),
        "anonymous_mb": (opened["anonymous"] - opened["imports"]) / 2**20,
        "anonymous_ratio": (opened["anonymous"] - opened["imports"]) / matrix.nbytes,
        "anonymous_with_imports_ratio": opened["anonymous"] / matrix.nbytes,
        "open_s": opened["open"],
        "disk_mb": sum(f.stat().st_size for f in engine.folder.rglob("*") if f.is_file()) / 2**20,
    }


def upkeep_cost(engine: EmbeddedEngine, base: Vectors, texts: list[str]) -> dict[str, Any]:
    say("adding 1,000 passages, then rebuilding")
    fresh = documents(texts[:1000], base[:1000], 10_000_000)
    started, started_cpu = time.perf_counter(), cpu()
    engine.add(fresh)
    add, add_cpu = time.perf_counter() - started, cpu() - started_cpu
    started, started_cpu = time.perf_counter(), cpu()
    engine.rebuild()
    rebuild, rebuild_cpu = time.perf_counter() - started, cpu() - started_cpu
    return {
        "add_1000_s": add,
        "add_1000_cpu": add_cpu,
        "rebuild_s": rebuild,
        "rebuild_cpu": rebuild_cpu,
        "add_over_rebuild_cpu": add_cpu / rebuild_cpu,
        "add_over_rebuild": add / rebuild,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--largest", type=int, default=1_000_000, help="passages; 0 measures recall alone")
    parser.add_argument("--spans", type=int, default=150_000)
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    say("reading spans")
    texts, questions = read_spans(options.data, options.spans), read_queries(options.data, 300)
    say(f"{len(texts)} spans, {len(questions)} queries; recall on them")
    report: dict[str, Any] = {"recall": measure_recall(options.data, options.work, texts, questions)}
    say(json.dumps(report["recall"]))
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.largest:
        (options.out / "recall.json").write_text(json.dumps(report["recall"], indent=2) + "\n", encoding="utf-8")
        return
    report["scale"] = measure_scale(options.work, texts, questions, options.largest)
    last = report["scale"][-1]
    report["open_over_build"] = last["open_s"] / last["build"]
    report["minutes"] = (time.monotonic() - STARTED) / 60
    report["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (options.out / "index_scale.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    say(json.dumps({key: value for key, value in report.items() if key != "scale"} | last))


STARTED = time.monotonic()
if __name__ == "__main__":
    main()
