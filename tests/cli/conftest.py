"""The command as its entry point runs it, in this process, and a source of hand-written notes to give it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from in_memory import folder_in_memory

# The pair and the notes are those of the retriever's tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

from small_pair import jsonl, make_pair

from suwen.cli.main import run


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document, by the letter of the standard."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Suwen = Callable[..., Done]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, gone after it."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def suwen(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, small: Path) -> Suwen:
    """Runs ``suwen ARGUMENTS`` with the small pair."""
    monkeypatch.setenv("SUWEN_PAIR", str(small))
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["suwen", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            run()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return Done(code, said.out, said.err)

    return call


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small pair with two tiers."""
    return make_pair(tmp_path_factory.mktemp("pair") / "small", tiers=("static", "rough"))


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of another space."""
    return make_pair(tmp_path_factory.mktemp("pair") / "foreign", seed=1, name="foreign")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Ten notes as JSON lines."""
    file = tmp_path / "notes.jsonl"
    file.write_text(jsonl(), encoding="utf-8")
    return file


@pytest.fixture
def index(suwen: Suwen, source: Path, tmp_path: Path) -> Path:
    """An index of the notes."""
    assert suwen("index", tmp_path / "index", source, "--size", 24, "--overlap", 0).code == 0
    return tmp_path / "index"
