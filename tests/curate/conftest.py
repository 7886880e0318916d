"""A scripted model over real HTTP for whatever asks one, and small collections written by hand."""

from __future__ import annotations

import sys
from pathlib import Path

# Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

from scripted_asker import ask

__all__ = ["ask"]
