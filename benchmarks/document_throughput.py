"""Documents per second of the document encoders the papers use, as a share of what the GPU's matrix units can do.

Run: python benchmarks/document_throughput.py [--shapes 0.3B,0.6B,4B,8B --seconds 3 --limit 100 --out FILE.json]
     python benchmarks/document_throughput.py --merge A.json B.json…   (the tables of several runs, to stdout)
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

Ways to encode, on the same documents (the last is what is claimed, and runs longest; the others on a third of them):
  padded    plain transformers: sdpa, batches of about one length with padding and a mask (tokens per batch: --tokens)
  packed    the same model, texts end to end (what `Side` does on a GPU, in training too)
  fused     queries, keys and values in one matrix product, and both matrices into the MLP
  compiled  fused, and compiled between the matrix products (`DocumentEncoder.load(..., compile=True)`)

Vectors: 32 of the timed documents beside plain transformers, once in bf16 and once in fp32 with the same weights. Plain
bf16 rounds too: its own distance to fp32 is the row `padded`, and a way that rounds less is no nearer to plain bf16.

Layers fresh from transformers (all matrices of one spread, small embeddings) amplify every rounding as they add up, so
that plain bf16 itself falls below a cosine of 0.999 to fp32. The vectors are therefore compared a second time, untimed,
with calmer weights: what layers add is divided by 8 (about the root of twice their number, as is common), and
embeddings are multiplied (8B: 32, 4B: 16, 0.6B: 4) to about half the size of the sum of what layers add. Powers of two
change no digit of a weight, and speed depends on neither.
"""

from __future__ import annotations

import argparse
import gc
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
from document_throughput_table import page, passed, print_merged, save
from encoder_shapes import LONGEST, MEAN, SHAPES, SPREAD, TINY, Shape, Texts, build, draw, groups, whole_rows

from suwen.encoders import packed
from suwen.encoders.fused import FusedDecoder
from suwen.encoders.side import cast

QUERY = 32
#: Documents whose vectors are compared: in fp32, without tensor cores, they take as long as thousands in bf16.
COMPARED = 32
#: The ways of a decoder and of an encoder; what is claimed stands before what it is compared with, should time run out.
DECODER, ENCODER = ("fused", "compiled", "padded", "packed"), ("packed", "padded")
BEGUN = time.perf_counter()


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


def tell(line: str) -> None:
    """To stderr, at once: a run that is cut off has still printed what it knew."""
    print(f"{time.perf_counter() - BEGUN:6.1f} s  {line}", file=sys.stderr, flush=True)


class Measurement:
    """One shape: every way on the same documents, and short queries. ``keep`` is called whenever there is news."""

    def __init__(self, shape: Shape, options: argparse.Namespace, best: float, keep: Callable[[], None]) -> None:
        self.shape, self.options, self.best, self.keep = shape, options, best, keep
        self.begun = time.perf_counter()
        self.found: dict[str, Any] = {"rows": [], "failed": {}, "skipped": {}}

    def run(self) -> None:
        """Measure, what is claimed first."""
        options = self.options
        dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
        model = build(self.shape, options.device, dtype)
        tell(f"{self.found['name']}: built")
        self.encoder = Encoder(model, options.device, options.tokens, options.backend)
        self.texts = documents(self.shape, options, self.best)
        self.expected = references(self.encoder, self.texts.take(np.arange(min(COMPARED, len(self.texts.lengths)))))
        exact = self.expected["fp32"]
        self.found |= {
            "documents": len(self.texts.lengths),
            "mean_tokens": float(self.texts.lengths.mean()),
            "cosine_of_different_texts": float(cosines(exact, exact.roll(1, 0)).mean()),
        }
        tell(f"{self.found['name']}: {self.found['documents']} documents, references made")
        for way in DECODER if self.shape.decoder else ENCODER:
            self.one_way(way)
        self.found["seconds"] = time.perf_counter() - self.begun

    def one_way(self, way: str) -> None:
        """Time a way; where compiling fails, the uncompiled way stands in for it and is timed as long."""
        main = "compiled" if self.shape.decoder else "packed"
        spent = time.perf_counter() - self.begun
        if way not in ("fused", main) and spent > self.options.limit:
            self.found["skipped"][way] = f"{spent:.0f} of {self.options.limit:.0f} s were spent"
            return
        done = self.timed(way, self.texts if way == main else third(self.texts, self.options.tokens))
        if way == "compiled" and not done:
            self.found["rows"] = [row for row in self.found["rows"] if row["way"] != "fused"]
            main, done = "fused", self.timed("fused", self.texts)
        self.keep()
        if done and main in (way, "fused"):
            self.found["queries_per_second"] = query_rate(getattr(self.encoder, main), self.options)
            tell(f"{self.found['name']} {main}: {self.found['queries_per_second']:.0f} queries/s")
            if self.shape.decoder:
                self.found["calm"] = self.with_calm_weights(main)
            self.keep()

    def with_calm_weights(self, way: str) -> dict[str, Any]:
        """Vectors of a way and of plain bf16 beside plain fp32, with weights that amplify no rounding."""
        model, sample = self.encoder.model, self.texts.take(np.arange(len(self.expected["fp32"])))
        embeddings = 2.0 ** round(np.log2(32 * (self.shape.hidden / 4096) ** 1.5))
        scale_weights(model, added=1 / 8, embeddings=embeddings)
        head = self.texts.take(next(groups(self.texts.lengths, self.options.tokens)))
        # Before the references: a cast to fp32 and back parts the model from the memory it shares with the decoder.
        found = getattr(self.encoder, way)(head)
        plain, exact = references(self.encoder, sample).values()
        scale_weights(model, added=8.0, embeddings=1 / embeddings)
        calm = {
            "way": way,
            "cosine_with_fp32": spread(cosines(found[: len(exact)], exact[: len(found)])),
            "cosine_with_padded": spread(cosines(found[: len(plain)], plain[: len(found)])),
            "plain_with_fp32": spread(cosines(plain, exact)),
            "cosine_of_different_texts": float(cosines(exact, exact.roll(1, 0)).mean()),
        }
        tell(f"{self.found['name']}, calm weights: {calm}")
        return calm

    def timed(self, way: str, texts: Texts) -> bool:
        """Add a way's row, or the reason there is none: it must not take the others' numbers with it."""
        start, name = time.perf_counter(), self.found["name"]
        try:
            row = {"way": way, **time_way(getattr(self.encoder, way), texts, self.expected, self.shape, self.options)}
        except Exception as error:
            took = time.perf_counter() - start
            self.found["failed"][way] = f"after {took:.0f} s, {type(error).__name__}: {str(error)[:500]}"
            tell(f"{name} {way} failed {self.found['failed'][way]}")
            return False
        self.found["rows"].append(row)
        tell(
            f"{name} {way}: {row['documents_per_second']:.1f} documents/s, "
            f"{row['operations_per_second'] / self.best:.1%} of the ceiling, "
            f"first run {row['first_run_seconds']:.0f} s, least cosine with plain fp32 "
            f"{row['cosine_with_fp32']['least']:.5f}, with plain bf16 {row['cosine_with_padded']['least']:.5f}"
        )
        return True


def documents(shape: Shape, options: argparse.Namespace, best: float) -> Texts:
    """Enough for --seconds at half the ceiling, and for six rows."""
    rng = np.random.default_rng(1)
    probe = draw(2000, rng)
    wanted = options.documents or int(options.seconds * best / 2 / shape.work(probe.lengths) * 2000)
    return whole_rows(draw(max(wanted, int(6 * options.tokens / probe.lengths.mean())), rng), options.tokens)


def third(texts: Texts, budget: int) -> Texts:
    """The first third of the rows, and two at least."""
    rows = list(groups(texts.lengths, budget))
    kept = rows[: max(2, len(rows) // 3)]
    return texts.take(np.concatenate(kept))


def references(encoder: Encoder, texts: Texts) -> dict[str, torch.Tensor]:
    """The vectors of plain transformers: as it runs here, and of the same weights in fp32."""
    plain = encoder.padded(texts)
    dtype = encoder.model.dtype
    cast(encoder.model, torch.float32)
    exact = encoder.padded(texts)
    cast(encoder.model, dtype)
    return {"padded": plain, "fp32": exact}


def query_rate(run: Callable[[Texts], torch.Tensor], options: argparse.Namespace) -> float:
    """Queries per second, as many at a time as fill a row."""
    count = options.tokens // QUERY
    queries = draw(count, np.random.default_rng(2), np.full(count, QUERY))
    run(queries)
    return count / statistics.median(seconds(lambda: run(queries), options.device) for _ in range(3))


def time_way(
    run: Callable[[Texts], torch.Tensor],
    texts: Texts,
    expected: dict[str, torch.Tensor],
    shape: Shape,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Twice after a warm-up on one row; the vectors compared are those of the very run that is timed."""
    head = texts.take(next(groups(texts.lengths, options.tokens)))
    first, again = (seconds(lambda: run(head), options.device) for _ in range(2))
    found: list[torch.Tensor] = []
    times = [seconds(lambda: found.append(run(texts)) or found[-1], options.device) for _ in range(2)]
    took = min(times)
    near = {
        name: cosines(found[-1][: len(vectors)], vectors[: len(texts.lengths)]) for name, vectors in expected.items()
    }
    return {
        "documents": len(texts.lengths),
        "documents_per_second": len(texts.lengths) / took,
        "tokens_per_second": float(texts.lengths.sum()) / took,
        "operations_per_second": shape.work(texts.lengths) / took,
        "seconds": times,
        "first_run_seconds": max(0.0, first - again),
        **{f"cosine_with_{name}": spread(at) for name, at in near.items()},
        "finite": bool(torch.isfinite(found[-1]).all()),
    }


def scale_weights(model: Any, *, added: float, embeddings: float) -> None:
    """Multiply what layers add to the sum, and the embeddings it begins with, in place."""
    model.embed_tokens.weight.mul_(embeddings)
    for layer in model.layers:
        layer.self_attn.o_proj.weight.mul_(added)
        layer.mlp.down_proj.weight.mul_(added)


def spread(found: torch.Tensor) -> dict[str, float]:
    """The least and the mean."""
    return {"least": float(found.min()), "mean": float(found.mean())}


def cosines(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Of each row with its like, in fp64: 0.99999 must be distinguished from 1."""
    return torch.nn.functional.cosine_similarity(left.double(), right.double())


def main() -> int:
    """Measure, write, print; 1 if something failed or some vector is not what plain transformers gives."""
    options = arguments()
    if options.merge:
        return print_merged(options.merge, options.out)
    torch.set_grad_enabled(False)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    ceilings = ceiling(options.device, dtype, options.tiny)
    tell(f"ceiling {max(ceilings.values()) / 1e12:.0f} TFLOP/s")
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "attention": "flash attention over unequal lengths"
        if packed.has_kernel(options.device, dtype, 128)
        else "attention text by text (no flash kernel here)",
        "tokens": options.tokens,
        "query_tokens": QUERY,
        "lengths": {"mean": MEAN, "spread": SPREAD, "longest": LONGEST},
        "ceilings": ceilings,
        "ceiling": max(ceilings.values()),
        "shapes": [],
    }
    for name in options.shapes:
        measure(name, (TINY if options.tiny else SHAPES)[name], options, result)
    ceilings |= {f"{key} after": value for key, value in ceiling(options.device, dtype, options.tiny).items()}
    result |= {"ceiling": max(ceilings.values()), "total_seconds": time.perf_counter() - BEGUN}
    save(result, options.out)
    print(page(result))
    return int(not passed(result))


def measure(name: str, shape: Shape, options: argparse.Namespace, result: dict[str, Any]) -> None:
    """One shape, added to the result and to its file way by way; if it fails, the next ones still run."""
    one = Measurement(shape, options, result["ceiling"], lambda: save(result, options.out))
    one.found |= {"name": name, "parameters": shape.parameters, "decoder": shape.decoder}
    result["shapes"].append(one.found)
    try:
        one.run()
    except Exception as error:
        one.found["failed"]["shape"] = f"{type(error).__name__}: {str(error)[:500]}"
        tell(f"{name} failed: {one.found['failed']['shape']}")
    result["total_seconds"] = time.perf_counter() - BEGUN
    save(result, options.out)
    del one
    gc.collect()
    torch.compiler.reset()
    if options.device == "cuda":
        torch.cuda.empty_cache()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", help=f"of {', '.join(SHAPES)}, with commas; all by default")
    parser.add_argument("--documents", type=int, help="how many; by default as many as --seconds asks for")
    parser.add_argument("--seconds", type=float, default=3, help="of measured encoding, at half the ceiling")
    parser.add_argument(
        "--limit", type=float, default=100, help="after so many seconds a shape's baselines are left out"
    )
    parser.add_argument("--tokens", type=int, help="in a row, or with padding in a batch; 32768 by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backend", help="what compiles: inductor by default, eager with --tiny")
    parser.add_argument("--out", type=Path, help="a JSON file for all numbers, whole after every way")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="measure nothing: files of --out")
    parser.add_argument("--tiny", action="store_true", help="small shapes and nothing compiled to machine code")
    options = parser.parse_args()
    options.backend = options.backend or ("eager" if options.tiny else "inductor")
    options.tokens = options.tokens or (1024 if options.tiny else 32_768)
    known = TINY if options.tiny else SHAPES
    options.shapes = [name.strip().upper() for name in options.shapes.split(",")] if options.shapes else list(known)
    if not set(options.shapes) <= set(known):
        parser.error(f"--shapes takes {', '.join(known)}")
    if options.tiny:
        options.device, options.documents = "cpu", options.documents or 1
    return options


if __name__ == "__main__":
    sys.exit(main())
