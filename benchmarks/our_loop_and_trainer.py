"""Stage I by this project's loop and by sentence-transformers' Trainer, side by side on a CPU: cost, and resuming.

Run: pip install datasets    (the Trainer reads nothing else)
     python benchmarks/our_loop_and_trainer.py [--texts 1500 --batch 64 --steps 40 --rounds 3 --layers 2 --width 128]
     python benchmarks/our_loop_and_trainer.py --device cuda --texts 20000 --batch 1024 --layers 6 --width 384

Both train the same student from the same weights towards the same stored vectors: squared distance, AdamW, a linear
schedule, clipping at 1; in bf16 on a GPU. The rounds alternate. On a CPU its seconds are compared, not the clock, so
that a busy machine does not decide. Then each is trained twice with dropout: in one go, and stopped half-way and
resumed from its checkpoint; printed is the largest difference of any weight at the end. Last, whether each notices a
checkpoint with a flipped byte.
"""

from __future__ import annotations

import argparse
import copy
import shutil
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from suwen.corpora.sample_collection import sample_passages
from suwen.encoders.side import Side
from suwen.text.split import sentences
from suwen.training.loop.batches import tokenise
from suwen.training.loop.run_folder import RunFolder
from suwen.training.loop.training_loop import TrainingStopped, optimise
from suwen.training.recipe.key_groups import Optimisation
from suwen.training.students.student_models import build_student
from suwen.training.students.student_tokenizer import train_tokenizer
from suwen.training.tasks.align_task import AlignLosses, AlignTask, Part
from suwen.training.tasks.towers import FrozenTower, TrainedTower

RATE, DIMENSION, LENGTH = 1e-3, 128, 128


def texts_of(count: int) -> list[str]:
    """Sentences and passages of the sample collection, again and again with a number: lengths as mixed as real ones."""
    passages = [passage.content for passage in sample_passages(lambda texts: [len(text) for text in texts])]
    pieces = [piece for passage in passages for piece in (passage, *(passage[a:b] for a, b in sentences(passage)))]
    return [f"{pieces[place % len(pieces)]} {place}" for place in range(count)]


def student_of(kind: str, texts: list[str], options: argparse.Namespace, dropout: float = 0.0) -> Any:
    """A token table, or a transformer of the shape asked for."""
    shape: dict[str, Any] = {"layers": options.layers, "width": options.width, "heads": options.width // 32}
    student = build_student(
        train_tokenizer(texts, size=4000),
        kind=kind,  # type: ignore[arg-type]
        dimension=DIMENSION,
        max_length=LENGTH,
        dropout=dropout,
        **shape,
    )
    return student.to(options.device)


def ours(student: Any, texts: list[str], targets: np.ndarray, folder: Path, steps: int, batch: int, stop: int) -> None:
    """Train by this project's loop; stop after some steps (0: not at all), or resume what was stopped."""
    torch.manual_seed(0)  # as the Trainer does: a resume must not depend on it
    side, places = Side(student, "query"), np.arange(len(texts))
    precision: Any = "fp32" if side.device.type == "cpu" else "bf16"
    tower = TrainedTower(side, tokenise(side, texts, max_length=LENGTH), precision=precision)
    part = Part("query", tower, FrozenTower(targets, side.device), places, places, 1.0)
    task = AlignTask(student.train(), [part], batch, AlignLosses(contrastive=0.0), seed=0)
    done = [0]
    with RunFolder.open(folder, {}, {}, resume=True) as run, suppress(TrainingStopped):
        optimise(
            task,
            run,
            steps=steps,
            optimisation=Optimisation(learning_rate=RATE, warmup=0.0),
            progress=lambda number, total, row: done.__setitem__(0, number),
            stop=lambda: bool(stop) and done[0] >= stop,
        )


class SquaredDistance(torch.nn.Module):
    """The same loss as the Trainer wants it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Any, labels: torch.Tensor) -> torch.Tensor:
        """The mean squared distance of a batch."""
        vectors = self.model(features[0])["sentence_embedding"]
        return (vectors - labels).square().sum(dim=-1).mean()


def trainers(
    student: Any, texts: list[str], targets: np.ndarray, folder: Path, steps: int, batch: int, stop: int
) -> None:
    """Train by sentence-transformers' Trainer; ``stop`` is where it leaves a checkpoint, from which it goes on."""
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        max_steps=steps,
        learning_rate=RATE,
        weight_decay=0.01,
        save_strategy="steps" if stop else "no",
        save_steps=stop or steps,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
        use_cpu=student.device.type == "cpu",
        bf16=student.device.type != "cpu",
        dataloader_drop_last=True,
        seed=0,
    )
    prompted = [student.prompts["query"] + text for text in texts]
    rows = InMemoryTable.from_pydict({"text": prompted, "label": targets.astype(np.float32).tolist()})
    data = Dataset(rows, fingerprint="stage-one")  # to hash the rows fails with pyarrow 26 and dill 0.4.1
    trainer = SentenceTransformerTrainer(student, arguments, train_dataset=data, loss=SquaredDistance(student))
    last = sorted(folder.glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=str(last[0]) if last else None)


def seconds(train: Any, student: Any, *given: Any) -> float:
    """What a training costs, from a copy of the student's weights."""
    model = copy.deepcopy(student)
    clock = time.process_time if student.device.type == "cpu" else time.perf_counter
    before = clock()
    with tempfile.TemporaryDirectory() as folder:
        train(model, *given[:2], Path(folder) / "run", *given[2:], 0)
    return clock() - before


def resumed(train: Any, student: Any, texts: list[str], targets: np.ndarray, steps: int, batch: int) -> float:
    """The largest difference of a weight between a training in one go and one that was resumed half-way."""
    whole, half = copy.deepcopy(student), copy.deepcopy(student)
    with tempfile.TemporaryDirectory() as root:
        one, other = Path(root) / "one", Path(root) / "other"
        if train is ours:
            train(whole, texts, targets, one, steps, batch, 0)
            train(half, texts, targets, other, steps, batch, steps // 2)
            half = copy.deepcopy(student)
        else:
            train(whole, texts, targets, one, steps, batch, steps // 2)
            shutil.copytree(one / f"checkpoint-{steps // 2}", other / f"checkpoint-{steps // 2}")
        train(half, texts, targets, other, steps, batch, 0)
    pairs = zip(whole.parameters(), half.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def damaged(train: Any, student: Any, texts: list[str], targets: np.ndarray, steps: int, batch: int) -> str:
    """What comes of a resume from a checkpoint in whose weights one byte was flipped."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "run"
        train(copy.deepcopy(student), texts, targets, folder, steps, batch, steps // 2)
        for extra in folder.glob(f"checkpoint-{steps}"):
            shutil.rmtree(extra)
        file = max(folder.rglob("*.safetensors"), key=lambda each: each.stat().st_size)
        data = bytearray(file.read_bytes())
        data[-5] ^= 0x40
        file.write_bytes(data)
        try:
            train(copy.deepcopy(student), texts, targets, folder, steps, batch, 0)
        except Exception as error:  # whatever it says
            return f"refused: {type(error).__name__}"
    return "trained on without a word"


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers = {"--texts": 1500, "--batch": 64, "--steps": 40, "--rounds": 3, "--layers": 2, "--width": 128}
    for name, default in numbers.items():
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = texts_of(options.texts)
    targets = np.random.default_rng(0).normal(size=(len(texts), DIMENSION)).astype(np.float32)
    targets = (targets / np.linalg.norm(targets, axis=1, keepdims=True)).astype(np.float16)
    for kind in ("static", "transformer"):
        student = student_of(kind, texts, options)
        given = (texts, targets, options.steps, options.batch)
        for train in (ours, trainers):  # what is done once is not counted
            seconds(train, student, texts, targets, 2, options.batch)
        rounds = [[seconds(train, student, *given) for train in (ours, trainers)] for _ in range(options.rounds)]
        mine, theirs = (1000 * statistics.median(column) / options.steps for column in zip(*rounds, strict=True))
        print(f"{kind}: {mine:.1f} ms a step by our loop, {theirs:.1f} by the Trainer: {mine / theirs:.2f}", flush=True)
    student, few = student_of("transformer", texts, options, dropout=0.1), (texts, targets, 10, options.batch)
    for name, train in (("our loop", ours), ("the Trainer", trainers)):
        print(f"{name}, resumed half-way: a weight differs by {resumed(train, student, *few):.1e} at most;", end=" ")
        print(f"a damaged checkpoint: {damaged(train, student, *few)}", flush=True)


if __name__ == "__main__":
    main()
