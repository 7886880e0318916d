"""A run's folder: what begins, finishes, goes on, and is refused."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from small_task import events

from suwen.training.loop.checkpoints import Checkpoint
from suwen.training.loop.run_folder import RunError, RunFolder, versions

CONFIG = {"stage": "align", "training": {"learning_rate": 1e-4, "steps": 20, "betas": (0.9, 0.99)}, "kinds": ["query"]}
INPUTS = {"rows.web": "1f" * 32, "stage.document": "2e" * 32}


def changed(**training) -> dict:
    return {**CONFIG, "training": {**CONFIG["training"], **training}}


def test_a_run_tells_what_was_asked_and_what_it_runs_on(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "a" / "b", CONFIG, INPUTS) as folder:
        assert not folder.finished
        assert folder.config == json.loads(json.dumps(CONFIG))
        assert folder.model == tmp_path / "a" / "b" / "model" and not folder.model.exists()
    assert json.loads((tmp_path / "a" / "b" / "inputs.json").read_text()) == INPUTS
    told = json.loads((tmp_path / "a" / "b" / "versions.json").read_text())
    assert told["torch"] == torch.__version__ and told["processes"] == 1 and told["device"]
    assert {"suwen", "python", "transformers", "sentence-transformers"} <= set(told)


def test_a_finished_run_is_found_again(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS) as folder:
        folder.curves.append({"step": 1, "loss": 2.0})
        folder.curves.append({"step": 2, "loss": 1.5})
        folder.checkpoints.save(Checkpoint(1, 0.0, {"w": torch.ones(2)}))
        with pytest.raises(RunError, match="not finished"):
            _ = folder.metrics
        folder.finish({"ndcg": 0.5, "steps": 2})
        assert folder.finished
    for resume in (False, True):
        again = RunFolder.open(tmp_path / "run", CONFIG, INPUTS, resume=resume)
        assert again.finished and again.metrics == {"ndcg": 0.5, "steps": 2}
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert [event["event"] for event in events(again.path)] == ["begun", "finished"]


def test_an_unfinished_run_goes_on_only_when_asked_to(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", CONFIG, INPUTS).close()
    with pytest.raises(RunError, match=r"unfinished run.*--resume, or train into another root"):
        RunFolder.open(tmp_path / "run", CONFIG, INPUTS)
    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS, resume=True) as folder:
        assert not folder.finished
        assert events(folder.path)[-1]["event"] == "opened again"
        assert events(folder.path)[-1]["versions_changed"] == {}


@pytest.mark.parametrize("finished", [False, True])
def test_other_results_of_earlier_stages_are_refused_with_the_difference(tmp_path: Path, finished: bool) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS) as folder:
        if finished:
            folder.finish({})
    with pytest.raises(RunError) as caught:
        RunFolder.open(tmp_path / "run", CONFIG, {**INPUTS, "rows.web": "3d" * 32}, resume=True)
    assert str(caught.value).splitlines()[1:-1] == [f"  rows.web: {'1f' * 32} -> {'3d' * 32}"]
    fix = str(caught.value).splitlines()[-1]
    assert "another root" in fix and "put the old ones back" in fix
    assert (folder.path / "metrics.json").exists() == finished


def test_what_an_older_version_noted_beside_the_results_of_stages_is_no_difference(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", CONFIG, INPUTS).close()
    now = {"stage.document": INPUTS["stage.document"], "stage.vectors": "4c" * 32}
    RunFolder.open(tmp_path / "run", CONFIG, now, resume=True).close()


def test_settings_that_have_changed_are_written_down_when_it_goes_on(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", CONFIG, INPUTS).close()
    more = changed(steps=30)
    with RunFolder.open(tmp_path / "run", more, INPUTS, resume=True) as folder:
        assert events(folder.path)[-1]["config_changed"] == {"training.steps": "20 -> 30"}
        assert folder.config["training"]["steps"] == 30


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("chapter one")
    with pytest.raises(RunError, match=r"no run folder and holds thesis\.txt"):
        RunFolder.open(tmp_path, CONFIG, INPUTS)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_beginning_that_was_cut_short_begins_again(tmp_path: Path) -> None:
    (tmp_path / "versions.json").write_text("{}")
    (tmp_path / ".config.json.77.tmp").write_text('{"sta')
    with RunFolder.open(tmp_path, CONFIG, INPUTS) as folder:
        assert folder.config["stage"] == "align"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", CONFIG, INPUTS).close()
    (tmp_path / "run" / "inputs.json").write_text("{")
    with pytest.raises(RunError, match=r"inputs\.json cannot be read"):
        RunFolder.open(tmp_path / "run", CONFIG, INPUTS, resume=True)


def test_two_may_not_train_in_one_folder(tmp_path: Path) -> None:
    first = RunFolder.open(tmp_path / "run", CONFIG, INPUTS)
    with pytest.raises(RunError, match="already open in this process"):
        RunFolder.open(tmp_path / "run", CONFIG, INPUTS, resume=True)
    code = (
        "import sys, json\nfrom suwen.training.loop.run_folder import RunFolder, RunError\n"
        "try:\n    RunFolder.open(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), resume=True)\n"
        "except RunError as refused:\n    sys.stdout.write(str(refused))"
    )
    arguments = [str(tmp_path / "run"), json.dumps(CONFIG), json.dumps(INPUTS)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"process {os.getpid()} trains in")
    first.close()
    RunFolder.open(tmp_path / "run", CONFIG, INPUTS, resume=True).close()


def test_a_forgotten_folder_does_not_stay_locked(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", CONFIG, INPUTS)
    RunFolder.open(tmp_path / "run", CONFIG, INPUTS, resume=True).close()


def test_a_model_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def save(folder: Path, text: str = "first") -> None:
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_text(text)

    def break_off(folder: Path) -> None:
        save(folder)
        raise InterruptedError

    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS) as folder:
        with pytest.raises(InterruptedError):
            folder.leave(break_off)
        assert not folder.model.exists()
        measured = folder.leave(save, lambda: {"weights": len((folder.model / "deep" / "weights").read_text())})
        assert measured == {"weights": 5}
        with pytest.raises(InterruptedError):
            folder.leave(break_off)
        assert (folder.model / "deep" / "weights").read_text() == "first"
        folder.leave(lambda new: save(new, "second"))
        assert (folder.model / "deep" / "weights").read_text() == "second"
        assert [one.name for one in folder.path.iterdir() if one.name.startswith(".")] == []


def test_events_survive_a_torn_line(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS) as folder:
        with (folder.path / "events.jsonl").open("a") as stream:
            stream.write('{"time": "2026-01-01T0')
        folder.event(event="after", 词="高血压")
        assert [event["event"] for event in events(folder.path)] == ["begun", "after"]
        assert events(folder.path)[-1]["词"] == "高血压"


def test_metrics_that_are_no_numbers_end_no_run(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS) as folder:
        folder.finish({"ndcg": float("nan"), "recall": 0.25})
    assert folder.metrics["ndcg"] is None and folder.metrics["recall"] == 0.25
    assert "ndcg is not a finite number" in folder.metrics["notes"]
    assert any("no curves" in note for note in folder.metrics["notes"])


def test_without_matplotlib_the_picture_is_left_out_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find(name))
    with RunFolder.open(tmp_path / "run", CONFIG, INPUTS) as folder:
        folder.curves.append({"step": 1, "loss": 2.0})
        folder.finish({"ndcg": 0.5})
    assert not (folder.path / "curves.png").exists()
    assert folder.metrics["notes"] == [
        "curves.png was left out: matplotlib is not installed (pip install 'suwen[eval]')"
    ]


def test_settings_have_to_be_plain(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="what JSON can hold"):
        RunFolder.open(tmp_path / "run", {"where": tmp_path}, INPUTS)
    assert not (tmp_path / "run").exists()


def test_versions_hold_what_json_can_hold() -> None:
    assert json.loads(json.dumps(versions())) == versions()
