"""BMRetriever's Table 11: documents per second and the time of a query, for backbones in the shapes of its four sizes.

Run: python benchmarks/bmretriever_speed.py [--sizes 410M,1B,2B,7B --documents 2000 --tokens 32768 --out FILE.json]
     python benchmarks/bmretriever_speed.py --tiny   (a CPU, in seconds: does it run)

Weights are random, in the exact shapes of Pythia 410M and 1B, Gemma 2B and Mistral 7B, in bf16 on a GPU; the vocabulary
is cut to 4,096 rows. Documents have the lengths of document_throughput.py (at most 512 tokens, the paper's limit; how
long its documents are it does not say) and run in batches of about one length with padding, as these architectures do
in suwen. A query is 32 tokens, alone, until its vector is on the host; the paper does not say whether its latency holds
the search. Tokenising is left out.

Speeds are compared as ratios to 410M within this run, beside the paper's: of another GPU, and of unknown lengths.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from document_throughput import Encoder, seconds
from encoder_shapes import VOCABULARY, draw

from suwen.bench.published_tables import published
from suwen.durable import write_json
from suwen.encoders.side import cast

QUERY, ROUNDS = 32, 20
#: Architecture, hidden size, layers, heads, heads of keys, width of a head, width of the MLP.
SIZES = {
    "410M": ("GPTNeoX", 1024, 24, 16, 16, 64, 4096),
    "1B": ("GPTNeoX", 2048, 16, 8, 8, 256, 8192),
    "2B": ("Gemma", 2048, 18, 8, 1, 256, 16384),
    "7B": ("Mistral", 4096, 32, 32, 8, 128, 14336),
}
TINY = {
    "410M": ("GPTNeoX", 64, 2, 4, 4, 16, 128),
    "2B": ("Gemma", 64, 2, 4, 1, 16, 128),
    "7B": ("Mistral", 64, 2, 4, 2, 16, 128),
}


def build(kind: str, hidden: int, layers: int, heads: int, keys: int, head: int, mlp: int, device: str) -> Any:
    """A backbone with random weights, made where it will run."""
    shape = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": mlp}
    grouped = {} if kind == "GPTNeoX" else {"num_key_value_heads": keys, "head_dim": head}
    config = getattr(transformers, f"{kind}Config")(
        **shape, **grouped, vocab_size=VOCABULARY, max_position_embeddings=1024, attn_implementation="sdpa"
    )
    with torch.device(device):
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}Model")(config)
    model.config.use_cache = False
    cast(model, torch.bfloat16 if device == "cuda" else torch.float32)
    return model.eval()


def measure(shape: tuple[str, int, int, int, int, int, int], options: argparse.Namespace) -> dict[str, float]:
    """Documents per second, the better of two runs after a warm-up, and the middle query of some."""
    encoder = Encoder(build(*shape, options.device), options.device, options.tokens, None)
    texts = draw(options.documents, np.random.default_rng(1))
    query = draw(1, np.random.default_rng(2), np.full(1, QUERY))
    encoder.padded(texts.take(np.arange(min(64, options.documents))))
    took = min(seconds(lambda: encoder.padded(texts), options.device) for _ in range(2))
    encoder.padded(query)
    waited = statistics.median(seconds(lambda: encoder.padded(query), options.device) for _ in range(ROUNDS))
    return {"documents_per_second": options.documents / took, "query_ms": 1000 * waited}


def printed(size: str, column: str) -> float:
    """What the paper's Table 11 has for a size."""
    rows = published("bmretriever", 11)
    return next(one.number or 0.0 for one in rows if (one.row, one.column) == (f"BMRetriever-{size}", column))


def page(found: dict[str, dict[str, float]]) -> str:
    """The table, ours beside the paper's, each as a ratio to its own first size."""
    first = next(iter(found))
    lines = ["| size | documents, ratio | paper | query, ratio | paper |", "|---|---|---|---|---|"]
    for size, one in found.items():
        cells = [one[key] / found[first][key] for key in ("documents_per_second", "query_ms")]
        paper = [
            printed(size, name) / printed(first, name) for name in ("Document encoding speed", "Retrieval latency")
        ]
        lines.append(f"| {size} | {cells[0]:.3f} | {paper[0]:.3f} | {cells[1]:.2f} | {paper[1]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure every size, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="", help="some of them, as 410M,1B")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=32768, help="of a batch, padding included")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.tiny:
        options.documents, options.tokens = 24, 2048
    shapes = TINY if options.tiny else SIZES
    found = {size: measure(shapes[size], options) for size in options.sizes.split(",") if size} or {
        size: measure(shape, options) for size, shape in shapes.items()
    }
    print(page(found))
    if options.out:
        write_json(options.out, {"device": options.device, "documents": options.documents, "sizes": found})
    else:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
