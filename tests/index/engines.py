"""The engines that the contract is held against. Another engine is another class with the methods of ``Kind``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from naive import SPACE, NaiveEngine, some_documents

from postgres_server import new_address
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import Engine, Similarity


class Kind(Protocol):
    """How the tests get hold of an engine."""

    def create(self, dimension: int, similarity: Similarity = "cosine") -> Engine:
        """A new and empty index, open for writing."""

    def reopen(self, engine: Engine, *, write: bool) -> Engine:
        """The same index again."""


class Embedded:
    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def create(self, dimension: int, similarity: Similarity = "cosine") -> Engine:
        self._count += 1
        folder, settings = self._folder / f"index{self._count}", {"dimension": dimension, "similarity": similarity}
        # Few passages wait in memory, so that the tests meet both sealed ones and those that wait.
        return EmbeddedEngine.create(folder, space=SPACE, **settings, seal=8)

    def reopen(self, engine: Engine, *, write: bool) -> Engine:
        return EmbeddedEngine.open(engine.address, write=write, seal=8)


class Cluster:
    """With the searcher that the addresses name."""

    def __init__(self, new_address: Callable[[], str] = new_address) -> None:
        self._new_address = new_address
        self._addresses: dict[str, str] = {}

    def create(self, dimension: int, similarity: Similarity = "cosine") -> Engine:
        address = self._new_address()
        engine = ClusterEngine.create(address, space=SPACE, dimension=dimension, similarity=similarity)
        # An engine tells its address without the password.
        self._addresses[engine.address] = address
        return engine

    def reopen(self, engine: Engine, *, write: bool) -> Engine:
        return ClusterEngine.open(self._addresses[engine.address], write=write)


class InMemory:
    def create(self, dimension: int, similarity: Similarity = "cosine") -> Engine:
        return NaiveEngine(SPACE, dimension, similarity=similarity)

    def reopen(self, engine: Engine, *, write: bool) -> Engine:
        assert isinstance(engine, NaiveEngine)
        return engine.reopened(write=write)


class Making:
    """Makes engines of one kind, and closes them all."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._engines: list[Engine] = []

    def __call__(self, documents: int = 12, *, dimension: int = 16, similarity: Similarity = "cosine") -> Engine:
        """An index with so many documents of two passages each, open for writing."""
        engine = self._kind.create(dimension, similarity)
        self._engines.append(engine)
        for batch in some_documents(documents, dimension):
            engine.add(batch)
        return engine

    def again(self, engine: Engine, *, write: bool = False) -> Engine:
        """The same index, opened again."""
        self._engines.append(self._kind.reopen(engine, write=write))
        return self._engines[-1]

    def close(self) -> None:
        for engine in self._engines:
            engine.close()
