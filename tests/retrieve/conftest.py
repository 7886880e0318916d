"""Small pairs, and an index of ten hand-written notes, made without torch; the naive engine is tests/index'."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from in_memory import folder_in_memory

sys.path.insert(0, str(Path(__file__).parents[1] / "index"))
sys.path.insert(0, str(Path(__file__).parent))

from small_pair import NOTES, make_pair

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.retrieve.retriever import Index


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, gone after it."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair with one tier, ``static``."""
    return Pair.load(make_pair(tmp_path_factory.mktemp("pair") / "small"))


@pytest.fixture(scope="session")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair of the same space as ``pair`` with a second tier, ``rough``."""
    return Pair.load(make_pair(tmp_path_factory.mktemp("pair") / "tiered", tiers=("static", "rough")))


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair of another space of the same dimension."""
    return Pair.load(make_pair(tmp_path_factory.mktemp("pair") / "foreign", seed=1, name="foreign"))


@pytest.fixture(scope="session")
def notes() -> list[Document]:
    """The hand-written notes as documents."""
    return [Document(id_, text, title, metadata) for id_, title, text, metadata in NOTES]


@pytest.fixture
def empty(pair: Pair, tmp_path: Path) -> Iterator[Index]:
    """An empty index, open for writing."""
    with Index.create(tmp_path / "index", pair=pair) as index:
        yield index


@pytest.fixture(scope="session")
def index(tiered: Pair, notes: list[Document]) -> Iterator[Index]:
    """The notes, with short passages so that some documents have several; not to be changed."""
    with folder_in_memory() as folder, Index.create(folder / "index", pair=tiered) as made:
        made.add(notes, size=24, overlap=0)
        yield made
