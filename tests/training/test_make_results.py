"""The tool that makes a results page: its order, what it keeps, and that its recipes and keys are there."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from make_results import Runner, needed
from result_steps import PAGES, SUWEN, Step, Wanted, language_models

from suwen.bench.system_specs import parse_systems
from suwen.llm.config import load_config
from suwen.training.recipe.recipe_file import load_recipe, wanted_stages


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    base, small = tmp_path / "base.gguf", tmp_path / "small"
    base.touch()
    small.mkdir()
    return Wanted(tmp_path / "out", tmp_path / "data", tmp_path / "dev", str(base), str(small), [], 1.0)


def values(command: list[str], option: str) -> list[str]:
    return [after for word, after in pairwise(command) if word == option]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_understood(page: str, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted.out.mkdir()
    (wanted.out / "suwen.toml").write_text(language_models(wanted), encoding="utf-8")
    monkeypatch.setenv("SUWEN_CONFIG", str(wanted.out / "suwen.toml"))
    known: set[str] = set()
    for step in PAGES[page](wanted):
        assert set(step.after) <= known and step.name not in known, step.name
        known.add(step.name)
        command = list(step.command)
        for word in {"train", "sweep"} & set(command):
            sets, variant = values(command, "--set"), [*values(command, "--variant"), None][0]
            recipe = load_recipe(command[command.index(word) + 1], sets, variant)
            wanted_stages(recipe, values(command, "--only") or None)
            assert all(getattr(stage, "base", None) != "Qwen/Qwen2.5-Coder-1.5B-Instruct" for stage in recipe.stages)
        for system in values(command, "-s"):
            # A pair is opened when it is named, and what a training leaves is not there yet.
            assert f"pair:{wanted.out}" in system or parse_systems([system])


@pytest.mark.parametrize("page", PAGES)
def test_what_is_compared_was_measured(page: str, wanted: Wanted) -> None:
    """Before the comparison runs: an hour of training must not end in a name that is not there."""
    from fnmatch import fnmatch

    steps = {step.name: step for step in PAGES[page](wanted)}
    for name, step in steps.items():
        if not name.startswith("compare-"):
            continue
        there = {one.partition("=")[0] for before in step.after for one in values(list(steps[before].command), "-s")}
        for side in ("--a", "--b"):
            (asked,) = values(list(step.command), side)
            assert any(fnmatch(one, asked) for one in there), (name, asked)


def test_its_models_are_where_the_trainings_leave_them(wanted: Wanted, tmp_path: Path) -> None:
    file = tmp_path / "suwen.toml"
    file.write_text(language_models(wanted), encoding="utf-8")
    models = load_config(file).models
    assert set(models) == {"raw", "m3e-1", "m3e-2", "own-1", "own-2", "pair-1", "asks"}
    assert models["own-2"].adapter == str(wanted.out / "runs" / "own" / "s0" / "generator-2" / "model" / "adapter")
    asked = {
        one.split("hyde:")[1].split(",")[0]
        for step in PAGES["sl-hyde"](wanted)
        for one in values(list(step.command), "-s")
        if "=hyde:" in one
    }
    assert asked == set(models) - {"asks"}


def test_commands_are_the_ones_that_users_type() -> None:
    """Not something that loads and does nothing."""
    import subprocess

    told = subprocess.run([*SUWEN, "bench", "--help"], capture_output=True, text=True, check=True).stdout
    assert "compare" in told


def run(code: str, *words: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, words)]


TOUCH = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(sys.argv[2])"


def test_steps_run_in_order_a_failure_ends_what_needs_it_and_the_rest_is_kept(tmp_path: Path) -> None:
    written, allowed = tmp_path / "written.txt", tmp_path / "allowed"
    fails = "import sys, pathlib; sys.exit(0 if pathlib.Path(sys.argv[1]).exists() else 'not yet')"
    steps = [
        Step("first", run(TOUCH, written, "1")),
        Step("second", run(TOUCH, written, "2"), ["first"]),
        Step("broken", run(fails, allowed), ["first"]),
        Step("third", run(TOUCH, written, "3"), ["second", "broken"]),
        Step("apart", run(TOUCH, tmp_path / "apart.txt", "a")),
    ]
    assert Runner(tmp_path / "out", steps, 2).run() == ["broken", "third"]
    assert written.read_text() == "12" and (tmp_path / "apart.txt").read_text() == "a"
    assert "not yet" in (tmp_path / "out" / "log" / "broken.txt").read_text()
    allowed.touch()
    assert Runner(tmp_path / "out", steps, 2).run() == []
    assert written.read_text() == "123" and (tmp_path / "apart.txt").read_text() == "a", "what was done is kept"
    lines = [json.loads(line) for line in (tmp_path / "out" / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["code"] == 0 and line["step"] != "apart"] == [
        *("first", "second", "broken", "third")
    ]
    part = "import sys; sys.exit(3)"
    assert Runner(tmp_path / "out", [Step("part", run(part)), Step("then", run(""), ["part"])], 1).run() == [
        "part",
        "then",
    ]
    assert (
        Runner(tmp_path / "out", [Step("part", run(part), good=(0, 3)), Step("then", run(""), ["part"])], 1).run() == []
    )
    other = [Step("first", run(TOUCH, written, "4"))]
    assert Runner(tmp_path / "out", other, 1).run() == [] and written.read_text() == "1234", "another command is run"


def test_of_steps_that_could_run_the_first_does(tmp_path: Path) -> None:
    """What much waits for is not left behind what nothing waits for."""
    written = tmp_path / "written.txt"
    steps = [
        Step("a", run(TOUCH, written, "a")),
        Step("b", run(TOUCH, written, "b"), ["a"]),
        Step("c", run(TOUCH, written, "c")),
        Step("d", run(TOUCH, written, "d"), ["c"]),
    ]
    assert Runner(tmp_path / "out", steps, 1).run() == [] and written.read_text() == "abcd"


def test_what_is_timed_runs_alone(tmp_path: Path) -> None:
    """It writes down how many run beside it: a file of each stands while it runs."""
    here = tmp_path / "here"
    here.mkdir()
    code = (
        "import sys, pathlib, time; here = pathlib.Path(sys.argv[1]); mine = here / sys.argv[2]; mine.touch();"
        "time.sleep(0.2); beside = len(list(here.iterdir())); mine.unlink();"
        "pathlib.Path(sys.argv[3]).open('a').write(f'{sys.argv[2]} {beside}\\n')"
    )
    told = tmp_path / "told.txt"
    names = ["a", "timed", "b", "c", "d"]
    steps = [Step(name, run(code, here, name, told), alone=name == "timed") for name in names]
    assert Runner(tmp_path / "out", steps, 3).run() == []
    lines = dict(line.split() for line in told.read_text().splitlines())
    assert set(lines) == set(names) and lines["timed"] == "1", lines


def test_a_part_is_run_with_what_it_needs(wanted: Wanted) -> None:
    names = {step.name for step in needed(list(PAGES["sl-hyde"](wanted)), ["own-before"])}
    assert names == {"texts", "dev", "own", "own-before"}
    assert {step.name for step in needed(list(PAGES["sl-hyde"](wanted)), ["own"])} == {"texts", "own"}
    assert {"own-seed-2", "own-after-2"} <= {step.name for step in needed(list(PAGES["sl-hyde"](wanted)), ["own-"])}
