"""The loop on a small real network: exact resumes, divergence, stops, schedules, damaged checkpoints, processes."""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from small_task import CONFIG, INPUTS, SmallTask, events, train, train_together

from suwen.training.loop.checkpoints import CheckpointError, Checkpoints
from suwen.training.loop.run_folder import RunError, RunFolder
from suwen.training.loop.training_loop import TrainingDiverged, TrainingStopped, optimise
from suwen.training.recipe.key_groups import Optimisation


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallTask, Path]:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    return train(SmallTask(), path), path


def curves(path: Path) -> list[dict[str, float]]:
    """The rows, without the one column in which no two runs agree."""
    rows = RunFolder(path).curves.rows()
    return [{name: value for name, value in row.items() if name != "elapsed"} for row in rows]


def stop_after(task: SmallTask, path: Path, step: int, **options) -> None:
    seen: list[int] = []
    task.before = seen.append
    with pytest.raises(TrainingStopped, match=f"after step {step} of 20 because it was asked to.*--resume"):
        train(task, path, stop=lambda: len(seen) >= step, **options)


def test_training_learns_and_tells_its_curves(undisturbed) -> None:
    task, path = undisturbed
    rows = RunFolder(path).curves.rows()
    assert [row["step"] for row in rows] == [4, 8, 12, 16, 20]
    assert set(rows[0]) == {"step", "elapsed", "learning_rate", "loss", "number", "gradient_norm"}
    assert [row["number"] for row in rows] == [1.5, 5.5, 9.5, 13.5, 17.5]
    fresh = SmallTask().weights()
    assert all(task.weights()[name] != fresh[name] for name in fresh)
    assert Checkpoints(path / "checkpoints").steps() == [20, 18]


def test_the_loss_falls(tmp_path: Path) -> None:
    train(SmallTask(dropout=0.0), tmp_path / "run", steps=300, log_every=50, checkpoint_every=0)
    losses = [row["loss"] for row in curves(tmp_path / "run")]
    assert losses[-1] < 0.7 * losses[0]


def test_no_step_runs_the_attention_whose_gradients_may_be_nan(tmp_path: Path) -> None:
    task, seen = SmallTask(), []
    task.before = lambda number: seen.append(torch.backends.cuda.cudnn_sdp_enabled())
    before = torch.backends.cuda.cudnn_sdp_enabled()
    train(task, tmp_path / "run", steps=2)
    assert before and seen == [False, False] and torch.backends.cuda.cudnn_sdp_enabled(), "and it is put back"


@pytest.mark.parametrize("step", [0, 1, 3, 7, 12, 19])
def test_a_stopped_run_goes_on_bit_for_bit(undisturbed, tmp_path: Path, step: int) -> None:
    stop_after(SmallTask(), tmp_path / "run", step)
    np.random.rand(3)
    resumed = SmallTask(seed=0)
    with torch.no_grad():
        for one in resumed.net.parameters():
            one.fill_(7.0)
    torch.rand(5)
    train(resumed, tmp_path / "run", resume=True)
    assert resumed.weights() == undisturbed[0].weights()
    assert curves(tmp_path / "run") == curves(undisturbed[1])


def test_a_trained_run_is_not_trained_again(tmp_path: Path, undisturbed) -> None:
    train(SmallTask(), tmp_path / "run")
    again, seen = SmallTask(seed=5), []
    again.before = seen.append
    train(again, tmp_path / "run", resume=True)
    assert seen == []
    assert again.weights() == undisturbed[0].weights()


def test_a_signal_stops_with_a_checkpoint_and_leaves_the_handlers(tmp_path: Path, undisturbed) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.signal(number, signal.default_int_handler)
        path = tmp_path / number.name
        task = SmallTask()
        task.before = lambda step, number=number: os.kill(os.getpid(), number) if step == 9 else None
        with pytest.raises(TrainingStopped, match=f"after step 10 of 20 because of the signal {number.name}"):
            train(task, path)
        assert signal.signal(number, handler) is signal.default_int_handler
        assert train(SmallTask(), path, resume=True).weights() == undisturbed[0].weights()


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        task = SmallTask()
        task.before = lambda step: os.kill(os.getpid(), signal.SIGHUP) if step == 2 else None
        train(task, tmp_path / "run")
    finally:
        signal.signal(signal.SIGHUP, handler)
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps()[0] == 20


@pytest.mark.parametrize(("nan_at", "kept"), [(0, []), (5, [3]), (6, [6, 3]), (13, [12, 9])])
def test_nan_stops_and_the_last_checkpoint_is_from_before_it(tmp_path: Path, nan_at: int, kept: list[int]) -> None:
    task = SmallTask(nan_at=nan_at)
    with pytest.raises(TrainingDiverged) as caught:
        train(task, tmp_path / "run")
    assert f"in step {nan_at + 1} (batch {nan_at} of the small task): loss nan" in str(caught.value)
    assert "Lower the learning rate" in str(caught.value)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    assert checkpoints.steps() == kept
    for step in kept:
        assert all(bool(one.isfinite().all()) for one in checkpoints.load(step).state.values())
    assert events(tmp_path / "run")[-1]["event"] == "diverged"


def test_nan_in_the_very_last_step_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged, match="in step 19"):
        train(SmallTask(nan_at=18), tmp_path / "run", steps=19, checkpoint_every=0, log_every=100)
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == []


def test_weights_that_overflow_are_not_saved(tmp_path: Path) -> None:
    class Spoilt(SmallTask):
        def step(self, number: int) -> dict[str, float | Tensor]:
            values = super().step(number)
            if number == 4:
                with torch.no_grad():
                    self.net[0].weight[0, 0] = math.inf
            return values

    with pytest.raises(TrainingDiverged, match="a weight is not finite; the checkpoint of step 3 is good"):
        train(Spoilt(), tmp_path / "run", log_every=100, steps=5)


@pytest.mark.parametrize("file", ["state.safetensors", "optimiser.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_checkpoint_is_left_out_and_told_of(tmp_path: Path, undisturbed, file: str, damage: str) -> None:
    stop_after(SmallTask(), tmp_path / "run", 8)
    newest = tmp_path / "run" / "checkpoints" / "step-000000008" / file
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.unlink() if damage == "gone" else newest.write_bytes(data[: len(data) // 2] if damage == "cut" else data)
    task, seen = SmallTask(), []
    task.before = seen.append
    train(task, tmp_path / "run", resume=True)
    assert seen[0] == 6
    assert task.weights() == undisturbed[0].weights()
    assert curves(tmp_path / "run") == curves(undisturbed[1])
    told = [one for one in events(tmp_path / "run") if one["event"] == "damaged checkpoint"]
    assert len(told) == 1 and "step-000000008" in told[0]["what"] and told[0]["taken"] == 6


def test_with_all_checkpoints_damaged_nothing_starts_over_in_silence(tmp_path: Path) -> None:
    stop_after(SmallTask(), tmp_path / "run", 8)
    for file in (tmp_path / "run" / "checkpoints").glob("*/state.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read.*delete that folder"):
        train(SmallTask(), tmp_path / "run", resume=True)


def test_a_full_disk_keeps_the_older_checkpoints(tmp_path: Path, undisturbed) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    task = SmallTask()

    def fill(step: int) -> None:
        # From here on no file may grow past a few hundred bytes, which ends a write as a full disk would.
        if step == 8:
            resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))

    task.before = fill
    try:
        with pytest.raises(CheckpointError, match=r"step 9 could not be written.*step 6 is untouched.*--resume"):
            train(task, tmp_path / "run", log_every=100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [one.name for one in (tmp_path / "run" / "checkpoints").iterdir() if one.name.startswith(".")] == []
    assert train(SmallTask(), tmp_path / "run", resume=True).weights() == undisturbed[0].weights()


def test_a_disk_without_room_is_refused_before_the_first_step(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match=r"needs 3,000,000,000,000 MB .* make room, or train into another root"):
        checkpoints.need_room(10**18)
    checkpoints.need_room(10)


def test_a_budget_of_seconds_counts_over_resumes(tmp_path: Path) -> None:
    stop_after(SmallTask(), tmp_path / "run", 5)
    spent = Checkpoints(tmp_path / "run" / "checkpoints").load(5).elapsed
    task = train(SmallTask(), tmp_path / "run", resume=True, budget_seconds=spent)
    assert [row["step"] for row in curves(tmp_path / "run")] == [4, 5]
    assert task.weights() != SmallTask().weights()


def test_a_budget_of_seconds_ends_the_training_and_lowers_the_learning_rate(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS) as folder:
        plan, told = Optimisation(learning_rate=0.01, warmup=0.0), []
        done = optimise(
            SmallTask(),
            folder,
            steps=None,
            optimisation=plan,
            budget_seconds=0.3,
            log_every=1,
            progress=lambda done, total, row: told.append((done, total)),
        )
    rates = [row["learning_rate"] for row in curves(tmp_path / "run")]
    assert len(rates) == done == Checkpoints(tmp_path / "run" / "checkpoints").steps()[0]
    assert rates == sorted(rates, reverse=True)
    assert told[0] == (1, 0)
    assert RunFolder(tmp_path / "run").curves.rows()[-1]["elapsed"] >= 0.2


def test_a_training_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="give the number of steps, or a budget"):
        train(SmallTask(), tmp_path / "run", steps=None)


class Overflowing(SmallTask):
    """Its gradients overflow in some steps."""

    def __init__(self, steps: range, **settings) -> None:
        super().__init__(**settings)
        self.steps = steps

    def step(self, number: int) -> dict[str, float | Tensor]:
        values = super().step(number)
        if number in self.steps:
            self.net[0].weight.grad[0, 0] = math.inf
        return values


def test_loss_scaling_survives_an_overflow_and_a_resume(tmp_path: Path) -> None:
    def task() -> Overflowing:
        return Overflowing(range(5, 7), scaler=torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4))

    whole = train(task(), tmp_path / "whole")
    # Doubled after step 4, halved in steps 6 and 7, doubled three times by step 19.
    assert whole.scaler.get_scale() == 4096.0
    stop_after(task(), tmp_path / "run", 9)
    resumed = train(task(), tmp_path / "run", resume=True)
    assert resumed.weights() == whole.weights()
    assert resumed.scaler.state_dict() == whole.scaler.state_dict()
    assert curves(tmp_path / "run") == curves(tmp_path / "whole")


def test_without_loss_scaling_an_overflow_of_the_gradients_is_a_divergence(tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged, match=r"in step 6 .*gradient_norm inf"):
        train(Overflowing(range(5, 6)), tmp_path / "run")


def test_a_loss_scale_that_falls_for_ever_is_a_divergence(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1e-3, backoff_factor=0.5)
    with pytest.raises(TrainingDiverged, match="overflow at every loss scale"):
        train(Overflowing(range(20), scaler=scaler), tmp_path / "run", checkpoint_every=0)


def test_each_group_has_its_own_learning_rate(tmp_path: Path) -> None:
    class Still(SmallTask):
        def groups(self):
            wide, flat = super().groups()
            return [wide, {**flat, "factor": 0.0}]

    task, fresh = train(Still(), tmp_path / "run"), SmallTask().weights()
    changed = {name for name, data in task.weights().items() if data != fresh[name]}
    assert changed == {"0.weight", "3.weight"}


def test_clipping_bounds_the_step_and_the_curve_tells_the_norm_before_it(tmp_path: Path) -> None:
    norms = {}
    for clip in (None, 1e-3):
        with RunFolder.open(tmp_path / str(clip), CONFIG, INPUTS) as folder:
            task = SmallTask()
            optimise(task, folder, steps=1, optimisation=Optimisation(learning_rate=0.01, clip=clip), log_every=1)
            after = math.sqrt(sum(float(one.grad.square().sum()) for one in task.net.parameters()))
            norms[clip] = (folder.curves.rows()[0]["gradient_norm"], after)
    assert norms[None][0] == norms[1e-3][0] == pytest.approx(norms[None][1])
    assert norms[1e-3][1] == pytest.approx(1e-3, rel=1e-3)


def test_a_task_that_would_lose_weights_or_learns_nothing_is_refused(tmp_path: Path) -> None:
    class Forgetful(SmallTask):
        def state(self):
            return {name: one for name, one in super().state().items() if name != "3.bias"}

    class Lazy(SmallTask):
        def step(self, number: int):
            return {"loss": 0.0}

    with pytest.raises(RunError, match=r"shape \(1,\) is not in Task.state"):
        train(Forgetful(), tmp_path / "forgetful")
    with pytest.raises(RunError, match="step 1 left no gradient"):
        train(Lazy(), tmp_path / "lazy")


def test_tied_weights_are_saved_under_both_names(tmp_path: Path) -> None:
    class Tied(SmallTask):
        def state(self):
            return {**super().state(), "again": self.net[0].weight}

        def load_state(self, state):
            assert torch.equal(state.pop("again"), state["0.weight"])
            super().load_state(state)

    stop_after(Tied(), tmp_path / "run", 5)
    assert train(Tied(), tmp_path / "run", resume=True).weights() == train(Tied(), tmp_path / "whole").weights()


@given(
    st.sampled_from(["linear", "cosine", "constant"]),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_the_learning_rate_climbs_then_never_rises(schedule, warmup: float, one: float, other: float) -> None:
    plan = Optimisation(learning_rate=0.5, warmup=warmup, schedule=schedule)
    low, high = sorted((one, other))
    assert 0 <= plan.factor(low) <= 1
    if high < warmup:
        assert plan.factor(low) <= plan.factor(high)
    if low >= warmup:
        assert plan.factor(low) >= plan.factor(high)


def test_the_schedules_end_where_they_should() -> None:
    ends = {
        name: Optimisation(learning_rate=0.5, schedule=name).factor(1.0) for name in ("linear", "cosine", "constant")
    }
    assert ends == {"linear": 0.0, "cosine": 0.0, "constant": 1.0}
    assert Optimisation(learning_rate=0.5, warmup=0.0).factor(0.0) == 1.0
    assert Optimisation(learning_rate=0.5, warmup=0.0, schedule="cosine").factor(0.5) == pytest.approx(0.5)


def _close(one: dict[str, bytes], other: dict[str, bytes]) -> bool:
    return all(
        np.allclose(np.frombuffer(one[name], np.float32), np.frombuffer(other[name], np.float32), atol=1e-5)
        for name in other
    )


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    alone = train(SmallTask(dropout=0.0), tmp_path / "alone").weights()
    first, second = train_together(tmp_path / "two", 2, dropout=0.0)
    assert first == second
    assert _close(first, alone)
    assert [row["step"] for row in curves(tmp_path / "two")] == [4, 8, 12, 16, 20]


def test_two_processes_stop_together_and_go_on_bit_for_bit(tmp_path: Path) -> None:
    whole = train_together(tmp_path / "whole", 2)
    told = train_together(tmp_path / "run", 2, stop_at=6)
    # Asked after step 6, the processes agree on it at the next row of the curves.
    assert all(one.startswith("TrainingStopped: training stopped after step 8 of 20") for one in told)
    refused = train_together(tmp_path / "run", 2)
    assert "--resume" in refused[0] and refused[1].startswith("ProcessError: the first process has failed")
    assert train_together(tmp_path / "run", 2, resume=True) == whole
    with pytest.raises(RunError, match="written by 2 processes"):
        train(SmallTask(), tmp_path / "run", resume=True)
