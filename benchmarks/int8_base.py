"""Memory and time of a training step over a base in 8 bits, beside bf16: an adapter of rank 16, random tokens.

    python benchmarks/int8_base.py BASE [--batch 32 --length 64 --steps 8]

BASE is a GGUF file or a folder. Weights are counted by their bytes, the peak by the GPU's allocator (none on a CPU);
times are medians, compared as ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from suwen.encoders.adapter import apply_lora
from suwen.encoders.base_model import load_base, round_base


def build(base: str, device: str, rounded: bool) -> torch.nn.Module:
    model = load_base(base, device=device, dtype="bf16", max_length=512)
    if rounded:
        round_base(model)
    apply_lora(model, rank=16, alpha=32, dropout=0.05)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return model.train()[0].model


def step(body: torch.nn.Module, tokens: torch.Tensor) -> float:
    """Forward and backward of a batch; seconds."""
    if tokens.is_cuda:
        torch.cuda.synchronize()
    first = time.perf_counter()
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
        body(input_ids=tokens).last_hidden_state[:, -1].float().square().mean().backward()
    if tokens.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    chosen = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    said: dict[str, dict[str, float]] = {}
    for name in ("bf16", "int8"):
        body = build(chosen.base, device, name == "int8")
        tokens = torch.randint(8, 500, (chosen.batch, chosen.length), device=device)
        step(body, tokens)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        times = sorted(step(body, tokens) for _ in range(chosen.steps))
        held = sum(part.numel() * part.element_size() for part in (*body.parameters(), *body.buffers()))
        peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
        said[name] = {"weights_mb": held / 1e6, "peak_mb": peak / 1e6, "step_s": times[len(times) // 2]}
        del body
        if device == "cuda":
            torch.cuda.empty_cache()
    plain, rounded = said["bf16"], said["int8"]
    ratios = {key: rounded[key] / plain[key] for key in plain if plain[key]}
    print(json.dumps({"device": device, **said, "int8_over_bf16": ratios}, indent=1))


if __name__ == "__main__":
    main()
