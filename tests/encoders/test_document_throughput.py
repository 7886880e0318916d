"""The throughput benchmark runs at a small size, tells the truth about vectors, and needs no search library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RUN = """
import json, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.fixture(scope="module")
def shapes():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import encoder_shapes

        yield encoder_shapes
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_every_way_gives_the_vectors_of_plain_transformers(tmp_path):
    script, out = BENCHMARKS / "document_throughput.py", tmp_path / "found.json"
    command = [sys.executable, "-c", RUN, str(script), "--tiny", "--documents", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not {"faiss", "tantivy", "rjieba"} & set(json.loads(done.stdout.splitlines()[-1]))
    encoder, decoder = json.loads(out.read_text())["shapes"]
    assert [row["way"] for row in encoder["rows"]] == ["padded", "packed"]
    assert [row["way"] for row in decoder["rows"]] == ["padded", "packed", "fused", "compiled"]
    assert encoder["failed"] == decoder["failed"] == {}
    for row in [*encoder["rows"], *decoder["rows"]]:
        assert row["least_cosine_with_padded"] > 0.9999 and row["least_cosine_with_fp32"] > 0.9999
        assert row["mean_cosine_of_different_texts"] < 0.999  # or the line above would prove nothing
    assert "| **compiled** |" in done.stdout


def test_the_published_shapes_have_the_published_sizes(shapes):
    found = {name: round(shape.parameters / 1e9, 2) for name, shape in shapes.SHAPES.items()}
    assert found == {"0.3B": 0.08, "0.6B": 0.44, "4B": 3.63, "8B": 6.95}


def test_work_is_that_of_the_model(shapes):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    shape = shapes.TINY["0.6B"]
    model = shapes.build(shape, "cpu", torch.float32)
    model.set_attn_implementation("eager")  # whose matrix products are counted in full, not only under the diagonal
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.ones((1, 50), dtype=torch.long))
    whole = 4 * 50**2 * shape.heads * shape.head_dim * shape.layers
    rotary = counter.get_total_flops() - whole - 2 * shape.parameters * 50
    assert shape.work(np.array([50])) == 2 * shape.parameters * 50 + whole / 2
    assert 0 <= rotary < 0.001 * counter.get_total_flops()


def test_lengths_are_cut_and_end_tokens_stand_last(shapes):
    texts = shapes.draw(20_000, np.random.default_rng(0))
    assert texts.lengths.max() == 512 and texts.lengths.min() >= 2
    assert (texts.flat[np.cumsum(texts.lengths) - 1] == shapes.END).all()
    uncut = np.random.default_rng(0).lognormal(np.log(470.9) - 0.7**2 / 2, 0.7, 20_000)
    assert abs(uncut.mean() - 470.9) < 10
    part = texts.take(np.array([3, 1]))
    assert len(part.flat) == texts.lengths[3] + texts.lengths[1] and list(part.lengths) == list(texts.lengths[[3, 1]])


def test_only_whole_rows_are_kept(shapes):
    texts = shapes.draw(100, np.random.default_rng(0))
    kept = shapes.whole_rows(texts, 2048)
    rows = list(shapes.groups(kept.lengths, 2048))
    assert all(2048 - 512 < kept.lengths[row].sum() <= 2048 for row in rows)
    assert len(kept.flat) == kept.lengths.sum() and 90 <= len(kept.lengths) < 100
