"""The training loop: steps, clipping, logging, checkpoints, stopping. What is trained is a ``Task``'s business.

It is our own and not sentence-transformers' Trainer for what a step is there: texts that are tokenised and padded again
in every step, one loss over them, a batch out of a data loader's state. Here a step is a function of the seed and its
number. Texts are tokenised once and run without padding on a GPU (encoding, 4B: 150.5 texts a second, 114.9 padded);
the teacher's stored vectors are read by row, at 0.125 of the cost of a teacher in the loop; LoRA is merged once a step;
any loss of any towers is gradient-cached; and a resume goes on to the last digit of every loss, from checkpoints that
are checked byte by byte. ``benchmarks/our_loop_and_trainer.py`` runs both side by side; see docs/training.md.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from suwen.errors import SuwenError
from suwen.training.loop.best_kept import BestKept, Watch
from suwen.training.loop.checkpoints import Checkpoint
from suwen.training.loop.optimiser import adamw, checkpoint_size, load_moments, moments, names_of
from suwen.training.loop.processes import (
    agree,
    average,
    average_gradients,
    gather_bytes,
    in_first,
    share_from_first,
    world,
)
from suwen.training.loop.random_state import random_state, restore_random_state
from suwen.training.loop.run_folder import RunError, RunFolder
from suwen.training.loop.signals import caught_signals
from suwen.training.recipe.key_groups import Optimisation

#: Called after every step with the steps done, the steps in all (0 where the clock decides), the curves' newest row.
Progress = Callable[[int, int, Mapping[str, float]], None]
#: A loss scale under this means that every step overflows, and that nothing has been learnt for a while.
_SMALLEST_SCALE = 1e-4
#: All kernels of attention but cuDNN's: with a mask, at 64 tokens more than a multiple of 128, its gradients may be NaN
#: on Hopper (torch's issue 196678, in 2.11 to 2.13).
_SOUND_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class TrainingDiverged(SuwenError):
    """The loss, the gradients or the weights are no longer finite numbers."""


class TrainingStopped(SuwenError):
    """The training was asked to stop, and did so with a checkpoint."""


class Task(Protocol):
    """What a stage optimises.

    It may also have an attribute ``scaler``, a ``torch.amp.GradScaler`` with which :meth:`step` scales its loss before
    the backward pass; the loop then unscales, steps and updates with it.
    """

    def groups(self) -> list[dict[str, Any]]:
        """AdamW's parameter groups. ``factor`` in one is its factor on the common learning rate."""

    def state(self) -> dict[str, Tensor]:
        """The trainable tensors themselves (no copies) by name: what a checkpoint holds."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take the tensors of a checkpoint; they come on the CPU."""

    def step(self, number: int) -> dict[str, float | Tensor]:
        """Forward and backward of one step, counted from 0; the batch depends on the seed and the number alone.

        Returns:
            ``loss``, unscaled, and other values for the curves. Tensors are read later: nothing waits for a GPU.
        """

    def describe(self, number: int) -> str:
        """Names the batch of a step, for an error message."""


@dataclass(frozen=True)
class _Plan:
    """When to do what, as a function of the steps done and of the clock."""

    steps: int | None
    budget: float | None
    checkpoint_every: int
    log_every: int

    def __post_init__(self) -> None:
        if self.budget is None and self.steps is None:
            raise RunError("a training without end: give the number of steps, or a budget in seconds")
        if self.log_every < 1:
            raise RunError(f"log_every is {self.log_every}: give 1 or more steps")

    def fraction(self, done: int, elapsed: float) -> float:
        """How much of the training is done in the middle of the next step."""
        by_time = elapsed / self.budget if self.budget else 0.0
        # The middle of a step: neither the first nor the last one is wasted on a learning rate of zero.
        return max(by_time, (done + 0.5) / self.steps if self.steps else 0.0)

    def over(self, done: int, elapsed: float) -> bool:
        """Whether the training has come to its end."""
        out_of_steps = self.steps is not None and done >= self.steps
        return out_of_steps or (self.budget is not None and elapsed >= self.budget)


def optimise(
    task: Task,
    folder: RunFolder,
    *,
    steps: int | None,
    optimisation: Optimisation,
    checkpoint_every: int = 0,
    log_every: int = 10,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    budget_seconds: float | None = None,
    watch: Watch | None = None,
) -> int:
    """Train a task to its end, from the folder's newest checkpoint if it has one.

    On a CPU with a fixed number of threads, a run that was stopped or killed ends with the same weights, bit for bit,
    as one that was not. A last checkpoint is always written, so that what comes after the training may be repeated.

    Args:
        task: What to train.
        folder: Where curves, events and checkpoints go.
        steps: How many steps; None if only ``budget_seconds`` decides.
        optimisation: The optimiser's settings.
        checkpoint_every: Steps between checkpoints; 0 for only those at a stop and at the end.
        log_every: Steps between rows of the curves, which hold means over those steps. NaN is noticed then too, and
            before each checkpoint.
        progress: Called after every step.
        stop: Asked before every step (every ``log_every`` steps with several processes); true stops the training.
        budget_seconds: The schedule follows the clock, and the training ends with the budget (or with ``steps``,
            whichever is first). For a GPU that is rented by the hour; two such runs never are the same bit for bit.
        watch: Looks at what is not trained on; the task ends with the weights that were best there.

    Returns:
        The number of steps done.

    Raises:
        TrainingDiverged: A loss, a gradient or a weight is not finite; the last checkpoint is from before that.
        TrainingStopped: ``stop``, or a signal (INT, TERM, HUP); a checkpoint was written.
        CheckpointError: The disk has no room for checkpoints, or none of those that are there can be read.
        RunError: The task or the plan makes no sense.
    """
    plan = _Plan(steps, budget_seconds, checkpoint_every, log_every)
    loop = _Loop(task, folder, optimisation, plan, progress, watch)
    with caught_signals() as caught, sdpa_kernel(_SOUND_ATTENTION):
        loop.run(lambda: (caught[0] if caught else "") or ("it was asked to" if stop is not None and stop() else ""))
    return loop.done


class _Loop:
    """One training under way."""

    def __init__(
        self,
        task: Task,
        folder: RunFolder,
        optimisation: Optimisation,
        plan: _Plan,
        progress: Progress | None,
        watch: Watch | None = None,
    ) -> None:
        self.best = None if watch is None else BestKept(folder.checkpoints.path / "best", watch)
        self.task, self.folder, self.optimisation, self.plan, self.progress = task, folder, optimisation, plan, progress
        self.first = world()[0] == 0
        self.scaler: torch.amp.GradScaler | None = getattr(task, "scaler", None)
        self.done, self.saved = 0, -1
        self.rate = self.elapsed = 0.0
        self.window: list[dict[str, float | Tensor]] = []
        self.row: dict[str, float] = {}
        checkpoint = self._newest_checkpoint()
        if checkpoint is not None:
            task.load_state(checkpoint.state)
        else:
            share_from_first(task.state().values())
        # Only now: a task may put other tensors in place of its old ones when it loads.
        self.optimiser = adamw(task.groups(), optimisation)
        self.parameters = [one for group in self.optimiser.param_groups for one in group["params"]]
        self.names = names_of(self.parameters, task.state())
        size = checkpoint_size(task.state().values(), self.parameters)
        in_first(lambda: self.folder.checkpoints.need_room(size))
        in_first(lambda: self.folder.curves.truncate(checkpoint.step if checkpoint else 0))
        if checkpoint is not None:
            self._go_on_from(checkpoint)
            if self.best is not None:
                self.best.found_again(self.done)
        self.started = time.monotonic() - self.elapsed

    def run(self, asked: Callable[[], str]) -> None:
        """Step until the end."""
        self.folder.event(event="training", step=self.done, steps=self.plan.steps, elapsed=round(self.elapsed, 3))
        while True:
            why = self._look_around(asked)
            if self.plan.over(self.done, self.elapsed) or (self.best is not None and self.best.given_up(self.done)):
                break
            if why:
                self._stop(why)
            self._step()
            if self.done % self.plan.log_every == 0:
                self._log()
            if self.progress is not None and self.first:
                self.progress(self.done, (self.plan.steps or 0) if self.plan.budget is None else 0, self.row)
            if self.plan.checkpoint_every and self.done % self.plan.checkpoint_every == 0:
                self._save()
            if self.best is not None and self.done % self.best.watch.every == 0:
                self._look(self.best)
        if self.window:
            self._log()
        self._save()
        if self.best is not None:
            self._look(self.best)
            self.task.load_state(self.best.state())
            self.folder.looks = self.best.told()
        self.folder.event(event="trained", step=self.done, elapsed=round(self.elapsed, 3))

    def _look(self, best: BestKept) -> None:
        """See how good the weights are on what they have not seen, and keep the best."""
        if best.looked == self.done:
            return
        if best.look(self.done):
            self._save()
            best.keep(self.task.state())
        self.folder.event(event="looked", step=self.done, score=best.last, best=best.score, best_step=best.step)

    def _look_around(self, asked: Callable[[], str]) -> str:
        """Read the clock and hear why to stop, if at all; several processes do so together, and less often."""
        if world()[1] > 1 and self.done % self.plan.log_every:
            return ""
        why = asked()
        self.elapsed, stopped = agree([time.monotonic() - self.started, float(bool(why))])
        return why or ("another process was asked to" if stopped else "")

    def _step(self) -> None:
        self.rate = self.optimisation.learning_rate * self.optimisation.factor(
            self.plan.fraction(self.done, self.elapsed)
        )
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate * group.get("factor", 1.0)
        self.optimiser.zero_grad(set_to_none=True)
        values = self.task.step(self.done)
        average_gradients(self.parameters)
        norm = self._apply_gradients()
        if "loss" not in values:
            raise RunError(f"step {self.done + 1} returned no loss: Task.step has to return one")
        kept = {name: one.detach() if isinstance(one, Tensor) else one for name, one in values.items()}
        self.window.append({**kept, "gradient_norm": norm})
        self.done += 1

    def _apply_gradients(self) -> Tensor:
        with_gradient = [one for one in self.parameters if one.grad is not None]
        if not with_gradient:
            raise RunError(f"step {self.done + 1} left no gradient: Task.step has to call backward() on its loss")
        if self.scaler is not None:
            self.scaler.unscale_(self.optimiser)
        norm = get_total_norm([one.grad for one in with_gradient if one.grad is not None])
        if self.optimisation.clip is not None:
            clip_grads_with_norm_(with_gradient, self.optimisation.clip, norm)
        if self.scaler is None:
            self.optimiser.step()
        else:
            self.scaler.step(self.optimiser)
            self.scaler.update()
        return norm.detach()

    def _read_window(self) -> list[dict[str, float]]:
        """The values of the steps since the last row, as numbers, and known to be good."""
        own = [{name: float(value) for name, value in values.items()} for values in self.window]
        # Each process has taken its loss over its own share of the batch.
        means = iter(average([value for row in own for value in row.values()]))
        read = [{name: next(means) for name in row} for row in own]
        # A GradScaler takes an overflow of the gradients in its stride: it leaves the step out and scales less.
        watched = ("loss",) if self.scaler is not None else ("loss", "gradient_norm")
        start = self.done - len(read)
        bad = next((place for place, row in enumerate(read) if any(not math.isfinite(row[key]) for key in watched)), -1)
        first_bad = int(agree([float(start + bad if bad >= 0 else -1)])[0])
        if first_bad >= 0:
            shown = read[min(first_bad - start, len(read) - 1)]
            self._diverge(first_bad, ", ".join(f"{key} {shown[key]:g}" for key in watched))
        if self.scaler is not None and self.scaler.get_scale() < _SMALLEST_SCALE:
            self._diverge(self.done - 1, "the gradients overflow at every loss scale")
        self.window = [dict[str, float | Tensor](row) for row in read]
        return read

    def _diverge(self, number: int, what: str) -> NoReturn:
        left = self.folder.checkpoints.steps()
        kept = f"the checkpoint of step {left[0]} is good and stays" if left else "there was no checkpoint yet"
        self.folder.event(event="diverged", step=number + 1, what=what)
        raise TrainingDiverged(
            f"training diverged in step {number + 1} ({self.task.describe(number)}): {what}; {kept}. Lower the learning"
            f" rate (now {self.optimisation.learning_rate:g}) or lengthen the warm-up, take bf16 or fp32 instead of"
            " fp16, and look at that batch; changed settings train into another root"
        )

    def _log(self) -> None:
        read = self._read_window()
        names = {name: None for row in read for name in row}
        means = {name: mean for name in names if (mean := _mean(row[name] for row in read if name in row)) is not None}
        self.row = {
            "step": self.done,
            "elapsed": round(time.monotonic() - self.started, 3),
            "learning_rate": self.rate,
            **means,
        }
        self.window = []
        if self.first:
            self.folder.curves.append(self.row)

    def _stop(self, why: str) -> NoReturn:
        self._save()
        self.folder.event(event="stopped", step=self.done, why=why)
        of = f" of {self.plan.steps}" if self.plan.steps else ""
        raise TrainingStopped(
            f"training stopped after step {self.done}{of} because {why}; its checkpoint is in"
            f" {self.folder.checkpoints.path}: go on with the same command and --resume"
        )

    def _save(self) -> None:
        if self.saved == self.done:
            return
        window = self._read_window()
        state = self.task.state()
        if any(not bool(torch.isfinite(one).all()) for one in state.values() if one.is_floating_point()):
            self._diverge(max(0, self.done - 1), "a weight is not finite")
        generators = [json.loads(one) for one in gather_bytes(json.dumps(random_state()).encode("ascii"))]
        checkpoint = Checkpoint(
            step=self.done,
            elapsed=time.monotonic() - self.started,
            state=state,
            optimiser=dict(moments(self.optimiser, self.names)),
            random=generators,
            extra={"window": window, "scaler": self.scaler.state_dict() if self.scaler is not None else None},
        )
        # A checkpoint must not outlive the rows of the curves before it.
        in_first(self.folder.curves.sync)
        in_first(lambda: self.folder.checkpoints.save(checkpoint))
        self.folder.event(event="checkpoint", step=self.done)
        self.saved = self.done

    def _newest_checkpoint(self) -> Checkpoint | None:
        chosen = in_first(self._choose_checkpoint)
        step = int(agree([float(chosen.step if chosen else -1)])[0])
        return chosen if self.first or step < 0 else self.folder.checkpoints.load(step)

    def _choose_checkpoint(self) -> Checkpoint | None:
        checkpoint, damaged = self.folder.checkpoints.load_newest()
        for what in damaged:
            self.folder.event(event="damaged checkpoint", what=what, taken=checkpoint.step if checkpoint else None)
        for step in self.folder.checkpoints.steps():
            if checkpoint is not None and step > checkpoint.step:
                self.folder.checkpoints.discard(step)
        return checkpoint

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        rank, size = world()
        if len(checkpoint.random) != size:
            raise RunError(
                f"the checkpoint of step {checkpoint.step} was written by {len(checkpoint.random)} processes and this"
                f" is a run of {size}: resume with as many as before, or train into another root"
            )
        self.done = self.saved = checkpoint.step
        self.elapsed = checkpoint.elapsed
        self.window = [dict(row) for row in checkpoint.extra["window"]]
        load_moments(self.optimiser, self.names, checkpoint.optimiser)
        if self.scaler is not None and checkpoint.extra["scaler"] is not None:
            self.scaler.load_state_dict(checkpoint.extra["scaler"])
        # Last, so that nothing above has drawn from them.
        restore_random_state(checkpoint.random[rank])


def _mean(values: Iterator[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None
