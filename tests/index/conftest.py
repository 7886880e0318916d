"""What the tests of the index share: the naive model is imported by bare name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from in_memory import folder_in_memory

sys.path.insert(0, str(Path(__file__).parent))

from naive import encoded, unit

from suwen.index.embedded import EmbeddedEngine

SPACE = "sp-0123456789abcdef0123"
TEXTS = ("高血压患者应低盐饮食", "糖尿病足要每天检查双脚", "Stroke needs care within hours", "肾结石多饮水可预防复发")


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
        rng = np.random.default_rng(len(name))
        batch = []
        for number in range(documents):
            texts = [f"{TEXTS[number % 4]} 编号{number}", f"第二段 number{number} {TEXTS[(number + 1) % 4]}"]
            metadata = {"year": 2000 + number, "lang": ["zh", "en"][number % 2]}
            batch.append(encoded(f"d{number}", texts, unit(rng, 2, dimension), metadata))
        for start in range(0, documents, 5):
            engine.add(batch[start : start + 5])
        return engine

    yield make
    for engine in engines:
        engine.close()
