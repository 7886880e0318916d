"""Spaces of inner product: which use of sign bits finds the largest products, where vectors differ in length.

    python benchmarks/inner_product_scan.py [--data FOLDER] [--spans 100000] [--decoder MODEL] [--out docs/performance]

Sign bits tell directions alone. Compared are: the scan that serves cosines; its distances times each vector's length;
the length of the vector without the mean, times what the signs of the bare query tell of the cosine; what the engine
does (the same of what is across the mean, in other axes, with what is along the mean as it is); and an extra coordinate
that makes all lengths equal, spread over the bits by a rotation. The vectors are random clusters with log-normal
lengths, in some of which a few dimensions hold nearly all of the mean or of the variance; given real texts, the
``static`` tier of the default pair, not normalised; and, given a decoder too (a folder or a GGUF file), its last states
of 40,000 tokens of those texts. Then the same of cosines, and what the scan itself costs beside that for cosines.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from spans import queries as read_queries
from spans import spans as read_spans

from suwen.encoders.pair import Pair
from suwen.encoders.static import StaticEncoder
from suwen.index.engine import Similarity
from suwen.index.vectors import RESCORED_BYTES, VectorFiles

Matrix = npt.NDArray[np.float32]
_SCRATCH = tempfile.TemporaryDirectory()


def clustered(count: int, width: int, spread: float, asked: int = 100) -> tuple[Matrix, Matrix]:
    """Directions in clusters of 60 around a common one, with log-normal lengths, and queries near some of them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((-(-count // 60), width)) + rng.standard_normal(width)
    drawn = np.repeat(centres, 60, axis=0)[:count] + 0.7 * rng.standard_normal((count, width))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    near = drawn[rng.integers(0, count, asked)] + 0.5 / np.sqrt(width) * rng.standard_normal((asked, width))
    return (drawn * np.exp(spread * rng.standard_normal((count, 1)))).astype(np.float32), near.astype(np.float32)


def uneven(scale: float, mean: float) -> tuple[Matrix, Matrix]:
    """Clusters of which four dimensions have more variance than others, and a mean."""
    documents, queries = clustered(40_000, 512, 0.1)
    deviation = documents.std()
    for each in (documents, queries):
        each[:, :4] = scale * each[:, :4] + mean * deviation
    return documents, queries


def states(folder: Path, model: Path, count: int = 40_000, length: int = 64) -> tuple[Matrix, Matrix]:
    """A decoder's last states of tokens of real texts, and of 200 tokens of others."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    file = {"gguf_file": model.name} if model.is_file() else {}
    place = str(model.parent if file else model)
    tokenizer = AutoTokenizer.from_pretrained(place, **file)
    decoder = AutoModel.from_pretrained(place, dtype=torch.float32, **file).eval()
    found: list[Matrix] = []
    with torch.no_grad():
        for text in read_spans(folder, count):
            ids = tokenizer(text, return_tensors="pt").input_ids[:, :length]
            found.append(decoder(ids).last_hidden_state[0].numpy())
            if sum(map(len, found)) >= count + 4000:
                break
    every = np.concatenate(found).astype(np.float32)
    return every[:count], every[count : count + 4000 : 20]


def lookup(folder: Path, count: int) -> tuple[Matrix, Matrix]:
    """Real texts by a table of tokens whose means keep their lengths."""
    pair = Pair.load()
    tier = pair.manifest.tiers["static"]
    encoder = StaticEncoder(pair.path / tier.path, tier, name="static", dimension=pair.space.dimension, normalise=False)
    return encoder.encode_documents(read_spans(folder, count)), encoder.encode_queries(read_queries(folder, 200))


def distances(query: Matrix, documents: npt.NDArray[np.uint8]) -> Matrix:
    code, out = np.packbits(query > 0)[None, :], np.empty(len(documents), np.int32)
    pointers = (faiss.swig_ptr(array) for array in (code, documents))
    faiss.hammings(*pointers, 1, len(documents), documents.shape[1], faiss.swig_ptr(out))
    return out.astype(np.float32)


def variants(documents: Matrix) -> dict[str, Callable[[Matrix], Matrix]]:
    """By name: a query's estimate of every product, up to what all of them share."""
    width = documents.shape[1]
    mean, lengths = documents.mean(axis=0), np.linalg.norm(documents, axis=1)
    around = documents - mean
    bits, apart = np.packbits(around > 0, axis=1), np.linalg.norm(around, axis=1)
    share = documents / lengths.max()
    filled = np.c_[share, np.sqrt(np.maximum(0, 1 - (share**2).sum(axis=1)))].astype(np.float32)
    centre = filled.mean(axis=0)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((width + 1,) * 2))[0].astype(np.float32)
    turned = np.packbits((filled - centre) @ turn > 0, axis=1)

    def extra(query: Matrix) -> Matrix:
        asked = np.append(query / np.linalg.norm(query), np.float32(0)).astype(np.float32)
        return -distances((asked - centre) @ turn, turned)

    files = files_of(documents, "dot")

    def engine(query: Matrix) -> Matrix:
        return files._estimates(files._axes(query), files.lengths)

    return {
        "as for cosines": lambda query: -distances(query - mean, bits),
        "times the length": lambda query: lengths * (width / 2 - distances(query - mean, bits)),
        "times the length without the mean": lambda query: apart * (width / 2 - distances(query, bits)),
        "the engine's": engine,
        "an extra coordinate, rotated": extra,
    }


def recalls(documents: Matrix, queries: Matrix) -> dict[str, Any]:
    """The share of the exact top 10 among as many candidates as the engine rescores, and among half of them."""
    depth = RESCORED_BYTES // documents.shape[1]
    exact = [np.argpartition(-(documents @ query), 10)[:10] for query in queries]
    measured: dict[str, Any] = {}
    for name, estimate in variants(documents).items():
        found = {depth // 2: 0, depth: 0}
        for query, top in zip(queries, exact, strict=True):
            estimates = estimate(query)
            for count in found:
                found[count] += int(np.isin(top, np.argpartition(-estimates, count)[:count]).sum())
        measured[name] = {str(count): round(hits / (10 * len(queries)), 4) for count, hits in found.items()}
    return measured


def files_of(documents: Matrix, similarity: Similarity) -> VectorFiles:
    """Vector files of these; their folder goes with this process."""
    folder = Path(tempfile.mkdtemp(dir=_SCRATCH.name))
    VectorFiles.create(folder, "i", documents.shape[1], similarity)
    made = VectorFiles(folder, "i", documents.shape[1], 0, documents.mean(axis=0), similarity)
    made.append(np.arange(len(documents)), documents)
    return VectorFiles(folder, "i", documents.shape[1], len(documents), made.mean, similarity)


def found(documents: Matrix, queries: Matrix, similarity: Similarity) -> float:
    """The share of the exact top 10 among 42 hits of a search of the files."""
    if similarity == "cosine":
        documents, queries = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (documents, queries))
    files, hits = files_of(documents, similarity), 0
    for query in queries:
        exact = np.argpartition(-(documents @ query), 10)[:10]
        hits += int(np.isin(exact, files.search(query, 42, None, None).rows).sum())
    return round(hits / (10 * len(queries)), 4)


def cost(documents: Matrix, queries: Matrix, repeats: int = 5) -> float:
    """CPU time of a search of the vector files by inner product, over that by cosine: the middle of several rounds."""
    files = [files_of(documents, similarity) for similarity in ("cosine", "dot")]
    ratios = []
    for _ in range(repeats):
        spent = []
        for each in files:
            begun = time.process_time()
            for query in queries[:50]:
                each.search(query, 42, None, None)
            spent.append(time.process_time() - begun)
        ratios.append(spent[1] / spent[0])
    return round(float(np.median(ratios)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--decoder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    options = parser.parse_args()
    report: dict[str, Any] = {}
    sets: dict[str, Callable[[], tuple[Matrix, Matrix]]] = {
        f"clusters, log-normal {spread}": lambda spread=spread: clustered(60_000, 256, spread)
        for spread in (0.1, 0.3, 0.6, 1.0)
    }
    sets |= {
        f"uneven, variance {scale} and mean {mean}": lambda scale=scale, mean=mean: uneven(scale, mean)
        for scale, mean in ((15, 0), (1, 60), (15, 60))
    }
    if options.data and options.decoder:
        sets["states of a decoder"] = lambda: states(options.data, options.decoder)
    if options.data:
        sets["static tier, not normalised"] = lambda: lookup(options.data, options.spans)
    for name, make in sets.items():
        documents, queries = make()
        spread = float(np.log(np.linalg.norm(documents, axis=1)).std())
        report[name] = {"vectors": len(documents), "dimension": documents.shape[1], "spread": round(spread, 3)}
        report[name] |= {"recall@10 by candidates": recalls(documents, queries)}
        report[name] |= {f"recall@10 by {each}": found(documents, queries, each) for each in ("dot", "cosine")}
        report[name] |= {"CPU of a search beside cosine's": cost(documents, queries)}
        print(name, json.dumps(report[name], indent=1))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "inner_product_scan.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
