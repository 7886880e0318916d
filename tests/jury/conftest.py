"""The scripted server of the client's tests, and the helpers of ``court.py``, on the path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from in_memory import folder_in_memory

# Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
for folder in (".", "../llm", "../retrieve"):
    sys.path.insert(0, str((Path(__file__).parent / folder).resolve()))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, gone after it; in memory, since every batch of votes waits for the disk."""
    with folder_in_memory() as folder:
        yield folder
