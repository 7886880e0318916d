"""README and docs are true: every command and code block runs, in order, offline; every link leads somewhere.

A block that cannot run has ``<!-- not run: why -->`` before it. ``<!-- given: NAME … -->`` before a block asks for
things a reader would have: ``my-model`` (a sentence-transformers folder), ``articles.jsonl``, ``adapter-pair`` (a
light pair with an adapter), ``base.gguf`` (its base) or ``server`` (the service over ``my-index``, on port 8000).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EVERY_PAGE = [*PAGES, ROOT / "CHANGELOG.md"]
LANGUAGES = {"sh", "python", "text", "json", "toml"}
MOST_NOT_RUN = 12

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|given): (?P<what>[^>]*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S
)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_DRUGS = ("布洛芬", "阿司匹林", "二甲双胍", "华法林", "阿莫西林", "奥美拉唑", "氨氯地平", "左甲状腺素")
_ADVICE = ("饭后服用可减轻胃部不适。", "肾功能减退时应减量。", "与其他药同服前请问药师。", "漏服时不要加倍补服。")
_ARTICLES = [{"id": f"{drug}-{number}", "text": drug + text} for drug in _DRUGS for number, text in enumerate(_ADVICE)]

_BESIDE = Path(__file__).with_name("with_server.py")
_FOLDERS = {"my-model": "bert_folder", "adapter-pair": "adapter_pair"}


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    code: str
    mark: str
    what: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        yield Block(page, line, match["language"], match["code"], match["mark"] or "", match["what"] or "")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_of_a_page_runs(
    page: Path, tmp_path: Path, offline: Callable, request: pytest.FixtureRequest
) -> None:
    for block in blocks(page):
        if block.mark == "not run" or block.language not in ("sh", "python"):
            continue
        if block.mark == "given":
            _give(block.what.split(), tmp_path, request)
        programs, python = str(Path(sys.executable).parent), sys.executable
        beside = [python, str(_BESIDE), "my-index", "8000"] if "server" in block.what.split() else []
        if not beside:  # a server and those who ask it are in one network
            warm = request.getfixturevalue("warm")
            programs, python = f"{warm.programs}{os.pathsep}{programs}", warm.python
        command = ["bash", "-euo", "pipefail", "-c"] if block.language == "sh" else [python, "-c"]
        done = offline([*beside, *command, block.code], cwd=tmp_path, path=programs)
        said = f"{name(page)}:{block.line} exits with {done.returncode}\n{block.code}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said


def _give(things: list[str], folder: Path, request: pytest.FixtureRequest) -> None:
    for thing in things:
        if thing == "server" or (folder / thing).exists():
            continue
        if thing in _FOLDERS:
            shutil.copytree(request.getfixturevalue(_FOLDERS[thing]), folder / thing)
        elif thing == "base.gguf":
            models = request.getfixturevalue("models")
            models.write_gguf(request.getfixturevalue("base_folder"), folder / thing)
        else:
            assert thing == "articles.jsonl", f"{thing} is nothing this test can give"
            lines = [json.dumps(article, ensure_ascii=False) for article in _ARTICLES]
            (folder / thing).write_text("\n".join(lines), encoding="utf-8")


def test_the_pages_have_blocks_that_run_and_few_that_do_not() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    not_run = [block for block in every if block.mark == "not run"]
    assert len(not_run) <= MOST_NOT_RUN
    assert all(block.what for block in not_run)
    ran = {(block.page.name, block.language) for block in every if block.mark != "not run"}
    assert {("README.md", "sh"), ("README.md", "python"), ("engine.md", "sh"), ("models.md", "sh")} <= ran


@pytest.mark.parametrize("page", EVERY_PAGE, ids=name)
def test_every_fence_is_understood(page: Path) -> None:
    """A block the pattern above does not see would never run."""
    fences = len(re.findall(r"^\s*```", page.read_text(encoding="utf-8"), re.M))
    found = list(blocks(page))
    assert fences == 2 * len(found)
    assert {block.language for block in found} <= LANGUAGES


@pytest.mark.parametrize("page", EVERY_PAGE, ids=name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = [match["target"] for match in _LINK.finditer(text) if "://" not in match["target"]]
    dead = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert dead == []


def test_the_readme_names_every_command(offline: Callable, tmp_path: Path) -> None:
    done = offline(["suwen", "--help"], cwd=tmp_path, path=Path(sys.executable).parent)
    verbs = set(re.findall(r"^│ ([a-z]+) ", done.stdout, re.M))
    assert {"index", "search", "rebuild", "demo"} <= verbs
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [verb for verb in sorted(verbs) if not re.search(rf"suwen {verb}\b", readme)] == []
