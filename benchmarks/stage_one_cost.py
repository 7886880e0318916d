"""What Stage I costs a text with the teacher's vectors stored, against running the teacher inside the training loop.

Run: python benchmarks/stage_one_cost.py --base FILE.gguf|FOLDER|HUB-ID [--adapter FOLDER] --texts FILE.jsonl.gz \
         [--student-layers 6 --batch 2048 --steps 30 --repeats 5 --epochs 1,5,10,30 --out NAME]
     python benchmarks/stage_one_cost.py --tiny   (a CPU, in seconds, random models: does it run, is it the same work)

Two trainings side by side in one process: the same student from the same weights, the same loss (contrastive plus
squared L2), the same optimiser, the same texts in the same batches. They differ in where the targets come from:

  stored  vectors that were computed once (fp16, memory-mapped, kept on the GPU where they fit): `FrozenTower`
  live    the document encoder over the same texts in each step, as fast as the product runs it: texts end to end,
          the adapter merged, no gradients, token ids ready beforehand (--compile: joined and compiled layers too)

They take turns: `steps` steps of the one, `steps` of the other, `repeats` times, after a warm-up that is not counted.
The first ratio leaves out what the stored vectors cost to make. The rows below it charge that too: tokenising, encoding
and writing, as the vectors stage does it, spread over the epochs (passes over the texts, of all students together).
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.utils import clip_grad_norm_

from suwen.encoders.adapter import apply_adapter
from suwen.encoders.base_model import load_base
from suwen.encoders.side import Side
from suwen.training.loop.batches import Ints, chunks, tokenise
from suwen.training.loop.optimiser import adamw
from suwen.training.recipe.key_groups import Optimisation
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stand_in import with_builtins
from suwen.training.students.student_models import build_student
from suwen.training.students.student_tokenizer import train_tokenizer
from suwen.training.tasks.align_task import AlignLosses, AlignTask, Part
from suwen.training.tasks.row_tables import read_texts
from suwen.training.tasks.towers import FrozenTower, TrainedTower

TARGET = 1 / 5
Work = Callable[[], Any]


class LiveTower:
    """The teacher, run again for every batch; has what an alignment part asks of its targets.

    Args:
        side: The document encoder.
        texts: What it encodes, tokenised here, outside the clock.
        options: Lengths, budgets and the prompt.
    """

    def __init__(self, side: Side, texts: Sequence[str], options: argparse.Namespace) -> None:
        self.side, self.options = side, options
        self.tokens = tokenise(side, texts, prompt=options.query_prompt, max_length=options.teacher_length)

    def vectors(self, rows: Ints) -> torch.Tensor:
        """Vectors of these texts, in pieces within the token budget; where texts are padded, of about one length."""
        order = np.arange(len(rows)) if self.side.packs else np.argsort(self.tokens.lengths(rows), kind="stable")
        found = []
        with torch.inference_mode():
            for cut in chunks(self.tokens.lengths(rows[order]), self.options.token_budget):
                vectors = self.side.embed_flat(*self.tokens.take(rows[order[cut]]))
                cut_down = vectors.float()[:, : self.options.dimension]
                found.append(torch.nn.functional.normalize(cut_down, dim=-1))
        back = torch.from_numpy(np.argsort(order)).to(found[0].device)
        # A tensor of inference mode cannot take part in a loss.
        return torch.cat(found).clone()[back]


class Stepper:
    """One of the two trainings: a task and its optimiser, one call a step."""

    def __init__(self, task: AlignTask, learning_rate: float) -> None:
        self.task, self.done = task, 0
        self.optimiser = adamw(task.groups(), Optimisation(learning_rate=learning_rate))
        self.parameters = [one for group in self.optimiser.param_groups for one in group["params"]]
        self.losses: list[Any] = []

    def steps(self, count: int) -> None:
        """Train on."""
        for _ in range(count):
            self.optimiser.zero_grad(set_to_none=True)
            self.losses.append(self.task.step(self.done)["loss"])
            clip_grad_norm_(self.parameters, 1.0)
            self.optimiser.step()
            self.done += 1


def seconds(work: Work, device: str) -> float:
    """Until the device is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def load_teacher(options: argparse.Namespace) -> Side:
    """The document encoder, adapter merged."""
    model = load_base(options.base, device=options.device, max_length=options.teacher_length)
    if options.adapter:
        apply_adapter(model, options.adapter)
    side = Side(model, "document")
    if options.compile:
        side.fuse(tokens=options.token_budget)
    return side


def make_vectors(side: Side, texts: Sequence[str], folder: Path, options: argparse.Namespace) -> tuple[Any, float]:
    """The stored vectors, and the seconds they took: tokenised, encoded in pieces, written in fp16."""
    file = folder / "vectors.npy"

    def make() -> None:
        tower = LiveTower(side, texts, options)
        shape = (len(texts), options.dimension)
        stored = np.lib.format.open_memmap(file, "w+", np.float16, shape)
        for start in range(0, len(texts), options.batch):
            rows = np.arange(start, min(start + options.batch, len(texts)))
            stored[rows] = tower.vectors(rows).cpu().numpy()
        stored.flush()

    LiveTower(side, texts[: options.batch], options).vectors(np.arange(min(options.batch, len(texts))))
    took = seconds(make, options.device)
    return np.load(file, mmap_mode="r"), took


def build(
    options: argparse.Namespace, texts: Sequence[str], side: Side, folder: Path
) -> tuple[dict[str, Stepper], Any]:
    """Both trainings, and what the stored vectors cost."""
    student = build_student(
        train_tokenizer(texts, size=options.vocabulary),
        layers=options.student_layers,
        width=options.student_width,
        heads=options.student_heads,
        dimension=options.dimension,
        max_length=64,
    ).to(options.device)
    stored, cost = make_vectors(side, texts, folder, options)
    targets = {"stored": FrozenTower(stored, options.device), "live": LiveTower(side, texts, options)}
    steppers = {}
    for name, target in targets.items():
        model = copy.deepcopy(student).train()
        own = Side(model, "query")
        tower = TrainedTower(own, tokenise(own, texts, max_length=64), precision=options.precision)
        places = np.arange(len(texts))
        part = Part("query", tower, target, places, places, 1.0)  # type: ignore[arg-type]
        task = AlignTask(model, [part], options.batch, AlignLosses(temperature=0.03), seed=0)
        steppers[name] = Stepper(task, 1e-3)
    return steppers, cost


def measure(options: argparse.Namespace, texts: Sequence[str]) -> dict[str, Any]:
    """All numbers of a run."""
    side = load_teacher(options)
    with tempfile.TemporaryDirectory() as folder:
        steppers, cost = build(options, texts, side, Path(folder))
        times: dict[str, list[float]] = {name: [] for name in steppers}
        for stepper in steppers.values():
            stepper.steps(options.warmup)
        for repeat in range(options.repeats):
            # Whoever goes first changes, so that a chip that warms up is nobody's advantage.
            for name in list(steppers)[:: 1 if repeat % 2 == 0 else -1]:
                times[name].append(seconds(lambda one=steppers[name]: one.steps(options.steps), options.device))
                said = f"{name}: {options.steps} steps in {times[name][-1]:.3f} s"
                print(f"repeat {repeat + 1}, {said}", file=sys.stderr, flush=True)
    samples = options.steps * min(options.batch, len(texts))
    losses = [[float(one) for one in stepper.losses] for stepper in steppers.values()]
    ways = {name: _way(found, samples) for name, found in times.items()}
    return {
        "ways": ways,
        "ratio": _ratios(times),
        "vectors": {"texts": len(texts), "seconds": cost, "per_sample": cost / len(texts)},
        "charged": [_charged(ways, cost / len(texts), epochs) for epochs in options.epochs],
        "largest_difference_of_losses": max(abs(a - b) for a, b in zip(*losses, strict=True)),
        "losses": {name: [found[0], found[-1]] for name, found in zip(steppers, losses, strict=True)},
        "mean_tokens": {
            "student": _mean_length(steppers["live"].task.parts[0].tower),
            "teacher": _mean_length(steppers["live"].task.parts[0].targets),
        },
    }


def _way(found: list[float], samples: int) -> dict[str, Any]:
    return {
        "seconds": found,
        "samples": samples,
        "median_per_sample": statistics.median(found) / samples,
        "least_per_sample": min(found) / samples,
    }


def _ratios(times: dict[str, list[float]]) -> dict[str, float]:
    pairs = [stored / live for stored, live in zip(times["stored"], times["live"], strict=True)]
    least = min(times["stored"]) / min(times["live"])
    return {"median": statistics.median(pairs), "of_least": least, "worst": max(pairs), "best": min(pairs)}


def _charged(ways: dict[str, Any], vectors: float, epochs: float) -> dict[str, float]:
    stored = ways["stored"]["median_per_sample"] + vectors / epochs
    return {"epochs": epochs, "per_sample": stored, "ratio": stored / ways["live"]["median_per_sample"]}


def _mean_length(tower: Any) -> float:
    return len(tower.tokens.ids) / len(tower.tokens)


def table(result: dict[str, Any]) -> str:
    """The results in Markdown."""
    ways, ratio = result["ways"], result["ratio"]
    lines = [
        "| targets | microseconds a text, median | least | against live, median | of the least |",
        "|---|---|---|---|---|",
        f"| live: teacher in the loop | {ways['live']['median_per_sample'] * 1e6:.1f} | "
        f"{ways['live']['least_per_sample'] * 1e6:.1f} | 1 | 1 |",
        f"| **stored vectors** | **{ways['stored']['median_per_sample'] * 1e6:.1f}** | "
        f"{ways['stored']['least_per_sample'] * 1e6:.1f} | **{ratio['median']:.3f}** | {ratio['of_least']:.3f} |",
    ]
    for row in result["charged"]:
        lines.append(
            f"| stored, with making them, over {row['epochs']:g} epochs | {row['per_sample'] * 1e6:.1f} |  | "
            f"{row['ratio']:.3f} |  |"
        )
    return "\n".join(lines)


def remarks(result: dict[str, Any]) -> list[str]:
    """What a reader must know before comparing."""
    setup, seen = result["setup"], result["vectors"]
    ways = result["ways"]
    spans = {name: f"{min(one['seconds']):.3f} to {max(one['seconds']):.3f} s" for name, one in ways.items()}
    difference = result["largest_difference_of_losses"]
    return [
        f"{result['device']}, torch {result['torch']}, transformers {result['transformers']}; student of "
        f"{setup['student_layers']} x {setup['student_width']} in {setup['precision']}, batches of {setup['batch']}",
        f"{setup['steps']} steps a round, {setup['repeats']} rounds in turns after {setup['warmup']} steps of warm-up: "
        f"stored {spans['stored']}, live {spans['live']}",
        f"mean tokens of a text: {result['mean_tokens']['student']:.1f} for the student, "
        f"{result['mean_tokens']['teacher']:.1f} for the teacher",
        f"making the vectors of {seen['texts']:,} texts took {seen['seconds']:.2f} s",
        f"the two losses are the same work: they part by at most {difference:.1e} (targets in fp16 against fp32)",
        f"target: stored at most {TARGET:g} of live; found {result['ratio']['median']:.3f} (worst round "
        f"{result['ratio']['worst']:.3f})",
    ]


def read(options: argparse.Namespace) -> list[str]:
    """Distinct texts, as many as asked for."""
    if options.texts.name.endswith((".jsonl", ".jsonl.gz")):
        found = read_texts(options.texts, None).texts
    else:
        found = [line.strip() for line in options.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = list(dict.fromkeys(found))
    chosen = np.random.default_rng(0).permutation(len(found))[: options.limit]
    return [found[place] for place in chosen]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the teacher: GGUF file, folder or hub id")
    parser.add_argument("--adapter", type=Path, help="its adapter's folder")
    parser.add_argument("--texts", type=Path, help="JSON lines with `text`, or a text a line")
    parser.add_argument("--limit", type=int, default=65_536, help="texts used; their vectors are made once")
    parser.add_argument("--student-layers", type=int, default=6)
    parser.add_argument("--student-width", type=int, default=384)
    parser.add_argument("--student-heads", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=14_000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--query-prompt", default="查询：", help="what the teacher reads before a text")
    parser.add_argument("--teacher-length", type=int, default=192, help="tokens of a text for the teacher")
    parser.add_argument("--token-budget", type=int, default=65_536, help="of the teacher's forward passes")
    parser.add_argument("--precision", choices=("bf16", "fp16", "fp32"), default="bf16", help="of the student")
    parser.add_argument("--compile", action="store_true", help="join and compile the teacher's layers")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--epochs", default="1,5,10,30", help="over which the vectors' cost is spread")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="writes OUT.json and OUT.md")
    parser.add_argument("--tiny", action="store_true", help="random tiny models and built-in texts, on a CPU")
    options = parser.parse_args()
    options.epochs = [float(one) for one in options.epochs.split(",")]
    if not options.tiny and (options.base is None or options.texts is None):
        parser.error("give --base and --texts, or --tiny")
    return options


def make_tiny(options: argparse.Namespace, folder: Path) -> None:
    """Put small things in place of large ones."""
    from suwen.training.recipe.recipe_file import load_recipe

    recipe: Recipe = with_builtins(load_recipe("care-tiny"), folder)
    options.base, options.texts = recipe.stages[0].base, Path(recipe.data.texts)  # type: ignore[union-attr]
    options.device, options.precision = "cpu", "fp32"
    torch.set_num_threads(1)
    options.student_layers, options.student_width, options.student_heads = 1, 32, 2
    options.vocabulary, options.dimension, options.limit = 600, 32, 256
    options.teacher_length, options.token_budget = 48, 2048
    options.batch, options.steps, options.repeats, options.warmup = 32, 3, 2, 1


def main() -> int:
    """Measure, write, print; 1 where the two trainings were not the same work."""
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        if options.tiny:
            make_tiny(options, Path(folder))
        result = measure(options, read(options))
    named = ("batch", "steps", "repeats", "warmup", "student_layers", "student_width", "precision", "compile")
    result |= {
        "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.machine(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "setup": {name: getattr(options, name) for name in named},
    }
    text = "\n".join([*(f"- {line}" for line in remarks(result)), "", table(result)]) + "\n"
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.with_suffix(".json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        options.out.with_suffix(".md").write_text(text, encoding="utf-8")
    # bf16 and fp16 rounding let two trainings drift apart slowly; other batches or targets differ at once.
    first = [losses[0] for losses in result["losses"].values()]
    return int(abs(first[0] - first[1]) > 0.01 * abs(first[1]))


if __name__ == "__main__":
    sys.exit(main())
