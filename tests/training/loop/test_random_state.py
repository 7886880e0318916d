"""The random generators go on where they stood."""

from __future__ import annotations

import json
import random

import numpy as np
import torch

from suwen.training.loop.random_state import (
    random_state,
    restore_random_state,
    restore_torch_random_state,
    torch_random_state,
)


def draw() -> list[float]:
    drawn = [random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.randn())]
    return [*drawn, float(torch.rand(())), float(torch.randn(()))]


def test_random_generators_go_on_where_they_were() -> None:
    draw()
    state = json.loads(json.dumps(random_state()))
    expected = draw()
    assert draw() != expected
    restore_random_state(state)
    assert draw() == expected


def test_torch_generators_go_on_where_they_were() -> None:
    state = torch_random_state()
    expected = torch.rand(5)
    restore_torch_random_state(state)
    assert torch.equal(torch.rand(5), expected)
