"""Every test of this folder runs over every engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engines import Cluster, Embedded, InMemory, Kind, Making

from in_memory import folder_in_memory


@pytest.fixture(params=["embedded", "in memory", "cluster"], scope="module")
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    with folder_in_memory() as folder:
        yield {"embedded": lambda: Embedded(folder), "in memory": InMemory, "cluster": Cluster}[request.param]()


@pytest.fixture
def make(kind: Kind) -> Iterator[Making]:
    making = Making(kind)
    yield making
    making.close()
