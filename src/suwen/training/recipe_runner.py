"""Runs the stages of a recipe in order: keeps what is finished, links what another run has done, and reports."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suwen.durable import FileLock, Locked
from suwen.errors import SuwenError
from suwen.training.loop.journal import Journal, StageReport, TrainingReport, differences, is_finished
from suwen.training.loop.run_folder import RunFolder
from suwen.training.recipe.cost_estimate import require_disk
from suwen.training.recipe.data_files import require_inputs
from suwen.training.recipe.recipe_file import require_data, wanted_stages
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.stage_base import Stage
from suwen.training.recipe.stage_identity import digest, identity
from suwen.training.recipe.stand_in import stand_in, with_builtins

if TYPE_CHECKING:
    from suwen.training.run_context import RunContext, StageProgress

#: How long a run waits for another that computes the same stage: for as long as it takes.
_FOR_EVER = float("inf")


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
    on_stage: Callable[[StageReport], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainingReport:
    """Run a recipe into ``ROOT/<recipe>/s<seed>/<stage>/`` and write ``report.json`` and ``report.md`` beside them.

    Args:
        recipe: A checked recipe.
        root: The folder of all runs; stages that another run under it has finished are linked, not done again.
        seed: Of the run; the recipe's where none is given.
        resume: Go on with an unfinished stage.
        device: Where to compute; a GPU when there is one.
        only: The stages to run, by name; those they start from must be finished.
        dry_run: Replace models by tiny ones of the same architectures and data by a few texts, two steps a stage.
        progress: Called with every logged step.
        on_stage: Called with every stage that is done.
        stop: Asked between steps; true ends the run with a checkpoint.

    Raises:
        TrainError: an unfinished stage without ``resume``, or a stage that was done with other settings or data.
        RecipeError: data that are not named, or an unknown name in ``only``.
        EstimateError: too little room on the disk.
    """
    from suwen.training.loop.training_loop import TrainingStopped

    device = _join_processes(device)
    recipe, root = _prepared(recipe, Path(root), dry_run=dry_run)
    seed = recipe.seed if seed is None else seed
    wanted = wanted_stages(recipe, only)
    run = _Run(recipe, root, seed, resume, stop, device, progress)
    require_disk(recipe, run.folder, wanted)
    require_inputs(recipe, wanted)
    done: list[StageReport] = []
    stopped = ""
    for name in wanted:
        try:
            one = run.do(name)
        except TrainingStopped as problem:
            stopped = str(problem)
            break
        done.append(one)
        if on_stage is not None:
            on_stage(one)
        if stop is not None and stop() and name != wanted[-1]:
            stopped = f"stopped after the stage '{name}': the same command with --resume goes on"
            break
    followed = {key: one.under(recipe.faithful) for key, one in recipe.differs.items()}
    report = TrainingReport(recipe.name, seed, run.folder, tuple(done), stopped, recipe.faithful, followed)
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
        device: str,
        progress: StageProgress | None,
    ) -> None:
        from suwen.training.loop.processes import world
        from suwen.training.run_context import RunContext

        self.recipe, self.root, self.seed, self.resume, self.stop = recipe, root, seed, resume, stop
        self.folder = root / recipe.name / f"s{seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(self.folder / "stages.json")
        #: Whether this process is the one that writes.
        self.first = world()[0] == 0
        # Whether an unfinished stage may go on is settled here, where every stage is looked at before it runs.
        self.context: RunContext = RunContext(
            recipe, self.folder, device, seed, resume=True, progress=progress, stop=stop, shared=root
        )

    def do(self, name: str) -> StageReport:
        """Keep, link or run one stage."""
        stage: Stage = self.recipe.stage(name)
        depends = identity(self.recipe, name, self.seed)
        # Two runs side by side want the same teacher: one computes it, the other waits and links it.
        with self._alone(digest(depends)):
            how = self._agreed(lambda: self._settle(name, depends))
            if how == "run":
                self._run(stage, depends)
        metrics = json.loads((self.folder / name / "metrics.json").read_text(encoding="utf-8"))
        return StageReport(name, stage.stage, self.journal.seconds(name), metrics, how)

    def _run(self, stage: Stage, depends: dict[str, Any]) -> None:
        """Run a stage, and add its time to what it has taken before, even when it is stopped."""
        import torch

        from suwen.training.loop.processes import wait_for_all

        # What a stage draws without a generator of its own, such as dropout, follows from its seed alone.
        torch.manual_seed(self.context.seed_of(stage))
        started, before = time.monotonic(), self.journal.seconds(stage.name)
        try:
            with _full_memory_explained(stage, self.context.device):
                self.context.run(stage)
        finally:
            if self.first:
                self.journal.record(stage.name, digest(depends), depends, time.monotonic() - started + before)
        # What a stage had of the GPU, another run may need.
        torch.cuda.empty_cache()
        # What a stage leaves is written by the first process.
        wait_for_all()
        if not is_finished(self.folder / stage.name):
            raise TrainError(f"the stage '{stage.name}' ended without a metrics.json; run again with --resume")

    def _settle(self, name: str, depends: dict[str, Any]) -> str:
        """Whether to keep, link or run a stage, by the first process."""
        place, key = self.folder / name, digest(depends)
        self._refuse_changes(name, depends)
        if is_finished(place):
            if self.journal.key(name) is None:
                self.journal.record(name, key, depends, 0.0)
            return "kept"
        if (place / "config.json").exists():
            if not self.resume:
                raise TrainError(
                    f"the stage '{name}' is unfinished in {place}: go on with --resume, or delete that folder"
                )
            if self.journal.key(name) is None:
                raise TrainError(f"{self.journal.file} does not say what {place} was begun with: delete that folder")
        other = None if place.exists() else find_finished(self.root, key, but=self.folder)
        if other is not None:
            place.symlink_to(os.path.relpath(other[0].resolve(), self.folder.resolve()), target_is_directory=True)
            self.journal.record(name, key, depends, other[1])
            return "linked"
        self.journal.record(name, key, depends, self.journal.seconds(name))
        return "run"

    def _refuse_changes(self, name: str, depends: dict[str, Any]) -> None:
        before = self.journal.key(name)
        if before is None or before == digest(depends) or not (self.folder / name).exists():
            return
        if RunFolder.drop_barren(self.folder / name):
            return
        changes = differences(self.journal.stages[name]["identity"], depends)
        lines = [f"{key}: {old!r} before, {new!r} now" for key, (old, new) in changes.items()]
        raise TrainError(
            f"the stage '{name}' in {self.folder} was done with other settings or data:\n  "
            + "\n  ".join(lines[:12])
            + "\nchange them back, train into another --out, or delete its folder and those of the stages after it"
        )

    def _agreed(self, settle: Callable[[], str]) -> str:
        """What the first process decides, in every process; its error too, or the others would wait for ever."""
        from suwen.training.loop.processes import gather_bytes, in_first

        how = gather_bytes((in_first(settle) or "").encode())[0].decode()
        self.journal.reload()
        return how

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """Hold the lock of a piece of work that several runs may want."""
        if not self.first:
            yield
            return
        from suwen.training.loop.training_loop import TrainingStopped

        lock = FileLock(self.root / ".locks" / key)
        lock.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(_FOR_EVER, stop=self.stop)
        except Locked:
            raise TrainingStopped(
                "stopped while another run computed a stage that both share: go on with the same command and --resume"
            ) from None
        try:
            yield
        finally:
            lock.release()


@contextmanager
def _full_memory_explained(stage: Stage, device: str) -> Iterator[None]:
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
            f"the memory of {device} ran out in the stage '{stage.name}': {stage.less_memory}; make sure that nothing "
            "else fills it; then go on with --resume"
        ) from problem


def find_finished(root: Path, key: str, *, but: Path | None = None) -> tuple[Path, float] | None:
    """A finished stage with the same identity under a root: its folder and the seconds it took."""
    for file in sorted(root.glob("*/s*/stages.json")):
        if file.parent == but:
            continue
        for name, stage in Journal(file).stages.items():
            if stage["key"] == key and is_finished(file.parent / name):
                return file.parent / name, stage["seconds"]
    return None


def _prepared(recipe: Recipe, root: Path, *, dry_run: bool) -> tuple[Recipe, Path]:
    from suwen.training.loop.processes import in_first

    if dry_run:
        root = root / "dry-run"
        # Made by a dry run before: it holds nothing anyone wants back.
        in_first(lambda: shutil.rmtree(root) if root.is_dir() else None)
    else:
        require_data(recipe)

    def make() -> Recipe:
        return stand_in(recipe, root / "stand-in") if dry_run else with_builtins(recipe, root / "builtin")

    # What is made on the way is made by the first process; the others find it.
    return in_first(make) or make(), root


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
