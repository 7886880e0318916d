"""Engines by their address: a folder is the embedded engine's, ``postgresql://…`` the cluster engine's.

The one module that knows which engines there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from suwen.index.address import Address, is_remote, shown, whole
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import Engine, Held, IndexProblem, Progress, Similarity


class _Kind(Protocol):
    """How the indexes of one kind of engine are made, found and opened."""

    def create(self, address: Address, *, space: str, dimension: int, similarity: Similarity) -> Engine: ...

    def open(self, address: Address, *, write: bool = False, repair: bool = True) -> Engine: ...

    def exists(self, address: Address) -> bool: ...

    def restore(self, source: Path, address: Address) -> None: ...


def _cluster() -> _Kind:
    try:
        from suwen.index.cluster.engine import ClusterEngine
    except ImportError as problem:
        raise IndexProblem(f"postgresql:// addresses need more ({problem}): pip install 'suwen[cluster]'") from problem
    return ClusterEngine


#: The engine of each scheme of an address. Another engine is another line.
_KINDS: Mapping[str, Callable[[], _Kind]] = {
    "": lambda: EmbeddedEngine,
    "postgresql": _cluster,
    "postgres": _cluster,
}


def create_engine(address: Address, *, space: str, dimension: int, similarity: Similarity = "cosine") -> Engine:
    """Make an empty index and open it for writing.

    Args:
        address: A folder, which may exist but must not hold anything foreign; or a database's address.
        space: The id of the space whose vectors it will hold.
        dimension: Of these vectors.
        similarity: How they are compared.
    """
    return _kind(address).create(whole(address), space=space, dimension=dimension, similarity=similarity)


def open_engine(address: Address, *, write: bool = False, repair: bool = True) -> Engine:
    """Open an index.

    Args:
        address: Where it is: its folder, or its database's address.
        write: Whether it will be changed; one process at a time may.
        repair: Put right what a crash left behind. Off to look at an index as it is, or before a rebuild.
    """
    return _kind(address).open(whole(address), write=write, repair=repair)


def index_exists(address: Address) -> bool:
    """Whether there is an index at this address, sound or not."""
    return _kind(address).exists(whole(address))


def restore(source: Path, address: Address) -> None:
    """Make an index of what :meth:`~suwen.index.engine.Engine.backup` wrote; rebuild it, or open it, to search it."""
    _kind(address).restore(source, whole(address))


def try_engine(address: Address, rounds: int = 40, seed: int = 0, progress: Progress | None = None) -> list[Held]:
    """Try the engine of a database out in a scratch index: what it promises, each with what broke it, if anything did.

    Args:
        address: Of the database, with the searcher to use.
        rounds: Random changes, after each of which every way to search is compared with the embedded engine's.
        seed: Of the changes.
        progress: Told of the rounds.
    """
    _kind(address)
    if not is_remote(address):
        raise IndexProblem(f"{shown(address)} is a folder: give the address of a database, postgresql://…")
    from suwen.index.cluster.trial import try_cluster

    return try_cluster(whole(address), rounds, seed, progress)


def _kind(address: Address) -> _Kind:
    scheme, separator, _ = whole(address).partition("://")
    kind = _KINDS.get(scheme if separator else "")
    if kind is None:
        known = "give the folder of an index, or postgresql://…"
        raise IndexProblem(f"{shown(address)}: there is no engine for {scheme}:// addresses here; {known}")
    return kind()
