"""Training in two processes, as ``accelerate launch`` starts them on a CPU, by the command a user types."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = "from suwen.cli.main import run; run()"
SOURCE = Path(__file__).parent.parent.parent / "src"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def train(root: Path, *, processes: int) -> list[dict[str, str]]:
    """The curve of the document stage of ``care-tiny``, four steps long."""
    command = ["-c", PROGRAM, "train", "care-tiny", "--only", "document", "--out", str(root), "--device", "cpu"]
    steps = ["--set", "stages.document.training.steps=4", "--set", "stages.document.training.log_every=1"]
    # Negatives are drawn by each process for itself; without them both runs see the same batches.
    steps += ["--set", "stages.document.rows.negatives=0"]
    launch = ["-m", "accelerate.commands.launch", "--cpu", "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--num_processes", str(processes), "--main_process_port", str(free_port())]
    started = [sys.executable, *launch, "--no_python", sys.executable] if processes > 1 else [sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*started, *command, *steps], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = root / "care-tiny" / "s0" / "document"
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    with (folder / "curves.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_two_processes_train_like_one_with_the_same_global_batch(tmp_path: Path) -> None:
    alone, together = train(tmp_path / "one", processes=1), train(tmp_path / "two", processes=2)
    assert len(alone) == len(together) == 4
    for one, two in zip(alone, together, strict=True):
        assert abs(float(one["loss"]) - float(two["loss"])) <= 1e-3 * abs(float(one["loss"]))
