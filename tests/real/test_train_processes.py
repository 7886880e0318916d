"""Training in two processes that really are two, as a launcher starts them, by the command a user types."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from held_port import held_port
from suwen.encoders.pair import Pair

PROGRAM = "from suwen.cli.main import run; run()"
SOURCE = Path(__file__).parent.parent.parent / "src"
STAGES = ["document", "freeze", "vectors", "align-static", "retromae", "align", "joint", "export"]
SETS = [
    *(f"stages.{name}.training.steps=4" for name in STAGES if name not in ("freeze", "vectors", "export")),
    "stages.document.training.log_every=1",
    "stages.align.training.log_every=1",
    # Negatives are drawn by each process for itself; without them one process and two see the same batches.
    "stages.document.rows.negatives=0",
    # So does a share that two can halve.
    "stages.align.document_share=0",
    "stages.align.training.chunk=7",
    "stages.freeze.measure=false",
]


def train(root: Path, *options: str, processes: int) -> subprocess.CompletedProcess[str]:
    """``suwen train care-tiny``, a few steps a stage; accelerate starts processes so too, where there are GPUs."""
    command = [sys.executable, "-c", PROGRAM, "train", "care-tiny", "--out", str(root), "--device", "cpu", *options]
    command += [part for one in SETS for part in ("--set", one)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--no_python"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with held_port() as port:
        started = [*launch, "--master_port", str(port), *command] if processes > 1 else command
        done = subprocess.run(started, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def curve(run: Path, stage: str) -> list[dict[str, str]]:
    with (run / stage / "curves.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_two_processes_train_the_chain_like_one_with_the_same_global_batch(tmp_path: Path) -> None:
    done = train(tmp_path / "two", processes=2)
    two = tmp_path / "two" / "care-tiny" / "s0"
    assert done.stdout.count("see report.md") == 1, "the first process speaks for all"
    for stage in STAGES:
        assert json.loads((two / stage / "versions.json").read_text(encoding="utf-8"))["processes"] == 2
        assert (two / stage / "metrics.json").is_file()
    vectors = Pair.load(two / "export" / "model").encoder("l2").encode_queries(["头疼怎么办", "how is the flu treated"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)

    one = tmp_path / "one" / "care-tiny" / "s0"
    shutil.copytree(tmp_path / "two", tmp_path / "one", symlinks=True)
    for stage in ("document", "align", "vectors"):
        shutil.move(one / stage, tmp_path / f"{stage}-of-two")
    train(tmp_path / "one", "--only", "vectors", "--only", "align", processes=1)
    train(tmp_path / "one", "--only", "document", processes=1)
    for stage in ("document", "align"):
        alone, together = curve(one, stage), curve(two, stage)
        assert len(alone) == len(together) == 4
        for left, right in zip(alone, together, strict=True):
            for key in ("loss", "gradient_norm"):
                assert abs(float(left[key]) - float(right[key])) <= 1e-3 * abs(float(left[key])), (stage, key)
    for name in ("query", "document", "rows-query", "rows-document"):
        stored = [np.load(run / "vectors" / name / "vectors.npy").astype(np.float32) for run in (one, two)]
        np.testing.assert_allclose(stored[0], stored[1], atol=2e-3)
