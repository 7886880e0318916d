"""How many candidates the bit scan must pass on: recall@10 of sign bits, raw, centred and rotated, on real spans.

    python benchmarks/bit_scan.py --data FOLDER [--pair PAIR] [--spans 100000] [--out docs/performance]

The engine scans sign bits around the mean and rescores the nearest. This shows what centring buys, whether a rotation
or a float query would buy more, and whether the mean of the first batch will do.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from spans import queries as read_queries
from spans import spans as read_spans

from suwen.encoders.pair import Pair

DEPTHS = (500, 1000, 2000, 4000, 8000)
Matrix = npt.NDArray[np.float32]


def signs(matrix: Matrix) -> Matrix:
    return np.where(matrix > 0, np.float32(1), np.float32(-1))


def recalls(documents: Matrix, queries: Matrix, wanted: npt.NDArray[np.int64]) -> dict[int, float]:
    """The share of the exact top 10 among the first candidates; a product of signs orders as Hamming distance does."""
    found = dict.fromkeys(DEPTHS, 0)
    for start in range(0, len(queries), 50):
        scores = queries[start : start + 50] @ documents.T
        ranked = np.argpartition(-scores, DEPTHS[-1], axis=1)[:, : DEPTHS[-1]]
        order = np.argsort(-np.take_along_axis(scores, ranked, axis=1), axis=1, kind="stable")
        ranked = np.take_along_axis(ranked, order, axis=1)
        for row, top in zip(ranked, wanted[start : start + 50], strict=True):
            for depth in DEPTHS:
                found[depth] += int(np.isin(top, row[:depth]).sum())
    return {depth: round(count / wanted.size, 4) for depth, count in found.items()}


def measure(documents: Matrix, queries: Matrix) -> dict[str, dict[int, float]]:
    wanted = np.concatenate(
        [
            np.argsort(-(queries[start : start + 50] @ documents.T), axis=1)[:, :10]
            for start in range(0, len(queries), 50)
        ]
    )
    mean, early = documents.mean(axis=0), documents[:8192].mean(axis=0)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((documents.shape[1],) * 2))[0].astype(np.float32)
    around, asked = documents - mean, queries - mean
    variants = {
        "raw": (signs(documents), signs(queries)),
        "centred": (signs(around), signs(asked)),
        "centred on the first 8,192": (signs(documents - early), signs(queries - early)),
        "centred and rotated": (signs(around @ rotation), signs(asked @ rotation)),
        "centred, float query": (signs(around), asked),
    }
    return {name: recalls(left, right, wanted) for name, (left, right) in variants.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", type=Path)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("docs/performance"))
    options = parser.parse_args()
    pair = Pair.load(options.pair)
    encoder = pair.encoder(pair.fastest)
    texts, questions = read_spans(options.data, options.spans), read_queries(options.data, 500)
    measured = measure(encoder.encode_documents(texts), encoder.encode_queries(questions))
    report: dict[str, Any] = {
        "pair": pair.name,
        "tier": encoder.name,
        "dimension": pair.space.dimension,
        "spans": len(texts),
        "queries": len(questions),
        "recall@10 by candidates": measured,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "bit_scan.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, row in measured.items():
        print(f"{name:<28}", "  ".join(f"{depth}: {value:.4f}" for depth, value in row.items()))


if __name__ == "__main__":
    main()
