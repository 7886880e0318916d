"""A PostgreSQL server for the tests of one process: started when the first asks, ended when the process does."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import pytest

_numbers = itertools.count(1)


@functools.cache
def tool() -> ModuleType:
    """The program ``tools/postgres.py``."""
    file = Path(__file__).parents[1] / "tools" / "postgres.py"
    spec = importlib.util.spec_from_file_location("postgres_tool", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules["postgres_tool"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _started():
    server = tool().Server()
    atexit.register(server.close)
    return server


def server():
    """The server; where there is none the test is skipped, and says how to get one."""
    if not tool().is_made():
        pytest.skip(tool().HOW)
    return _started()


def new_address() -> str:
    """An address at which there is no index yet."""
    return f"{server().address}?index=t{next(_numbers)}"
