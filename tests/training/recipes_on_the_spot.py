"""A small recipe as plain values, and stages that do real work in milliseconds: they write what they were given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from suwen.training.recipe.stage_base import STAGES

TRAINING = {"steps": 4, "batch": 2, "learning_rate": 1e-3}


def raw_recipe() -> dict[str, Any]:
    """Every kind of reference, in the order of the shipped recipes."""
    return {
        "name": "small",
        "dimension": 32,
        "data": {"root": "builtin:tiny"},
        "tokenizer": {"vocabulary": 500},
        "students": {"student": {"layers": 2, "width": 64, "heads": 4}, "static": {"kind": "static"}},
        "stages": [
            {"stage": "document", "name": "document", "base": "org/base", "training": {**TRAINING, "seed": 0}},
            {"stage": "freeze", "name": "freeze", "start": "document"},
            {"stage": "vectors", "name": "vectors", "start": "freeze"},
            {"stage": "align", "name": "align-static", "student": "static", "vectors": "vectors", "training": TRAINING},
            {"stage": "retromae", "name": "retromae", "student": "student", "training": TRAINING},
            {
                "stage": "align",
                "name": "align",
                "student": "student",
                "start": "retromae",
                "vectors": "vectors",
                "training": TRAINING,
            },
            {
                "stage": "joint",
                "name": "joint",
                "student": "student",
                "start": "align",
                "document": "freeze",
                "train_document": False,
                "training": TRAINING,
            },
            {
                "stage": "export",
                "name": "export",
                "start": "freeze",
                "tiers": {"l2": "joint", "static": "align-static"},
            },
        ],
        "variants": {
            "without-stage-1": {"description": "no Stage I", "remove": ["align"]},
            "without-stage-2": {"description": "no Stage II", "remove": ["joint"]},
            "without-mse": {"description": "no MSE", "set": {"stages.align.squared_l2": 0}},
            "without-contrastive": {"description": "no contrast", "set": {"stages.align.contrastive": 0}},
            "without-query-init": {"description": "no start", "remove": ["retromae"]},
            "without-document-init": {"description": "raw", "set": {"stages.document.training.steps": 0}},
        },
    }


def write_recipe(folder: Path, raw: dict[str, Any] | None = None, name: str = "small.yaml") -> Path:
    """The recipe as a file."""
    file = folder / name
    file.write_text(yaml.safe_dump(raw_recipe() if raw is None else raw, allow_unicode=True), encoding="utf-8")
    return file


class Stages:
    """Takes the place of what every kind of stage does: leaves a model, and metrics; ``done`` tells which ran.

    ``stages["align"] = run`` puts something else in the place of one kind.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.done: list[str] = []
        #: Stages that break off before their end, as a kill would.
        self.broken: set[str] = set()
        for kind in STAGES:
            self[kind] = self.run

    def __setitem__(self, kind: str, run: Callable[[Any, Any, Any], dict[str, float]]) -> None:
        self._monkeypatch.setattr(STAGES[kind], "run", lambda stage, context, folder: run(stage, context, folder))

    def run(self, stage: Any, context: Any, folder: Any) -> dict[str, float]:
        if stage.name in self.broken:
            raise RuntimeError("killed")
        settings = json.dumps(stage.model_dump(mode="json"), sort_keys=True)
        folder.leave(lambda model: (model / "settings.json").write_text(settings, encoding="utf-8"))
        self.done.append(stage.name)
        # Any number that differs between variants and seeds will do.
        score = 50.0 + len(context.recipe.stages) + context.seed + getattr(stage, "squared_l2", 0.0)
        return {"consult": score, "mean": score} if stage.stage in ("align", "joint") else {}
