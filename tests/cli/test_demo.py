"""``suwen demo``, and ``suwen index`` with the same pair: an adapter whose base is not at hand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suwen.cli import demo

Suwen = Callable[..., Any]
#: The command as a base install has it: nothing heavy can be imported.
NO_TORCH = """
import sys
for name in ("torch", "transformers", "sentence_transformers", "safetensors", "peft", "gguf", "onnx", "pyarrow"):
    sys.modules[name] = None
from suwen.cli.main import run
run()
"""


@pytest.fixture
def light(shipped_pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command with the shipped pair and without torch; gives what it says."""

    def call(*arguments: object) -> str:
        with monkeypatch.context() as patch:
            patch.setenv("SUWEN_PAIR", str(shipped_pair))
            patch.delenv("SUWEN_BASE", raising=False)
            command = [sys.executable, "-c", NO_TORCH, *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return call


def test_the_demo_shows_asymmetric_retrieval_without_torch(light: Callable[..., str], tmp_path: Path) -> None:
    said = light("demo", tmp_path / "demo")
    (line,) = [line for line in said.splitlines() if line.startswith("asymmetric retrieval")]
    assert "org/base with the pair's adapter" in line and "queries by the tier 'static'" in line
    assert "360 documents of the bundled sample collection, 0 passages encoded" in said
    told = json.loads(light("demo", tmp_path / "demo", "--json"))
    assert (told["encoder"], told["read"], len(told["answers"])) == ("document", 360, 4)
    (made,) = json.loads(light("info", tmp_path / "demo", "--json"))["encoded by"]
    assert made.startswith("document: ")


def test_the_demo_makes_do_with_a_tier(suwen: Suwen, shipped_pair: Path, tmp_path: Path, monkeypatch) -> None:
    other = shutil.copytree(shipped_pair, tmp_path / "other")
    told = other / "sample" / "vectors.json"
    told.write_text(json.dumps(json.loads(told.read_text()) | {"space": "sp-" + "1" * 20}), encoding="utf-8")
    monkeypatch.setenv("SUWEN_PAIR", str(other))
    done = suwen("demo", tmp_path / "demo")
    assert done.code == 0 and "360 documents" in done.out
    assert "documents are encoded by the tier 'static'" in done.out
    assert "do not fit (they are of the space sp-11111111111111111111)" in done.out


def test_the_demo_with_a_pair_whose_tier_encodes_documents(suwen: Suwen, tmp_path: Path) -> None:
    done = suwen("demo", tmp_path / "demo", "--json").json
    assert done["encoder"] == "static" and "the pair's own for them" in done["note"]
    assert [len(answer["hits"]) for answer in done["answers"]] == [3, 3, 3, 3]


def test_the_pair_of_the_package(suwen: Suwen, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUWEN_PAIR")
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    told = suwen("info", "--json").json
    assert [tier.partition(":")[0] for tier in told["tiers"]] == ["l6 (0.25 static) (default)", "static"]
    done = suwen("demo", tmp_path / "demo", "--json").json
    assert done["encoder"] == "document" and "queries by the tier 'l6'" in done["note"]
    assert {answer["tier"] for answer in done["answers"]} == {"l6"}
    assert "zh-kidney-stone-03" in {hit["document_id"] for hit in done["answers"][0]["hits"]}
    made = suwen("index", tmp_path / "index", source, "--json").json
    assert made["encoder"] == "l6" and f"SUWEN_BASE naming {told['base']}" in made["note"]
    for tier in ("l6", "static"):
        found = suwen("search", tmp_path / "index", "尿酸结石怎么碱化尿液", "--tier", tier, "--json").json
        assert (found["hits"][0]["document_id"], found["tier"]) == ("stone", tier)


def test_index_makes_do_without_the_base_and_says_how_to_do_better(
    light: Callable[..., str],
    suwen: Suwen,
    shipped_pair: Path,
    base_folder: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = light("index", tmp_path / "index", source)
    assert "encoded by the tier 'static', the aligned query encoder, because torch is not installed" in said
    assert "searched at once" in said and "pip install 'suwen[train]'" in said
    assert "SUWEN_BASE naming org/base" in said
    assert json.loads(light("info", tmp_path / "index", "--json"))["encoded by"] == ["static: 10 passages"]
    found = json.loads(light("search", tmp_path / "index", "肾结石", "--mode", "lexical", "--explain", "--json"))
    assert found["hits"][0]["explanation"]["encoder"] == "static"
    monkeypatch.setenv("SUWEN_PAIR", str(shipped_pair))
    monkeypatch.setenv("SUWEN_BASE", str(base_folder))
    better = suwen("index", tmp_path / "index", source, "--json").json
    assert (better["reencoded"], better["changed"], better["encoder"]) == (10, 0, "document")
    assert suwen("info", tmp_path / "index", "--json").json["encoded by"] == ["document: 10 passages"]


def test_the_demo_leaves_an_index_of_other_documents_alone(suwen: Suwen, index: Path) -> None:
    before = suwen("info", index, "--json").json
    refused = suwen("demo", index)
    assert refused.code == 1 and "is an index of other documents" in refused.err and "another folder" in refused.err
    assert suwen("info", index, "--json").json == before


@pytest.mark.parametrize("name", ["my-index", "my-documents"])
def test_the_hint_names_another_index_than_the_demo(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    demo._next_steps(Path(name))
    said = capsys.readouterr().out
    assert " FOLDER " in said and f"index {name} " not in said
