"""train and sweep from the command line."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = RECIPES / "care-tiny.yaml"
Suwen = Callable[..., Any]


def test_an_estimate_is_told_and_nothing_is_run(suwen: Suwen, tmp_path: Path) -> None:
    done = suwen("train", RECIPES / "care.yaml", "--estimate", "--device", "cuda", "--json")
    assert done.code == 0
    stages = {stage["name"]: stage for stage in done.json["stages"]}
    assert stages["document"]["parameters"] == 4_022_000_000
    shown = suwen("train", TINY, "--estimate", "--out", tmp_path / "runs")
    assert shown.code == 0 and "align-static" in shown.out and "of memory" in shown.err
    assert max(map(len, shown.out.splitlines())) <= 80
    paper = suwen("train", RECIPES / "care.yaml", "--estimate", "--gpus", "8", "--device", "cuda")
    assert "Table 19" in paper.out and "316" in paper.out and "machines differ" in paper.err
    assert not (tmp_path / "runs").exists()
    one = suwen("train", TINY, "--estimate", "--only", "align", "--json")
    assert [stage["name"] for stage in one.json["stages"]] == ["align"]
    wrong = suwen("train", TINY, "--estimate", "--only", "alin")
    assert wrong.code == 1 and "no stage is called 'alin'; did you mean 'align'" in wrong.err


def test_a_wrong_key_fails_with_its_cure(suwen: Suwen, tmp_path: Path) -> None:
    done = suwen("train", TINY, "--set", "stages.align.squared_l3=1", "--out", tmp_path)
    assert done.code == 1
    assert "stages.align.squared_l3: unknown key; did you mean 'squared_l2'?" in done.err.replace("\n", " ")
    assert suwen("train", TINY, "--variant", "without-mce", "--out", tmp_path).code == 1
    assert suwen("train", tmp_path / "nothing.yaml").code == 1


@pytest.mark.parametrize("verb", [["train"], ["sweep", "--table", "4"]])
def test_a_misspelt_recipe_gets_the_nearest_name(suwen: Suwen, tmp_path: Path, verb: list[str]) -> None:
    for wrong, near in (("care-tiyn", "did you mean 'care-tiny'?"), (TINY.with_name("care-tini.yaml"), "care-tiny")):
        done = suwen(verb[0], wrong, *verb[1:], "--out", tmp_path)
        assert done.code == 1
        assert near in done.err and "PosixPath" not in done.err and "Errno" not in done.err


def test_an_interrupt_says_once_and_truly_how_to_go_on(
    suwen: Suwen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a stage that does not stop by itself, as the vectors' does; the second command is what the line says."""
    runner = importlib.import_module("suwen.training.recipe_runner")
    do, begun = runner._Run.do, []

    def once(run: Any, name: str) -> Any:
        done = do(run, name)
        if not begun:
            begun.append(name)
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(runner._Run, "do", once)
    arguments = ["train", TINY, "--out", tmp_path, "--dry-run", "--only", "document", "--only", "freeze"]
    stopped = suwen(*arguments)
    assert stopped.code == 130
    (line,) = [line for line in stopped.err.splitlines() if "interrupted" in line]
    assert line.endswith("go on with the same command and --resume")
    assert "run the same command again" not in stopped.err
    assert suwen(*arguments, "--resume").code == 0


def test_data_that_were_not_named_are_asked_for(suwen: Suwen, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("SUWEN_DATA", raising=False)
    done = suwen("train", RECIPES / "care-mini.yaml", "--out", tmp_path)
    assert done.code == 1 and "pass --set data.root=PATH" in done.err


def test_a_sweep_of_an_unknown_table_or_variant_is_refused(suwen: Suwen, tmp_path: Path) -> None:
    done = suwen("sweep", TINY, "--table", "9", "--out", tmp_path)
    assert done.code == 1 and "take one of 3, 4, 5" in done.err
    done = suwen("sweep", TINY, "--table", "4", "--single", "kale", "--out", tmp_path)
    assert done.code == 1 and "--single kale: not in Table 4" in done.err


def test_without_the_extra_the_command_names_it(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['yaml'] = None\nsys.modules['torch'] = None\n"
        "sys.argv = ['suwen', 'train', sys.argv[1]]\nfrom suwen.cli.main import run\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(TINY)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "training needs torch, yaml; pip install 'suwen[train]'" in done.stderr


def test_help_needs_no_extra() -> None:
    code = (
        "import sys\nfor name in ('yaml', 'torch', 'transformers'): sys.modules[name] = None\n"
        "sys.argv = ['suwen', 'sweep', '--help']\nfrom suwen.cli.main import run\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--table" in done.stdout
