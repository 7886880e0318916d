"""Keep the prompts of tools/write_texts.py that are about texts whose order of documents a query tier gets wrong.

A text is wrong by as much as the ten documents nearest to the document encoder's vector of it are not among the ten
nearest to the tier's. More texts like those are what the tier can learn most from. No label is looked at, and nothing
that is held out is among prompts or documents. Needs the ``train`` extra and, for many prompts, a GPU. Example::

    python tools/write_texts.py prompts training-data prompts.jsonl.gz
    python tools/wrong_orders.py prompts.jsonl.gz wrong.jsonl.gz --data training-data --base base.gguf --keep 0.5
    python tools/write_texts.py write wrong.jsonl.gz written.jsonl.gz --model base.gguf --seconds 300 --times 3
"""

from __future__ import annotations

import argparse
import json
import logging
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from suwen.corpora.files import open_text
from suwen.corpora.training_rows import read_training_rows
from suwen.durable import replacing_text
from suwen.encoders.cores import cores
from suwen.encoders.pair import Pair
from suwen.encoders.who_encodes import load_document_encoder
from suwen.training.set_aside import is_set_aside

log = logging.getLogger("wrong-orders")
Matrix = np.ndarray[Any, np.dtype[np.float32]]
_DEPTH = 10
#: Texts whose scores are in memory at once.
_AT_ONCE = 1024


def wrong_by(taught: Matrix, own: Matrix, documents: Matrix) -> Matrix:
    """For each text, the share of the ten documents nearest to its first vector that its second one does not find.

    >>> documents = np.eye(40, dtype=np.float32)
    >>> falling = np.linspace(1, 0, 40, dtype=np.float32)[None]
    >>> wrong_by(falling, falling, documents).tolist(), wrong_by(falling, falling[:, ::-1], documents).tolist()
    ([0.0], [1.0])
    """
    found = []
    for start in range(0, len(taught), _AT_ONCE):
        nearest = (_nearest(vectors[start : start + _AT_ONCE] @ documents.T) for vectors in (taught, own))
        found += [1 - len(np.intersect1d(*pair)) / _DEPTH for pair in zip(*nearest, strict=True)]
    return np.asarray(found, np.float32)


def _nearest(scores: Matrix) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.argpartition(-scores, _DEPTH, axis=1)[:, :_DEPTH]


def chosen(prompts: Sequence[dict[str, Any]], wrong: Matrix, keep: float) -> list[dict[str, Any]]:
    """The share of each kind of prompts that is most wrong: the kinds stay as they were mixed."""
    kept: list[dict[str, Any]] = []
    for kind in dict.fromkeys(prompt["kind"] for prompt in prompts):
        places = [place for place, prompt in enumerate(prompts) if prompt["kind"] == kind]
        places.sort(key=lambda place: (-wrong[place], place))
        kept += [prompts[place] for place in places[: max(1, round(keep * len(places)))]]
    random.Random(0).shuffle(kept)
    return kept


def answers(data: Path, most: int) -> list[str]:
    """Documents of the rows, the same number of every source where there are as many; none of unlabelled pairs."""
    files = [file for file in sorted((data / "rows").glob("*.jsonl.gz")) if not file.name.startswith("unsup-")]
    found: dict[str, None] = {}
    for file in files:
        texts = list(dict.fromkeys(row.pos[0] for row in read_training_rows(file)))
        random.Random(0).shuffle(texts)
        found |= dict.fromkeys(texts[: -(-most // len(files))])
    return list(found)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="the training data that the prompts are of")
    parser.add_argument("--pair", type=Path, help="the pair [the default one]")
    parser.add_argument("--tier", help="its tier [the default one]")
    parser.add_argument("--base", help="the base of the pair's adapter")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--keep", type=float, default=0.5, help="the share of the prompts that is kept")
    parser.add_argument("--limit", type=int, help="the first so many prompts")
    parser.add_argument("--set-aside", type=float, default=0.0, help="data.set_aside of the recipe: none of those")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    pair = Pair.load(asked.pair)
    with open_text(asked.prompts) as lines:
        read = [json.loads(line) for line in lines][: asked.limit]
    prompts = [prompt for prompt in read if not is_set_aside(prompt["x"], asked.set_aside)]
    encoder = load_document_encoder(pair, base=asked.base).alone
    tier = pair.encoder(asked.tier)
    texts = [prompt["x"] for prompt in prompts]
    log.info("%d prompts; encoding", len(texts))
    documents, taught = encoder.encode_documents(answers(asked.data, asked.documents)), encoder.encode_queries(texts)
    with ThreadPoolExecutor(cores()) as pool:  # an encoder may be used from several threads, and runs queries alone
        own = np.concatenate(list(pool.map(lambda text: tier.encode_queries([text]), texts)))
    wrong = wrong_by(taught, own, documents)
    kept = chosen(prompts, wrong, asked.keep)
    with replacing_text(asked.out) as stream:
        stream.writelines(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in kept)
    log.info("kept %d of them; the mean of all is %.3f wrong", len(kept), float(wrong.mean()))


if __name__ == "__main__":
    main()
