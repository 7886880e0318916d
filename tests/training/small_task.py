"""A task small enough to train in a blink, and real processes that train it. No test lives here."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # an optimiser's first step would load it: seconds in every child, here once for all of them
from torch import Tensor, nn

from suwen.training.loop.processes import world
from suwen.training.loop.run_folder import RunFolder
from suwen.training.loop.training_loop import optimise
from suwen.training.recipe.key_groups import Optimisation

CONFIG = {"stage": "small", "training": {"learning_rate": 0.01, "steps": 20}}
INPUTS = {"rows": "a1b2"}
#: Eight rows a batch: two processes take four each.
_BATCH = 8


def events(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's ``events.jsonl`` that are whole."""
    found = []
    for line in (path / "events.jsonl").read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


class SmallTask:
    """A network with dropout, so that a lost random state shows, and one factor on a group's learning rate."""

    def __init__(self, *, seed: int = 0, dropout: float = 0.3, nan_at: int = -1, scaler: Any = None) -> None:
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 1))
        self.seed, self.nan_at, self.scaler = seed, nan_at, scaler
        self.before: Callable[[int], None] = lambda number: None

    def groups(self) -> list[dict[str, Any]]:
        flat = [one for one in self.net.parameters() if one.ndim == 1]
        wide = [one for one in self.net.parameters() if one.ndim > 1]
        return [{"params": wide}, {"params": flat, "weight_decay": 0.0, "factor": 0.5}]

    def state(self) -> dict[str, Tensor]:
        return dict(self.net.named_parameters())

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.net.load_state_dict(state)

    def step(self, number: int) -> dict[str, float | Tensor]:
        self.before(number)
        rank, size = world()
        draw = torch.Generator().manual_seed(1000 * self.seed + number)
        rows = torch.randn(_BATCH, 6, generator=draw)
        wanted = rows.sum(dim=1, keepdim=True).tanh()
        own = slice(rank * _BATCH // size, (rank + 1) * _BATCH // size)
        loss = (self.net(rows[own]) - wanted[own]).square().mean()
        if number == self.nan_at:
            loss = loss * float("nan")
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return {"loss": loss, "number": float(number)}

    def describe(self, number: int) -> str:
        return f"batch {number} of the small task"

    def weights(self) -> dict[str, bytes]:
        """Every bit of what is trained."""
        return {name: one.detach().numpy().tobytes() for name, one in self.state().items()}


def train(task: SmallTask, path: Path, *, resume: bool = False, steps: int = 20, **options: Any) -> SmallTask:
    """Train in a folder, and leave it unfinished."""
    plan = Optimisation(learning_rate=0.01, warmup=0.1)
    with RunFolder.open(path, CONFIG, INPUTS, resume=resume) as folder:
        optimise(task, folder, steps=steps, optimisation=plan, **{"log_every": 4, "checkpoint_every": 3, **options})
    return task


def train_in_process(tell: Connection, environment: dict[str, str], path: Path, settings: dict[str, Any]) -> None:
    """What a child does: train, tell of every step, then of the weights."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    distributed = "WORLD_SIZE" in environment
    if distributed:
        torch.distributed.init_process_group("gloo")
    task = SmallTask(seed=settings.pop("seed", 0), dropout=settings.pop("dropout", 0.3))
    stop_at = settings.pop("stop_at", None)
    task.before = tell.send
    done = [0]
    try:
        train(
            task,
            path,
            progress=lambda step, *_: done.__setitem__(0, step),
            stop=None if stop_at is None else lambda: done[0] >= stop_at,
            **settings,
        )
        tell.send(task.weights())
    except Exception as problem:
        tell.send(f"{type(problem).__name__}: {problem}")
    finally:
        if distributed:
            torch.distributed.destroy_process_group()


def start(path: Path, environment: dict[str, str] | None = None, **settings: Any) -> tuple[BaseProcess, Connection]:
    """A process that trains. A server that has torch loaded forks it: seconds saved on each, and a pid to kill."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=train_in_process, args=(theirs, environment or {}, path, settings), daemon=True)
    # The server takes its path from the environment alone; programs that other tests start must not.
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(one for one in sys.path if one)):
        child.start()
    theirs.close()
    return child, ours


def outcome(child: BaseProcess, told: Connection) -> Any:
    """The weights a child ended with, or what it complained of."""
    last: Any = None
    try:
        while True:
            last = told.recv()
    except EOFError:
        child.join()
    return last


def train_together(path: Path, size: int, **settings: Any) -> list[Any]:
    """The outcomes of several processes that train one task, started as a launcher would."""
    from held_port import held_port  # not known to the children, which import this module too

    with held_port() as port:
        common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        children = [start(path, {**common, "RANK": str(rank)}, **settings) for rank in range(size)]
        return [outcome(*child) for child in children]
