"""The wheel is the product: built, installed in an empty environment, and used there with no network at all."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
LARGEST = 60_000_000
PAIR = Path("src/suwen/models/default")
_NOTES = {
    "kidney/stones.md": "# 肾结石\n\n肾结石患者每天应饮水两升以上。尿酸结石多为酸性尿，可用枸橼酸钾碱化尿液。\n",
    "heart/af.txt": "房颤患者是否抗凝取决于卒中风险评分，阿司匹林不能代替抗凝药。\n",
    "asthma.md": "# Asthma\n\nAn inhaled corticosteroid is the mainstay; a reliever alone is not enough.\n",
}


class Installed(NamedTuple):
    """An environment with the wheel in it."""

    programs: Path
    wheel: Path


def _run(command: Sequence[str | Path], **options: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, built from this checkout, installed with its base dependencies: the one step that needs a network."""
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", ROOT])
    (wheel,) = (folder / "dist").glob("*.whl")
    _run([sys.executable, "-m", "venv", folder / "empty"])
    programs = folder / "empty" / "bin"
    install = [programs / "python", "-m", "pip", "install", "--no-compile", "-c", ROOT / "constraints.txt", wheel]
    _run(install, cwd=folder)
    return Installed(programs, wheel)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of documents."""
    for name, text in _NOTES.items():
        file = tmp_path / "notes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path / "notes"


def test_the_wheel_holds_the_default_pair_and_the_sample_and_is_small(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    wanted = ("models/default/suwen.json", "models/default/README.md", "sample/corpus.jsonl", "sample/qrels/test.tsv")
    wanted += ("py.typed", "text/traditional.txt", "text/medical.txt", "encoders/suwen.schema.json")
    assert {f"suwen/{name}" for name in wanted} <= names
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not [name for name in names if not name.startswith(("suwen/", "suwen-"))]
    assert installed.wheel.stat().st_size < LARGEST


def test_every_file_of_the_default_pair_is_in_the_wheel(installed: Installed) -> None:
    """The tiers, and with an adapter its parts, the probe and the sample's vectors too."""
    wheel = zipfile.ZipFile(installed.wheel)
    manifest = json.loads(wheel.read("suwen/models/default/suwen.json"))
    named = {f"{tier['path']}/{file}" for tier in manifest["tiers"].values() for file in tier["files"]}
    found = {file.relative_to(ROOT / PAIR).as_posix() for file in (ROOT / PAIR).rglob("*") if file.is_file()}
    assert named and named <= found
    assert {f"suwen/models/default/{name}" for name in found} <= set(wheel.namelist())


def test_the_pages_of_the_service_are_in_the_wheel(installed: Installed) -> None:
    pages = {f"suwen/service/web/{file.name}" for file in (ROOT / "src/suwen/service/web").iterdir() if file.is_file()}
    assert len(pages) > 20 and pages <= set(zipfile.ZipFile(installed.wheel).namelist())


def test_the_base_install_has_no_torch(installed: Installed, offline: Callable, tmp_path: Path) -> None:
    code = "import importlib.util as u; print([n for n in {!r} if u.find_spec(n)])"
    heavy = ["torch", "transformers", "sentence_transformers", "onnx", "pyarrow", "pandas"]
    done = offline(
        [str(installed.programs / "python"), "-c", code.format(heavy)], cwd=tmp_path, path=installed.programs
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_folder_is_indexed_and_searched_offline(
    installed: Installed, offline: Callable, notes: Path, tmp_path: Path
) -> None:
    def suwen(*arguments: str) -> dict:
        done = offline([str(installed.programs / "suwen"), *arguments, "--json"], cwd=tmp_path, path=installed.programs)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    report = suwen("index", "idx", str(notes))
    assert (report["added"], report["encoded"]) == (3, 3)
    assert report["encoder"] == "l6" and "torch is not installed" in report["note"]
    assert "pip install 'suwen[train]'" in report["note"] and "SUWEN_BASE" in report["note"]
    found = suwen("search", "idx", "尿酸结石怎么碱化尿液", "-k", "2")
    assert found["hits"][0]["document_id"] == "kidney/stones.md"
    assert found["relevant"] is True
    assert suwen("search", "idx", "房颤只吃阿司匹林行吗")["hits"][0]["document_id"] == "heart/af.txt"
    assert suwen("search", "idx", "is a reliever alone enough for asthma")["hits"][0]["document_id"] == "asthma.md"
    about = suwen("info", "idx")
    assert (about["documents"], about["space"]) == (3, report["space"])
    assert suwen("info")["space"] == report["space"]
    assert suwen("verify", "idx")["ok"] is True


def test_the_demo_runs_offline(installed: Installed, offline: Callable, tmp_path: Path) -> None:
    done = offline([str(installed.programs / "suwen"), "demo", "--json"], cwd=tmp_path, path=installed.programs)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["read"], told["encoder"]) == (360, "document")
    assert told["note"].startswith("asymmetric retrieval") and "queries by the tier 'l6'" in told["note"]
    assert "zh-kidney-stone-03" in {hit["document_id"] for hit in told["answers"][0]["hits"]}
    assert [len(answer["hits"]) for answer in told["answers"]] == [3, 3, 3, 3]


def test_offline_means_offline(installed: Installed, offline: Callable, tmp_path: Path) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=5)"
    done = offline([str(installed.programs / "python"), "-c", code], cwd=tmp_path, path=installed.programs)
    assert done.returncode != 0
    assert "unreachable" in done.stderr or "offline test" in done.stderr
