"""The base stays light: what is loaded by importing suwen, by its command, and by a search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.retrieve.retriever import Index

HEAVY = {
    "torch",
    "transformers",
    "sentence_transformers",
    "pyarrow",
    "onnx",
    "pandas",
    "scipy",
    "sklearn",
    "matplotlib",
}
BASE = {"numpy", "faiss", "onnxruntime", "tokenizers", "tantivy", "rjieba", "rapidfuzz", "pydantic", "typer", "rich"}


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules a fresh interpreter has after running some code."""
    tell = "\nimport json, sys\nsys.stdout.write('\\n' + json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code + tell, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_heavy() -> None:
    modules = loaded("import suwen")
    assert "suwen" in modules
    assert modules & (HEAVY | BASE) == set()


def test_looking_around_in_the_package_loads_nothing_heavy() -> None:
    assert loaded("import suwen; suwen.__version__; dir(suwen); suwen.SuwenError") & (HEAVY | BASE) == set()


def test_the_command_line_loads_no_training_library() -> None:
    modules = loaded("import suwen.cli.main")
    assert "typer" in modules
    assert modules & HEAVY == set()


def asked(*arguments: str) -> set[str]:
    """The modules after a command of the entry point."""
    code = (
        "import sys\nfrom suwen.cli.main import run\nsys.argv = ['suwen', *sys.argv[1:]]\n"
        "try:\n    run()\nexcept SystemExit:\n    pass"
    )
    return loaded(code, *arguments)


def test_the_version_needs_nothing_but_the_command_line() -> None:
    assert asked("--version") & (HEAVY | BASE) == {"typer"}


def test_the_help_loads_no_verb() -> None:
    assert asked("--help") & (HEAVY | BASE) <= {"typer", "rich", "pydantic"}


@pytest.mark.parametrize("verb", ["search", "bench run", "jury review", "curate rows", "train"])
def test_the_help_of_a_verb_loads_what_shows_it(verb: str) -> None:
    assert asked(*verb.split(), "--help") & (HEAVY | BASE) == {"typer", "rich"}


@pytest.mark.parametrize(
    "verb",
    [
        *("demo", "index", "add", "delete", "encode", "search", "info", "recall", "verify", "serve", "train", "import"),
        *("worker", "bench run", "bench report", "jury judge", "jury review serve", "curate rows", "curate mine"),
    ],
)
def test_a_wrong_option_is_told_before_anything_heavy_is_loaded(verb: str) -> None:
    # typer itself loads pydantic for the first argument it looks at.
    assert asked(*verb.split(), "--no-such-option") & (HEAVY | BASE) <= {"typer", "rich", "pydantic"}


@pytest.mark.parametrize("command", [["train", "care-tny"], ["sweep", "care-ablation", "--table", "4"]])
def test_a_recipe_that_is_not_there_is_told_before_any_stage_is_loaded(command: list[str]) -> None:
    modules = asked(*command)
    assert "suwen.training.recipe.recipe_names" in modules
    assert modules & (HEAVY | {"numpy", "rich", "yaml", "suwen.training.stages"}) == set()


def test_a_suite_that_is_not_there_is_told_before_what_runs_it_is_loaded() -> None:
    modules = asked("bench", "run", "cmrib", "-s", "bm25:words")
    assert "suwen.bench.suite_tasks" in modules
    assert modules & (HEAVY | {"rich", "suwen.bench.suite_runner"}) == set()


def test_a_tier_that_is_not_there_is_told_before_what_a_search_takes_is_loaded(tmp_path: Path) -> None:
    Index.create(tmp_path / "index").close()
    modules = asked("search", str(tmp_path / "index"), "头痛", "--tier", "l5")
    assert "suwen.retrieve.retriever" in modules
    assert modules & (HEAVY | {"onnxruntime", "rich", "suwen.retrieve.answering", "suwen.retrieve.wording"}) == set()


@pytest.mark.parametrize("command", [["export", "{model}", "{out}"], ["import", "{model}", "{out}"]])
def test_a_pickle_is_refused_before_torch_is_loaded(tmp_path: Path, command: list[str]) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "pytorch_model.bin").write_bytes(b"never read")
    modules = asked(*(part.format(model=model, out=tmp_path / "out") for part in command))
    assert "suwen" in modules and "torch" not in modules
    assert not (tmp_path / "out").exists()


def test_a_search_loads_no_training_library(tmp_path: Path) -> None:
    documents = [Document("a", "布洛芬可以退烧止痛。", "布洛芬"), Document("b", "胰岛素用来降低血糖。", "胰岛素")]
    with Index.create(tmp_path / "index") as index:
        index.add(documents)
    code = "import sys, suwen\nassert suwen.open(sys.argv[1]).search('布洛芬退烧吗', k=1)[0].document_id == 'a'"
    modules = loaded(code, str(tmp_path / "index"))
    assert "onnxruntime" in modules and "faiss" not in modules, "faiss is for what is too large to search exactly"
    assert modules & HEAVY == set()


def test_a_query_is_encoded_without_a_word_to_anybody(tmp_path: Path) -> None:
    # onnxruntime keeps what it tells its makers in the home of whoever runs it, before it is sent.
    home = tmp_path / "home"
    home.mkdir()
    ours = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME", "CI")
    alone = {name: value for name, value in os.environ.items() if name not in ours} | {"HOME": str(home)}
    code = "from suwen.encoders.pair import Pair\nPair.load().encoder('l6').encode_queries(['布洛芬退烧吗'])"
    subprocess.run([sys.executable, "-c", code], env=alone, check=True)
    assert list(home.rglob("*")) == []


def test_indexing_from_the_command_line_loads_no_training_library(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"id": "a", "text": "布洛芬可以退烧止痛。"}\n', encoding="utf-8")
    code = (
        "import sys\nfrom suwen.cli.main import app\n"
        "app(['index', sys.argv[1], sys.argv[2], '--tier', sys.argv[3], '--json'], standalone_mode=False)"
    )
    modules = loaded(code, str(tmp_path / "index"), str(tmp_path / "notes.jsonl"), Pair.load().default_tier)
    assert (tmp_path / "index" / "truth.db").is_file()
    assert modules & HEAVY == set()
