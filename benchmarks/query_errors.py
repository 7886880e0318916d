"""What a query encoder's distance to the document encoder costs, and how much of it lies where documents differ.

Run: python benchmarks/query_errors.py DEV VECTORS [--tier l6 --pair FOLDER | --queries FOLDER]

DEV holds collections of tools/make_dev_collections.py, VECTORS the document encoder's vectors of their queries and
documents (the folder `measure` of a vectors stage). Queries are encoded by a tier of the pair, or read from FOLDER
(<task>-queries.npy). Each task is searched five times (nDCG@10 x 100):

  document encoder   with the document encoder's own queries
  tier               with the tier's
  random             with the document encoder's, moved as far as the tier's are, in random directions
  others'            the same, in the directions in which the tier is wrong about other queries
  half               half way between the tier and the document encoder

Where `random` is far ahead of `tier`, the tier's errors are not small noise: they lie along the directions that tell
documents apart. Cosine is then a poor guide, and an order of documents is what is left to learn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suwen.encoders.pair import Pair
from suwen.encoders.static import unit
from suwen.training.development_measure import Measured, load_measures, ndcg

_DEFAULT = Path(__file__).parents[1] / "src" / "suwen" / "models" / "default"
Matrix = np.ndarray[Any, np.dtype[np.float32]]


def across(directions: Matrix, from_: Matrix) -> Matrix:
    """Directions at right angles to what they start from."""
    return unit(directions - (directions * from_).sum(axis=1, keepdims=True) * from_)


def moved(taught: Matrix, cosine: Matrix, directions: Matrix) -> Matrix:
    """Vectors of a given cosine to where they start, in given directions."""
    found: Matrix = cosine * taught + np.sqrt(1 - np.minimum(cosine, 1.0) ** 2) * across(directions, taught)
    return found


def measure(task: Measured, vectors: Path, encode: Callable[[Measured], Matrix]) -> dict[str, float]:
    """The five searches of one task, and the mean cosine."""
    taught, documents = (
        unit(np.load(vectors / f"{task.name}-{side}.npy", allow_pickle=False).astype(np.float32))
        for side in ("queries", "documents")
    )
    own = unit(encode(task).astype(np.float32))
    if own.shape != taught.shape:
        raise SystemExit(f"{task.name}: {own.shape} vectors of queries beside {taught.shape}: take those of one space")
    draw = np.random.default_rng(0)
    cosine = (own * taught).sum(axis=1, keepdims=True)
    ways = {
        "document encoder": taught,
        "tier": own,
        "random": moved(taught, cosine, draw.normal(size=own.shape).astype(np.float32)),
        "others'": moved(taught, cosine, across(own, taught)[draw.permutation(len(own))]),
        "half": unit(own + taught),
    }
    return {name: ndcg(task, queries, documents) for name, queries in ways.items()} | {"cosine": float(cosine.mean())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each task that has vectors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dev", type=Path, help="a folder of tools/make_dev_collections.py")
    parser.add_argument("vectors", type=Path, help="<task>-queries.npy and <task>-documents.npy")
    parser.add_argument("--pair", type=Path, default=_DEFAULT, help="the pair; the default one")
    parser.add_argument("--tier", help="of the pair; its default one")
    parser.add_argument("--queries", type=Path, help="vectors in place of a tier: <task>-queries.npy")
    options = parser.parse_args(arguments)
    encoder = None if options.queries else Pair.load(options.pair).encoder(options.tier)

    def encode(task: Measured) -> Matrix:
        if encoder is not None:
            return encoder.encode_queries(task.data.queries)
        found: Matrix = np.load(options.queries / f"{task.name}-queries.npy", allow_pickle=False)
        return found

    tasks = [
        task
        for task in load_measures(options.dev / "dev.toml")
        if (options.vectors / f"{task.name}-documents.npy").is_file()
    ]
    if not tasks:
        raise SystemExit(f"{options.vectors} has no <task>-documents.npy of the tasks of {options.dev}")
    for number, task in enumerate(tasks):
        found = measure(task, options.vectors, encode)
        if not number:
            print(f"| task | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
        cells = [f"{value:.1f}" if name != "cosine" else f"{value:.3f}" for name, value in found.items()]
        print(f"| {task.name} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
