"""A milvus-lite server for the tests of one process: started when the first asks, ended when the process does."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from postgres_server import new_address as address_of_postgres


@functools.cache
def tool() -> ModuleType:
    """The program ``tools/milvus.py``."""
    file = Path(__file__).parents[1] / "tools" / "milvus.py"
    spec = importlib.util.spec_from_file_location("milvus_tool", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules["milvus_tool"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _started(version: str):
    server = tool().Server(version)
    atexit.register(server.close)
    return server


def server(version: str = "2.5.1"):
    """The server; where there is none the test is skipped, and says how to get one."""
    pytest.importorskip("pymilvus", reason="there is no pymilvus: pip install 'suwen[milvus]'")
    if not tool().is_made(version):
        pytest.skip(tool().HOW)
    return _started(version)


def new_address(version: str = "2.5.1") -> str:
    """An address, with this Milvus as the searcher, at which there is no index yet."""
    return f"{address_of_postgres()}&milvus={server(version).address}"
