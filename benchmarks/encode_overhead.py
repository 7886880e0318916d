"""What encoding a passage costs in all, beside ONNX Runtime's own time for the same tokens, both as CPU in one thread.

Run: python benchmarks/encode_overhead.py [--tier l6 --passages 200 --rounds 5]

The passages are of the sample collection, cut and put together to about 65 tokens. Each round encodes all of them as
indexing does, and then runs the tier's graph alone on the same tokens; the median over the rounds counts. What a blend
adds (another tier that is mixed in) is part of the first and not of the second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

import suwen
from suwen.corpora.readers import read_documents
from suwen.encoders.pair import Pair
from suwen.encoders.query import OnnxEncoder

TARGET = 1.1
TOKENS = 65


def spent(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def passages(pair: Pair, count: int) -> list[str]:
    """Texts of about as many tokens as a passage of a usual collection has."""
    whole = "".join(document.content for document in read_documents(Path(suwen.__file__).with_name("sample")))
    tokens = pair.count_tokens([whole[:5000]])[0] / 5000
    length = int(TOKENS / tokens)
    return [whole[(start := number * length % (len(whole) - length)) : start + length] for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", default="l6")
    parser.add_argument("--passages", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    pair = Pair.load()
    texts, encoder = passages(pair, given.passages), pair.encoder(given.tier)
    graph = pair._open(given.tier, 1)
    assert isinstance(graph, OnnxEncoder), f"{given.tier} is no graph"
    before = graph._tier.prompts.before("document", None)
    ids = [np.asarray([graph._tokens.ids(before + text)], dtype=np.int64) for text in texts]
    ones = [
        {"input_ids": one, "attention_mask": np.ones_like(one), "token_type_ids": np.zeros_like(one)} for one in ids
    ]
    feeds = [{name: feed[name] for name in graph._inputs} for feed in ones]
    encoder.encode_documents(texts[:5])
    took: list[tuple[float, float]] = []
    for _ in range(given.rounds):
        alone = spent(lambda: [graph._session.run(None, feed) for feed in feeds])
        took.append((spent(lambda: encoder.encode_documents(texts)), alone))
    ratio = median(whole / alone for whole, alone in took)
    each = 1000 * median(alone for _, alone in took) / len(texts)
    told = f"{np.mean([one.size for one in ids]):.0f} tokens a passage, {each:.1f} ms of CPU by the graph alone"
    print(f"{given.tier}: {ratio:.3f} times ONNX Runtime's own CPU ({told}); target {TARGET}: ", end="")
    print("met" if ratio <= TARGET else "MISSED")


if __name__ == "__main__":
    main()
