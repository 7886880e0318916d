"""What the tests of the index share: the naive model is imported by bare name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from in_memory import folder_in_memory

sys.path.insert(0, str(Path(__file__).parent))

from naive import SPACE, some_documents

from suwen.index.embedded import EmbeddedEngine


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, gone after it."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., EmbeddedEngine]]:
    """Makes indexes with ``documents`` documents of two passages each, open for writing; closes them all."""
    engines: list[EmbeddedEngine] = []

    def make(name: str = "index", documents: int = 12, *, dimension: int = 16, seal: int = 8) -> EmbeddedEngine:
        engine = EmbeddedEngine.create(tmp_path / name, space=SPACE, dimension=dimension, seal=seal)
        engines.append(engine)
        for batch in some_documents(documents, dimension, seed=len(name)):
            engine.add(batch)
        return engine

    yield make
    for engine in engines:
        engine.close()
