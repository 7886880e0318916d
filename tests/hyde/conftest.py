"""The scripted server of ``tests/llm`` serves here too."""

from __future__ import annotations

import sys
from pathlib import Path

# Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
