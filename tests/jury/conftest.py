"""The scripted server of the client's tests, and the helpers of ``court.py``, on the path."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
for folder in (".", "../llm", "../retrieve"):
    sys.path.insert(0, str((Path(__file__).parent / folder).resolve()))

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, gone after it; in memory, since every batch of votes waits for the disk."""
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        yield Path(folder)
