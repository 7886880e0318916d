"""The command as a whole: help, version, exit codes, and errors that say the fix."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import suwen as package
from suwen.cli.verbs import VERBS as TABLE

Suwen = Callable[..., Any]
GROUPS = {"key", "bench", "jury", "curate", "engine"}
VERBS = [name for name in TABLE if name not in GROUPS]


def test_every_verb_is_there() -> None:
    wanted = {"index", "add", "delete", "search", "info", "export", "verify", "rebuild", "compact", "backup", "restore"}
    assert wanted | {"recall", "encode"} <= set(VERBS)


@pytest.mark.parametrize("verb", TABLE)
def test_the_line_in_the_help_is_the_verbs_own(verb: str) -> None:
    first = str(TABLE[verb].load(verb).help).split("\n\n")[0]
    assert " ".join(first.split()) == TABLE[verb].help


def test_a_verb_that_is_misspelt(suwen: Suwen) -> None:
    done = suwen("serach")
    assert done.code == 2 and "Did you mean 'search'?" in done.err


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_and_json(suwen: Suwen, verb: str) -> None:
    done = suwen(verb, "--help")
    assert done.code == 0
    assert re.search(rf"Example:\s+suwen\s+{verb}\b", done.out)
    assert "--json" in done.out


def test_help_lists_the_verbs_and_says_how_to_begin(suwen: Suwen) -> None:
    done = suwen("--help")
    assert done.code == 0
    assert all(re.search(rf"\b{verb}\b", done.out) for verb in VERBS)
    assert "suwen index" in done.out and "suwen search" in done.out


def test_version(suwen: Suwen) -> None:
    assert suwen("--version").out == f"suwen {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["search"],
        ["search", "index"],
        ["search", "index", "q", "--mode", "sparse"],
        ["search", "index", "q", "-k", "many"],
        ["search", "index", "q", "--no-such-option"],
        ["index", "only-a-folder"],
        ["index", "i", "s", "--duplicates", "both"],
        ["recall", "index", "-k", "0"],
    ],
)
def test_wrong_usage_is_two(suwen: Suwen, arguments: list[str]) -> None:
    done = suwen(*arguments)
    assert done.code == 2
    assert "Usage" in done.err and done.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "i", "q", "--mode", "hybird"], "'--mode': 'hybird' is not one of .* Did you mean 'hybrid'\\?"),
        (["search", "i", "q", "--mode", "zzz"], r"'--mode': 'zzz' is not one of 'hybrid', 'dense', 'lexical'\.$"),
        (["index", "i", "s", "--duplicates", "frist"], r"Did you mean 'first'\?"),
        (["search", "i", "q", "-k", "many"], "'-k': it is not a whole number"),
        (["search", "i", "q", "-k", "0"], "'-k': it must be at least 1"),
        (["search", "i", "q", "--offset", "-1"], "'--offset': it must be at least 0"),
        (["search", "i", "q", "--dense-weight", "nan"], "'--dense-weight': it must be at least 0"),
        (["search", "i", "q", "--lexical-weight", "much"], "'--lexical-weight': it is not a number"),
        (["bench", "run", "cmirb", "-s", "bm25:words", "--depth", "0"], "'--depth': it must be at least 1"),
        (["search", "i", "q", "--hyde-n", "99"], "'--hyde-n': it must be at most 16"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(suwen: Suwen, arguments: list[str], message: str) -> None:
    done = suwen(*arguments)
    assert done.code == 2
    said = " ".join(done.err.split())
    assert re.search(message, said) and "Value error" not in said and "Input should" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "{tmp}/nowhere", "头痛"], "not an index .*create one with 'suwen index"),
        (["add", "{tmp}/nowhere", "--text", "文", "--id", "a"], "not an index"),
        (["delete", "{tmp}/nowhere", "a"], "not an index"),
        (["verify", "{tmp}/nowhere"], "not an index"),
        (["rebuild", "{tmp}/nowhere"], "not an index"),
        (["compact", "{tmp}/nowhere"], "not an index"),
        (["recall", "{tmp}/nowhere"], "not an index"),
        (["backup", "{tmp}/nowhere", "{tmp}/b"], "not an index"),
        (["restore", "{tmp}/nowhere", "{tmp}/b"], "not a backup"),
        (["info", "{tmp}/nowhere"], "neither an index nor a pair"),
        (["index", "{tmp}/new", "{tmp}/missing.jsonl"], "there is no such file or folder; check the path"),
        (["index", "{tmp}/new", "https://example.org/a.csv"], "download it first"),
        (["index", "{tmp}/notes.jsonl", "{tmp}/notes.jsonl"], "cannot be made a folder|give a new or empty folder"),
        (["index", "{tmp}", "{tmp}/notes.jsonl"], r"holds other files .*give a new or empty folder"),
        (["index", "{tmp}/new", "{tmp}/notes.jsonl", "--pair", "{tmp}/nopair"], "no pair at .*--pair or SUWEN_PAIR"),
        (["index", "{tmp}/new", "{tmp}/notes.jsonl", "--tier", "l12"], "choose one of static, rough"),
        (["index", "{tmp}/new", "{tmp}/notes.jsonl", "--size", "3"], "size is at least 8"),
        (["index", "{tmp}/new", "{tmp}/notes.jsonl", "--format", "pptx"], "no format 'pptx'; use one of"),
        (["index", "{tmp}/new", "{tmp}/notes.jsonl", "--vectors", "v.npy"], "--vectors needs --ids"),
        (["index", "{tmp}/new", "{tmp}/notes.jsonl", "--ids", "i.txt"], "say what --vectors are"),
        (["add", "{tmp}/new", "{tmp}/notes.jsonl", "--text", "a", "--id", "b"], "notes.jsonl would not be read"),
        (["add", "{tmp}/new", "{tmp}/notes.jsonl", "--id", "b"], "whose text is --text"),
        (
            ["index", "{tmp}/new", "{tmp}/notes.jsonl", "--vectors", "v.npy", "--ids", "i.txt"],
            "v.npy: there is no such file",
        ),
        (["add", "{tmp}/index"], "give files, or --text with --id"),
        (["add", "{tmp}/index", "--text", "文"], "--text needs some text and an --id"),
        (["add", "{tmp}/index", "--text", " ", "--id", "a"], "--text needs some text and an --id"),
        (["search", "{tmp}/index", ""], "no letter or digit"),
        (
            ["search", "{tmp}/index", "头痛", "--offset", "9995"],
            "-k 10 and --offset 9995 are more than 10000 together",
        ),
        (["search", "{tmp}/index", "头痛", "--tier", "l12"], "choose one of static, rough"),
        (["search", "{tmp}/index", "头痛", "--where", "lang"], "write field=value"),
        (["search", "{tmp}/index", "头痛", "--where", "colour=red"], "the fields are lang, year"),
        (
            ["search", "{tmp}/index", "头痛", "--dense-weight", "0", "--lexical-weight", "0"],
            "--dense-weight 0 and --lexical-weight 0 leave nothing to rank by",
        ),
        (["backup", "{tmp}/index", "{tmp}"], "not empty: give a new folder"),
    ],
)
def test_failures_are_one_and_say_the_fix(
    suwen: Suwen, index: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = suwen(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert done.code == 1
    assert done.out == ""
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert re.search(message, line)


def test_a_pair_of_another_space_is_refused(suwen: Suwen, index: Path, source: Path, foreign: Path) -> None:
    for arguments in (["search", index, "头痛"], ["index", index, source], ["add", index, "--text", "文", "--id", "a"]):
        done = suwen(*arguments, "--pair", foreign)
        assert done.code == 1
        assert "their vectors cannot be compared" in done.err and "foreign" in done.err


def test_an_index_that_is_being_written(suwen: Suwen, index: Path, source: Path) -> None:
    import os

    from suwen.index.embedded import EmbeddedEngine

    engine = EmbeddedEngine.open(index, write=True)
    for arguments in (["index", index, source], ["delete", index, "bp"]):
        done = suwen(*arguments)
        assert done.code == 1
        assert f"being written by process {os.getpid()}: wait" in done.err
    assert suwen("search", index, "头痛").code == 0
    engine.close()


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from suwen.cli.main import run; run()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_a_real_process_exits_with_the_code(index: Path, small: Path, tmp_path: Path) -> None:
    import os

    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1]), "SUWEN_PAIR": str(small)}
    assert run("search", str(index), "尿酸结石", env=environment).returncode == 0
    done = run("search", str(tmp_path / "no"), "尿酸结石", env=environment)
    assert done.returncode == 1
    assert done.stdout == "" and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_a_reader_of_the_pipe_that_leaves(index: Path, small: Path) -> None:
    import os

    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1]), "SUWEN_PAIR": str(small)}
    command = "from suwen.cli.main import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "search", str(index), "尿酸结石", "--json", "-k", "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
    assert "Traceback" not in complaint and "Exception ignored" not in complaint


@pytest.mark.parametrize("out", ["notes.jsonl/masked.jsonl", "."])
def test_a_place_that_cannot_be_written_is_told(suwen: Suwen, tmp_path: Path, out: str) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"id": "a", "text": "布洛芬可以退烧。"}\n', encoding="utf-8")
    done = suwen("mask", notes, "--out", tmp_path / out)
    assert done.code == 1 and done.err.startswith("error: ") and "name another place" in done.err
