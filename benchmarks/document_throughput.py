"""Documents per second of the document encoders the papers use, as a share of what the GPU's matrix units can do.

Run: python benchmarks/document_throughput.py [--shapes 0.3B,0.6B,4B,8B --seconds 3 --tokens 32768 --out FILE.json]
     python benchmarks/document_throughput.py --tiny   (a CPU, in seconds: does it run, and are the vectors right)

Weights are random, in the exact shapes of Qwen3-0.6B, 4B and 8B and of a 12x768 encoder (gte-multilingual-base's), made
on the device in bf16. The vocabulary is cut to 4,096 rows: looking a row up costs the same in a large table.

Lengths: Table 7 of CARE gives one number for its corpus, a mean of 470.90 tokens, and its encoders read at most 512. So
lengths are drawn from a log-normal of that mean and of spread 0.7 (the spread is an assumption), rounded, and cut to
512. CARE counted in tiktoken's cl100k, which makes more tokens of Chinese than Qwen's tokenizer does: real documents
will be shorter, and hours fewer. Token ids are random; tokenising is not part of the measured work.

Work counted: 2 x parameters outside the embedding x real tokens, plus attention over real lengths (2 n^2 x heads x
width a layer where causal, twice that where not). Padding, and what fills a row up, counts as nothing.

Ceiling: the best bf16 matrix product of a few shapes, in the same run on random data, before and after everything else.

Ways to encode, on the same documents:
  padded    plain transformers: sdpa, batches of about one length with padding and a mask (tokens per batch: --tokens)
  packed    the same model, texts end to end (what `Side` does on a GPU, in training too)
  fused     queries, keys and values in one matrix product, and both matrices into the MLP
  compiled  fused, and compiled between the matrix products (`DocumentEncoder.load(..., compile=True)`)
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from encoder_shapes import LONGEST, MEAN, SHAPES, SPREAD, TINY, Shape, Texts, build, draw, groups, whole_rows

from suwen.encoders import packed
from suwen.encoders.fused import FusedDecoder
from suwen.encoders.side import cast

QUERY = 32
#: Hours for a million documents on an A100 80GB: CARE, Table 18.
PAPER = {"0.3B": 0.21, "4B": 2.95, "8B": 3.77}
#: The A100's dense bf16 rate by its datasheet.
A100 = 312e12
TARGETS = {"0.6B": 0.33, "4B": 0.50, "8B": 0.60}
LEAST_COSINE = 0.999


class Encoder:
    """The ways to encode one model's texts. Each gives the state at the last token, fp32, on the device."""

    def __init__(self, model: Any, device: str, budget: int, backend: Any) -> None:
        self.model, self.device, self.budget, self.backend = model, device, budget, backend
        self.decoder: FusedDecoder | None = None

    @torch.inference_mode()
    def padded(self, texts: Texts) -> torch.Tensor:
        """Plain transformers, longest first, in batches whose count x longest stays within the budget."""
        order = np.argsort(-texts.lengths, kind="stable")
        found, start = [], 0
        while start < len(order):
            count = max(1, self.budget // int(texts.lengths[order[start]]))
            part = texts.take(order[start : start + count])
            real = np.arange(int(part.lengths.max()))[None] < part.lengths[:, None]
            ids = np.zeros(real.shape, np.int64)
            ids[real] = part.flat
            mask = packed.to_device(real.astype(np.int64), self.device)
            states = self.model(input_ids=packed.to_device(ids, self.device), attention_mask=mask).last_hidden_state
            last = packed.to_device(part.lengths - 1, self.device)
            found.append(states[torch.arange(len(last), device=self.device), last].float())
            start += count
        return torch.cat(found)[packed.to_device(np.argsort(order), self.device)]

    def packed(self, texts: Texts) -> torch.Tensor:
        """The same model, texts end to end."""
        packed.prepare(self.model)
        return self._rows(texts, lambda row: self.model(**row.features()).last_hidden_state[0])

    def fused(self, texts: Texts) -> torch.Tensor:
        """Joined matrices, nothing compiled."""
        if self.decoder is None or self.decoder.tokens is not None:
            self.decoder = FusedDecoder(self.model)
        return self._rows(texts, self.decoder)

    def compiled(self, texts: Texts) -> torch.Tensor:
        """Joined matrices, compiled."""
        if self.decoder is None or self.decoder.tokens is None:
            self.decoder = FusedDecoder(self.model, tokens=self.budget, backend=self.backend)
        return self._rows(texts, self.decoder, self.decoder.fill)

    @torch.inference_mode()
    def _rows(
        self,
        texts: Texts,
        forward: Callable[[packed.Pack], torch.Tensor],
        fill: Callable[[int], int | None] = lambda count: None,
    ) -> torch.Tensor:
        found, start = [], 0
        for rows in groups(texts.lengths, self.budget):
            lengths = texts.lengths[rows]
            flat = texts.flat[start : start + int(lengths.sum())]
            start += len(flat)
            row = packed.pack(flat, lengths, device=self.device, fill=fill(len(flat)))
            found.append(packed.pool(forward(row), row, "last").float())
        return torch.cat(found)


def seconds(work: Callable[[], Any], device: str) -> float:
    """Until the device is done, and the vectors are on the host where the work returns any."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    found = work()
    if isinstance(found, torch.Tensor):
        found.cpu()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def ceiling(device: str, dtype: torch.dtype, tiny: bool) -> dict[str, float]:
    """Operations per second of a few matrix products, each the median of rounds long enough to warm the chip."""
    sizes = [(128, 128, 128)] if tiny else [(8192, 8192, 8192), (16384, 8192, 8192), (32768, 4096, 24576)]
    found = {}
    for m, k, n in sizes:
        left, right = (torch.randn(size, device=device, dtype=dtype) for size in ((m, k), (k, n)))
        out = torch.empty((m, n), device=device, dtype=dtype)

        def product(left=left, right=right, out=out) -> None:
            for _ in range(10):
                torch.mm(left, right, out=out)

        product()
        took = statistics.median(seconds(product, device) for _ in range(5)) / 10
        found[f"{m}x{k}x{n}"] = 2.0 * m * k * n / took
    return found


def measure(name: str, shape: Shape, options: argparse.Namespace, best: float) -> dict[str, Any]:
    """One shape: every way on the same documents, and short queries."""
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    model = build(shape, options.device, dtype)
    encoder = Encoder(model, options.device, options.tokens, options.backend)
    rng = np.random.default_rng(1)
    probe = draw(2000, rng)
    # Enough for --seconds at half the ceiling, and for six rows.
    wanted = options.documents or int(options.seconds * best / 2 / shape.work(probe.lengths) * 2000)
    texts = whole_rows(draw(max(wanted, int(6 * options.tokens / probe.lengths.mean())), rng), options.tokens)
    sample = texts.take(np.arange(min(64, len(texts.lengths))))
    expected = {
        "padded": encoder.padded(sample),
        "fp32": in_fp32(encoder, sample.take(np.arange(min(8, len(sample.lengths)))), dtype),
    }
    facts = {
        "parameters": shape.parameters,
        "documents": len(texts.lengths),
        "mean_tokens": float(texts.lengths.mean()),
    }
    found: dict[str, Any] = {"name": name, **facts, "rows": [], "failed": {}}
    ways = ["padded", "packed", "fused", "compiled"] if shape.decoder else ["padded", "packed"]
    for way in ways:
        try:  # a way that fails here must not take the others' numbers with it
            row = {"way": way, **time_way(getattr(encoder, way), texts, expected, shape, options)}
        except Exception as error:
            found["failed"][way] = f"{type(error).__name__}: {error}"
            print(f"{name} {way} failed: {found['failed'][way]}", file=sys.stderr, flush=True)
            continue
        found["rows"].append(row)
        report_progress(name, row, best)
    run = getattr(encoder, found["rows"][-1]["way"])
    return found | {"queries_per_second": query_rate(run, options)}


def query_rate(run: Callable[[Texts], torch.Tensor], options: argparse.Namespace) -> float:
    """Queries per second, as many at a time as fill a row."""
    count = options.tokens // QUERY
    queries = draw(count, np.random.default_rng(2), np.full(count, QUERY))
    run(queries)
    return count / statistics.median(seconds(lambda: run(queries), options.device) for _ in range(5))


def in_fp32(encoder: Encoder, texts: Texts, dtype: torch.dtype) -> torch.Tensor:
    """The vectors of the same weights in fp32: what every way is an approximation of."""
    cast(encoder.model, torch.float32)
    found = encoder.padded(texts)
    cast(encoder.model, dtype)
    return found


def time_way(
    run: Callable[[Texts], torch.Tensor],
    texts: Texts,
    expected: dict[str, torch.Tensor],
    shape: Shape,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Twice after a warm-up; the vectors compared are those of the very run that is timed."""
    head = texts.take(np.arange(min(len(texts.lengths), int(1.3 * options.tokens / texts.lengths.mean()))))
    first, again = (seconds(lambda: run(head), options.device) for _ in range(2))
    found: list[torch.Tensor] = []
    times = [seconds(lambda: found.append(run(texts)) or found[-1], options.device) for _ in range(2)]
    took, plain, exact = min(times), expected["padded"], expected["fp32"]
    cosine = torch.nn.functional.cosine_similarity
    return {
        "documents_per_second": len(texts.lengths) / took,
        "tokens_per_second": float(texts.lengths.sum()) / took,
        "operations_per_second": shape.work(texts.lengths) / took,
        "seconds": times,
        "first_run_seconds": max(0.0, first - again),
        "least_cosine_with_padded": float(cosine(found[-1][: len(plain)], plain).min()),
        "least_cosine_with_fp32": float(cosine(found[-1][: len(exact)], exact).min()),
        "mean_cosine_of_different_texts": float(cosine(plain, plain.roll(1, 0)).mean()),
        "finite": bool(torch.isfinite(found[-1]).all()),
    }


def report_progress(name: str, row: dict[str, Any], best: float) -> None:
    """A line to stderr: a run that is cut off has still told what it knew."""
    print(
        f"{name} {row['way']}: {row['documents_per_second']:.1f} documents/s, "
        f"{row['operations_per_second'] / best:.1%} of the ceiling, first run {row['first_run_seconds']:.0f} s, "
        f"cosine {row['least_cosine_with_padded']:.5f}",
        file=sys.stderr,
        flush=True,
    )


def table(result: dict[str, Any]) -> str:
    """The results in Markdown."""
    best = result["ceiling"]
    head = ["shape", "way", "documents/s", "% of ceiling", "target", "h per 1M", "A100 (paper)", "compile s", "cosine"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for shape in result["shapes"]:
        for row in shape["rows"]:
            name, last = shape["name"], row is shape["rows"][-1]
            cells = [name, row["way"], f"{row['documents_per_second']:,.1f}"]
            cells += [f"{row['operations_per_second'] / best:.1%}", f"{TARGETS[name]:.0%}" if name in TARGETS else ""]
            cells += [f"{1e6 / row['documents_per_second'] / 3600:.2f}", f"{PAPER[name]}" if name in PAPER else ""]
            cells += [f"{row['first_run_seconds']:.0f}", f"{row['least_cosine_with_padded']:.5f}"]
            lines.append("| " + " | ".join(f"**{cell}**" if last and cell else cell for cell in cells) + " |")
    lines += ["", f"| shape | queries/s ({QUERY} tokens) | against the smallest |", "|---|---|---|"]
    light = result["shapes"][0]["queries_per_second"]
    for shape in result["shapes"]:
        rate = shape["queries_per_second"]
        lines.append(f"| {shape['name']} | {rate:,.0f} | 1/{light / rate:.1f} |")
    return "\n".join(lines)


def remarks(result: dict[str, Any]) -> list[str]:
    """What a reader must know before comparing."""
    said = [
        f"{shape['name']} {way} failed: {error}" for shape in result["shapes"] for way, error in shape["failed"].items()
    ]
    said += [
        f"{result['device']}, torch {result['torch']}, transformers {result['transformers']}; {result['attention']}; "
        f"rows of {result['tokens']} tokens; ceiling {result['ceiling'] / 1e12:.0f} TFLOP/s "
        f"({', '.join(f'{key}: {value / 1e12:.0f}' for key, value in result['ceilings'].items())})",
        f"documents of {result['shapes'][0]['mean_tokens']:.0f} tokens on average, cut to {LONGEST}",
    ]
    for name, hours in PAPER.items():
        if name in SHAPES and SHAPES[name].decoder:
            most = A100 * hours * 3600 / 1e6 / (2 * SHAPES[name].parameters)
            said.append(f"the paper's {name} hours leave an A100, at its full rate, {most:.0f} tokens a document")
    return said


def main() -> int:
    """Measure, write, print; 1 if some vector is not what plain transformers gives."""
    options = arguments()
    torch.set_grad_enabled(False)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    begun = time.perf_counter()
    ceilings = ceiling(options.device, dtype, options.tiny)
    best = max(ceilings.values())
    known = TINY if options.tiny else SHAPES
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "attention": "flash attention over unequal lengths"
        if packed.has_kernel(options.device, dtype, 128)
        else "attention text by text (no flash kernel here)",
        "tokens": options.tokens,
        "lengths": {"mean": MEAN, "spread": SPREAD, "longest": LONGEST},
        "shapes": [],
    }
    for name in options.shapes:
        result["shapes"].append(measure(name, known[name], options, best))
        gc.collect()
        torch.compiler.reset()
        if options.device == "cuda":
            torch.cuda.empty_cache()
        save(result | {"ceilings": ceilings, "ceiling": best}, options.out)
    after = ceiling(options.device, dtype, options.tiny)
    ceilings |= {f"{key} after": value for key, value in after.items()}
    best = max(ceilings.values())
    result |= {"ceilings": ceilings, "ceiling": best, "total_seconds": time.perf_counter() - begun}
    save(result, options.out)
    print("\n".join([*(f"- {line}" for line in remarks(result)), "", table(result)]))
    rows = [row for shape in result["shapes"] for row in shape["rows"]]
    return int(
        any(shape["failed"] for shape in result["shapes"])
        or not all(row["finite"] and row["least_cosine_with_padded"] >= LEAST_COSINE for row in rows)
    )


def save(result: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1), encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", help=f"of {', '.join(SHAPES)}, with commas; all by default")
    parser.add_argument("--documents", type=int, help="how many; by default as many as --seconds asks for")
    parser.add_argument("--seconds", type=float, default=3, help="of measured encoding, at half the ceiling")
    parser.add_argument("--tokens", type=int, help="in a row, or with padding in a batch; 32768 by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="a JSON file for all numbers")
    parser.add_argument("--tiny", action="store_true", help="small shapes and nothing compiled to machine code")
    options = parser.parse_args()
    options.backend = "eager" if options.tiny else "inductor"
    options.tokens = options.tokens or (1024 if options.tiny else 32_768)
    options.shapes = options.shapes.split(",") if options.shapes else list(TINY if options.tiny else SHAPES)
    if options.tiny:
        options.device, options.documents = "cpu", options.documents or 1
    return options


if __name__ == "__main__":
    sys.exit(main())
