"""Askers of the scripted model of ``server.py``, over real HTTP. No test here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from suwen.llm.asker import Asker
from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig
from suwen.llm.ledger import Budget

Ask = Callable[..., Asker]


def config_of(url: str, model: dict[str, Any] | None = None, **endpoint: Any) -> LLMConfig:
    """One endpoint, ``here``, in a hurry, and one model, ``m``."""
    here = {"base_url": url, "concurrency": 4, "timeout": 30.0, "backoff": 0.01} | endpoint
    models = {"m": {"endpoint": "here", "model": "scripted", "max_tokens": 256} | (model or {})}
    return LLMConfig.model_validate({"endpoints": {"here": here}, "models": models})


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Makes askers of the model ``m`` at an address, all over one file of replies."""
    with ExitStack() as stack:

        def make(url: str, *, model: str = "m", language: str = "zh", dry_run: bool = False, **more: Any) -> Asker:
            budget = Budget(more.pop("calls", None))
            config = config_of(url, more.pop("settings", None), **more)
            llm = stack.enter_context(LLM.open(config, tmp_path / "replies.db", budget=budget))
            return Asker(llm, model, language, dry_run=dry_run)

        yield make
