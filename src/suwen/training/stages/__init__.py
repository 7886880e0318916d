"""The stages of a recipe, by the word a recipe uses for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suwen.training.context import Context
from suwen.training.stages.align import run_align
from suwen.training.stages.document import run_document
from suwen.training.stages.export import run_export
from suwen.training.stages.freeze import run_freeze
from suwen.training.stages.joint import run_joint
from suwen.training.stages.pairs import run_pairs
from suwen.training.stages.retromae import run_retromae
from suwen.training.stages.vectors import run_vectors

RUN: dict[str, Callable[[Context, Any], dict[str, float]]] = {
    "document": run_document,
    "freeze": run_freeze,
    "vectors": run_vectors,
    "retromae": run_retromae,
    "contrastive": run_pairs,
    "finetune": run_pairs,
    "align": run_align,
    "joint": run_joint,
    "export": run_export,
}
