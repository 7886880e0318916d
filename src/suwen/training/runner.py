"""Runs the stages of a recipe in order: keeps what is finished, links what another run has done, and reports."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from suwen.errors import SuwenError
from suwen.training.loop.journal import Journal, Report, StageReport, is_finished, metrics_of
from suwen.training.recipe.estimate import require_disk, smaller
from suwen.training.recipe.identity import differences, digest, identity, require_inputs
from suwen.training.recipe.recipe_file import require_data, wanted_stages
from suwen.training.recipe.settings import Recipe
from suwen.training.recipe.stand_in import stand_in, with_builtins

#: Called with the stage's name, the steps done and in all, and the curves' last values.
StageProgress = Callable[[str, int, int, Mapping[str, float]], None]
#: Does one stage; given the context and the stage's settings.
RunStage = Callable[[Any, Any], Mapping[str, Any]]
_POLL_SECONDS = 0.5


class TrainError(SuwenError):
    """A run that cannot go on as it was asked to."""


def train(
    recipe: Recipe,
    root: Path | str,
    *,
    seed: int | None = None,
    resume: bool = False,
    device: str | None = None,
    only: Sequence[str] | None = None,
    dry_run: bool = False,
    progress: StageProgress | None = None,
    told: Callable[[StageReport], None] | None = None,
    stop: Callable[[], bool] | None = None,
    stages: Mapping[str, RunStage] | None = None,
) -> Report:
    """Run a recipe into ``ROOT/<recipe>/s<seed>/<stage>/`` and write ``report.json`` and ``report.md`` beside them.

    Args:
        recipe: A checked recipe.
        root: The folder of all runs; stages that another run under it has finished are linked, not done again.
        seed: Of the run; the recipe's where none is given.
        resume: Go on with an unfinished stage.
        device: Where to compute; a GPU when there is one.
        only: The stages to run, by name; those they start from must be finished.
        dry_run: Replace models by tiny ones of the same architectures and data by a few texts, two steps a stage.
        progress: Told of every logged step.
        told: Told of every stage that is done.
        stop: Asked between steps; true ends the run with a checkpoint.
        stages: What runs each kind of stage; the product's own where none is given.

    Raises:
        TrainError: an unfinished stage without ``resume``, or a stage that was done with other settings or data.
        RecipeError: data that are not named, or an unknown name in ``only``.
        EstimateError: too little room on the disk.
    """
    device = _join_processes(device)
    recipe, root = _prepared(recipe, Path(root), dry_run=dry_run)
    seed = recipe.seed if seed is None else seed
    wanted = wanted_stages(recipe, only)
    run = _Run(recipe, root, seed, resume, stop, stages if stages is not None else _product_stages())
    run.context = run.make_context(device, progress)
    require_disk(recipe, run.folder, wanted)
    require_inputs(recipe, wanted)
    done: list[StageReport] = []
    stopped = ""
    for name in wanted:
        try:
            one = run.do(name)
        except _stopped_errors() as problem:
            stopped = str(problem)
            break
        done.append(one)
        if told is not None:
            told(one)
        if stop is not None and stop() and name != wanted[-1]:
            stopped = f"stopped after the stage '{name}': the same command with --resume goes on"
            break
    report = Report(recipe.name, seed, run.folder, tuple(done), stopped=stopped)
    if run.first:
        report.write()
    return report


class _Run:
    """One run under way."""

    def __init__(
        self,
        recipe: Recipe,
        root: Path,
        seed: int,
        resume: bool,
        stop: Callable[[], bool] | None,
        stages: Mapping[str, RunStage],
    ) -> None:
        self.recipe, self.root, self.seed, self.resume, self.stop, self.stages = (
            recipe,
            root,
            seed,
            resume,
            stop,
            stages,
        )
        self.folder = root / recipe.name / f"s{seed}"
        self.journal = Journal(self.folder / "stages.json")
        self.context: Any = None

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        from suwen.training.loop.processes import world

        return world()[0] == 0

    def make_context(self, device: str, progress: StageProgress | None) -> Any:
        """What the stages share."""
        from suwen.training.context import Context

        self.folder.mkdir(parents=True, exist_ok=True)
        return Context(
            recipe=self.recipe,
            root=self.folder,
            device=device,
            seed=self.seed,
            # Whether an unfinished stage may go on is settled here, where every stage is looked at before it runs.
            resume=True,
            progress=progress,
            stop=self.stop,
            shared=self.root,
        )

    def do(self, name: str) -> StageReport:
        """Keep, link or run one stage."""
        found = identity(self.recipe, name, self.seed)
        key = digest(found)
        kind = self.recipe.stage(name).stage
        # Two runs side by side want the same teacher: one computes it, the other waits and links it.
        with self._alone(key):
            how = self._agreed(lambda: self._settle(name, found, key))
            if how == "run":
                with _memory_to_go_by(name, kind, self.context.device):
                    self._seed(name)
                    self._time(name, found, key, lambda: self.stages[kind](self.context, self.recipe.stage(name)))
                self._wait_for_first()
                if not is_finished(self.folder / name):
                    raise TrainError(f"the stage '{name}' ended without a metrics.json; run again with --resume")
        return StageReport(name, kind, self.journal.seconds(name), metrics_of(self.folder / name), how)

    def _wait_for_first(self) -> None:
        """What a stage leaves is written by the first process."""
        from suwen.training.loop.processes import wait_for_all

        wait_for_all()

    def _seed(self, name: str) -> None:
        """What a stage draws without a generator of its own, such as dropout, follows from its seed alone."""
        import torch

        torch.manual_seed(self.context.seed_of(self.recipe.stage(name)))

    def _time(self, name: str, found: dict[str, Any], key: str, run: Callable[[], Any]) -> None:
        """Run something and add its time to the stage's, even when it is stopped."""
        started = time.monotonic()
        try:
            run()
        finally:
            if self.first:
                self.journal.record(name, key, found, time.monotonic() - started + self.journal.seconds(name))

    def _settle(self, name: str, found: dict[str, Any], key: str) -> str:
        """Whether to keep, link or run a stage, by the first process."""
        place = self.folder / name
        self._refuse_changes(name, found, key)
        if is_finished(place):
            if self.journal.key(name) is None:
                self.journal.record(name, key, found, 0.0)
            return "kept"
        if place.exists() and any(place.glob("config.json")) and not self.resume:
            raise TrainError(f"the stage '{name}' is unfinished in {place}: go on with --resume, or delete that folder")
        other = None if place.exists() else find_finished(self.root, key, but=self.folder)
        if other is not None:
            place.symlink_to(os.path.relpath(other[0].resolve(), self.folder.resolve()), target_is_directory=True)
            self.journal.record(name, key, found, other[1])
            return "linked"
        self.journal.record(name, key, found, self.journal.seconds(name))
        return "run"

    def _refuse_changes(self, name: str, found: dict[str, Any], key: str) -> None:
        before = self.journal.key(name)
        if before is None or before == key or not (self.folder / name).exists():
            return
        changes = differences(self.journal.identity(name), found)
        raise TrainError(
            f"the stage '{name}' in {self.folder} was done with other settings or data:\n  "
            + "\n  ".join(changes[:12])
            + "\nchange them back, train into another --out, or delete its folder and those of the stages after it"
        )

    def _agreed(self, settle: Callable[[], str]) -> str:
        """What the first process decides, in every process; its error too, or the others would wait for ever."""
        from suwen.training.loop.processes import gather_bytes

        problem: SuwenError | None = None
        how = ""
        if self.first:
            try:
                how = settle()
            except SuwenError as refused:
                problem = refused
        how = gather_bytes(how.encode())[0].decode()
        if problem is not None:
            raise problem
        if not how:
            raise TrainError("the first process could not go on: its own message says why")
        self.journal.reload()
        return how

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        if not self.first:
            yield
            return
        locks = self.root / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / key).open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self.stop is not None and self.stop():
                        raise WaitStopped("stopped while another run computed a stage that both share") from None
                    time.sleep(_POLL_SECONDS)
            yield


@contextmanager
def _memory_to_go_by(name: str, kind: str, device: str) -> Iterator[None]:
    """A stage that did not fit into memory ends with what makes it smaller, not with a trace of torch's."""
    import torch

    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        # torch has a type for a full GPU alone; of a full machine it only says who found it full.
        full = isinstance(problem, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(problem)
        if not full:
            raise
        raise TrainError(
            f"the memory of {device} ran out in the stage '{name}': {smaller(name, kind)}; see that nothing else fills "
            "it; then go on with --resume"
        ) from problem


class WaitStopped(SuwenError):
    """The run was asked to stop while it waited for another one."""


def find_finished(root: Path, key: str, *, but: Path | None = None) -> tuple[Path, float] | None:
    """A finished stage with the same identity under a root: its folder and the seconds it took."""
    for file in sorted(root.glob("*/s*/stages.json")):
        if file.parent == but:
            continue
        journal = Journal(file)
        for name in journal.names():
            if journal.key(name) == key and is_finished(file.parent / name):
                return file.parent / name, journal.seconds(name)
    return None


def _prepared(recipe: Recipe, root: Path, *, dry_run: bool) -> tuple[Recipe, Path]:
    from suwen.training.loop.processes import in_first

    if dry_run:
        root = root / "dry-run"
        # Made by a dry run before: it holds nothing anyone wants back.
        in_first(lambda: shutil.rmtree(root) if root.is_dir() else None)
        return in_first(lambda: stand_in(recipe, root / "stand-in")) or stand_in(recipe, root / "stand-in"), root
    require_data(recipe)
    # What is made on the way is made by the first process; the others find it.
    return in_first(lambda: with_builtins(recipe, root / "builtin")) or with_builtins(recipe, root / "builtin"), root


def _product_stages() -> Mapping[str, RunStage]:
    from suwen.training.stages import RUN

    stages: Mapping[str, RunStage] = RUN
    return stages


def _stopped_errors() -> tuple[type[Exception], ...]:
    from suwen.training.loop.training_loop import TrainingStopped

    return (TrainingStopped, WaitStopped)


def _join_processes(device: str | None) -> str:
    """Join the other processes that `accelerate launch` started, if any, and choose the device."""
    import torch
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK", "0"))
    gpu = torch.cuda.is_available() and device != "cpu"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if gpu:
            torch.cuda.set_device(local)
        # The first process may measure and write for hours, in which the others wait; a launcher ends them if it dies.
        dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(days=7))
        atexit.register(dist.destroy_process_group)
    if device is not None:
        return device
    return f"cuda:{local}" if gpu else "cpu"


def read_report(folder: Path) -> dict[str, Any] | None:
    """The ``report.json`` of a run, or None when it has none yet."""
    file = folder / "report.json"
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
