"""Where a query encoder should start: from dice or a static encoder's table, trained or kept, and how it is pooled.

Run: python benchmarks/student_starts.py DEV VECTORS [--table TIER --left-out cmedir --steps 1200 --look 100 --out FILE]

DEV holds collections of tools/make_dev_collections.py, VECTORS the document encoder's vectors of them (the folder
`measure` of a vectors stage). Small students learn to land where the document encoder put the documents of all tasks
but one. Printed is the mean cosine to it over documents of those tasks that were kept back, and over those of the task
that was left out: texts of another kind, which is what a query encoder meets when it is served. TIER is a static tier,
with its tokenizer. A start costs two minutes on a GPU and hours on a CPU.

With --look N the same is told after every N steps: whether a training that ended earlier would have been better.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from suwen.encoders.side import Side
from suwen.encoders.static import unit
from suwen.training.development_measure import load_measures
from suwen.training.loop.batches import tokenise
from suwen.training.loop.optimiser import adamw
from suwen.training.recipe.key_groups import Optimisation
from suwen.training.students.student_models import build_student, init_from_vectors
from suwen.training.tasks.align_task import AlignLosses, AlignTask, Part
from suwen.training.tasks.towers import FrozenTower, TrainedTower

_DEFAULT = Path(__file__).parents[1] / "src" / "suwen" / "models" / "default" / "query" / "static"
_LENGTH = 96
_AT_ONCE = 512
_FAR = 4_000


@dataclass(frozen=True)
class Start:
    """One way to begin."""

    name: str
    table: bool = False
    trained: bool = True
    pooling: Any = "cls"
    dropout: float = 0.0


STARTS = (
    Start("dice"),
    Start("dice, mean", pooling="mean"),
    Start("table", table=True),
    Start("table, mean", table=True, pooling="mean"),
    Start("table, dropout", table=True, dropout=0.1),
    Start("kept table", table=True, trained=False),
    Start("kept table, mean", table=True, trained=False, pooling="mean"),
    Start("kept table, mean, dropout", table=True, trained=False, pooling="mean", dropout=0.1),
)


@dataclass(frozen=True)
class Texts:
    """Documents with their vectors: to train on, and to measure by task."""

    train: tuple[list[str], Any]
    test: dict[str, tuple[list[str], Any]]


def read_texts(dev: Path, vectors: Path, left_out: str, limit: int | None) -> Texts:
    """Nine of ten documents of all tasks but one to train on; the tenth, and the task left out, to measure."""
    train: tuple[list[str], list[Any]] = ([], [])
    test = {}
    draw = np.random.default_rng(0)
    for task in load_measures(dev / "dev.toml"):
        file = vectors / f"{task.name}-documents.npy"
        if not file.is_file():
            continue
        texts, found = list(task.data.documents), unit(np.load(file, allow_pickle=False).astype(np.float32))
        if len(texts) != len(found):
            raise SystemExit(f"{file} has {len(found)} vectors for {len(texts)} documents: take those of this folder")
        order = draw.permutation(len(texts))[:limit]
        cut = 0 if task.name == left_out else int(len(order) * 0.9)
        train[0].extend(texts[place] for place in order[:cut])
        train[1].append(found[order[:cut]])
        rest = order[cut:][:_FAR]
        test[task.name] = ([texts[place] for place in rest], found[rest])
    if left_out not in test or len(test) < 2:
        raise SystemExit(f"{vectors} has vectors of {', '.join(test) or 'no task'}: it needs '{left_out}' and another")
    return Texts((train[0], np.concatenate(train[1])), test)


def build(start: Start, tier: Path, dimension: int, layers: int, device: str) -> Any:
    """A student before it learns."""
    student = build_student(
        Tokenizer.from_file(str(tier / "tokenizer.json")),
        layers=layers,
        dimension=dimension,
        max_length=_LENGTH,
        pooling=start.pooling,
        dropout=start.dropout,
    )
    if start.table:
        init_from_vectors(student, np.load(tier / "embeddings.npy") * np.load(tier / "scales.npy")[:, None])
    student[0].model.get_input_embeddings().weight.requires_grad_(start.trained)
    return student.to(device)


def train(
    student: Any, texts: Texts, *, steps: int, batch: int, device: str, look: int | None = None
) -> Iterator[tuple[int, dict[str, float]]]:
    """Stage I over the texts: the mean cosine to the document encoder by task and over what was trained on, by step."""
    side = Side(student, "document")
    precision: Any = "bf16" if device == "cuda" else "fp32"

    def tower(found: Sequence[str]) -> TrainedTower:
        return TrainedTower(side, tokenise(side, found, max_length=_LENGTH), precision=precision)

    places = np.arange(len(texts.train[0]))
    known = tower(texts.train[0])
    part = Part("document", known, FrozenTower(texts.train[1].astype(np.float16), device), places, places, 1.0)
    task = AlignTask(student, [part], batch, AlignLosses(), seed=0)
    plan = Optimisation(learning_rate=1e-3)
    optimiser = adamw(task.groups(), plan)
    for number in range(steps):
        student.train()
        for group in optimiser.param_groups:
            group["lr"] = plan.learning_rate * plan.factor((number + 0.5) / steps)
        optimiser.zero_grad(set_to_none=True)
        task.step(number)
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        if number + 1 == steps or (look and (number + 1) % look == 0):
            student.eval()
            scores = {name: _cosine(tower(found), wanted) for name, (found, wanted) in texts.test.items()}
            yield number + 1, scores | {"trained on": _cosine(known, texts.train[1][:_FAR])}


def _cosine(tower: TrainedTower, wanted: Any) -> float:
    with torch.inference_mode():
        found = [
            tower.vectors(np.arange(start, min(start + _AT_ONCE, len(wanted)))).cpu().numpy()
            for start in range(0, len(wanted), _AT_ONCE)
        ]
    return float((np.concatenate(found) * wanted).sum(axis=1).mean())


def main(arguments: Sequence[str] | None = None) -> int:
    """Train from each start and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dev", type=Path, help="a folder of tools/make_dev_collections.py")
    parser.add_argument("vectors", type=Path, help="<task>-documents.npy for each of its tasks")
    parser.add_argument("--table", type=Path, default=_DEFAULT, help="a static tier; the default pair's")
    parser.add_argument("--left-out", default="cmedir", help="the task whose documents are not trained on")
    parser.add_argument("--starts", nargs="+", choices=[start.name for start in STARTS], help="some of them")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--look", type=int, help="tell of every so many steps; of the last alone by default")
    parser.add_argument("--limit", type=int, help="documents of a task; all by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="the numbers as JSON")
    options = parser.parse_args(arguments)
    texts = read_texts(options.dev, options.vectors, options.left_out, options.limit)
    rows: list[dict[str, Any]] = []
    for start in STARTS:
        if options.starts and start.name not in options.starts:
            continue
        student = build(start, options.table, texts.train[1].shape[1], options.layers, options.device)
        settings: Any = {"steps": options.steps, "batch": options.batch, "device": options.device, "look": options.look}
        for step, scores in train(student, texts, **settings):
            if not rows:
                print(f"| start | steps | {' | '.join(scores)} |\n|---|---|{'---|' * len(scores)}")
            cells = " | ".join(f"{score:.3f}" for score in scores.values())
            print(f"| {start.name} | {step} | {cells} |", flush=True)
            rows.append({**asdict(start), "step": step, "cosine": scores})
    if options.out is not None:
        about = {key: getattr(options, key) for key in ("left_out", "steps", "layers", "batch", "limit")}
        options.out.write_text(json.dumps({**about, "starts": rows}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
