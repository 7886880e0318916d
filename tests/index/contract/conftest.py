"""Every test of this folder runs over every engine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from engines import Cluster, Embedded, InMemory, Kind, Making

from in_memory import folder_in_memory
from milvus_server import new_address as milvus_address


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Filters are resolved in SQL, whatever searches: with Milvus they are tried in the long run."""
    for item in items:
        if item.path.name == "test_filters.py" and "[milvus" in item.name:
            item.add_marker(pytest.mark.long)


#: The form of milvus-lite without the core of Milvus is slow, and no other to the engine.
_REWRITE = pytest.param("milvus 3.2.2", marks=pytest.mark.long)


@pytest.fixture(params=["embedded", "in memory", "cluster", "milvus 2.5.1", _REWRITE], scope="module")
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    name, _, version = request.param.partition(" ")
    with folder_in_memory() as folder:
        if name == "embedded":
            yield Embedded(folder)
        elif name == "in":
            yield InMemory()
        else:
            yield Cluster(partial(milvus_address, version)) if name == "milvus" else Cluster()


@pytest.fixture
def make(kind: Kind) -> Iterator[Making]:
    making = Making(kind)
    yield making
    making.close()
