"""Draws docs/performance/index_scale.png from the figures that benchmarks/index_scale.py left beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/performance")
rows = json.loads((folder / "index_scale.json").read_text(encoding="utf-8"))["scale"]
sizes = [row["passages"] for row in rows]
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")

for tier, peer, ours in (("l6", "s--C0", "o-C0"), ("static", "s--C1", "o-C1")):
    label = f"sentence-transformers + faiss exact, {tier}"
    left.loglog(sizes, [row[tier]["peer_cpu_ms"] for row in rows], peer, label=label)
    left.loglog(sizes, [row[tier]["ours_cpu_ms"] for row in rows], ours, label=f"suwen, encode + search, {tier}")
left.set(title="One query, one thread", xlabel="passages of 512 dimensions", ylabel="CPU ms")
left.set_ylim(top=10 * left.get_ylim()[1])  # room for the legend

middle.loglog(sizes, [row["matrix_mb"] for row in rows], "s--", label="fp32 matrix")
middle.loglog(sizes, [row["disk_mb"] for row in rows], "^:", label="suwen on disk, all files")
middle.loglog(sizes, [row["anonymous_mb"] for row in rows], "o-", label="suwen, anonymous memory")
middle.set(title="Memory and disk", xlabel="passages", ylabel="MiB")

right.loglog(sizes, [row["build_cpu"] for row in rows], "o-", label="build, without encoding")
right.set(title="Building", xlabel="passages", ylabel="CPU seconds")

for axes in (left, middle, right):
    axes.grid(which="both", alpha=0.2)
    axes.legend(fontsize=8)
file = folder / "index_scale.png"
figure.savefig(file, dpi=64)
Image.open(file).convert("RGB").quantize(16).save(file, optimize=True)  # a sixth of the bytes
