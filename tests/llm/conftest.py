"""A configuration for the scripted server of ``server.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suwen.llm.config import LLMConfig

# Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
sys.path.insert(0, str(Path(__file__).parent))

from scripted_asker import ask
from virtual_clock import clock

__all__ = ["ask", "clock", "configured"]


@pytest.fixture
def configured() -> Callable[..., LLMConfig]:
    """Makes a configuration of one endpoint, ``here``, and one model, ``m``, that is in a hurry."""

    def make(url: str, model: dict[str, Any] | None = None, **endpoint: Any) -> LLMConfig:
        here = {"base_url": url, "concurrency": 4, "timeout": 30.0, "backoff": 0.01} | endpoint
        models = {"m": {"endpoint": "here", "model": "scripted"} | (model or {})}
        return LLMConfig.model_validate({"endpoints": {"here": here}, "models": models})

    return make
