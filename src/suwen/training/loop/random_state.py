"""Where the random generators stand, and putting them back: for a checkpoint, and for a chunk that is encoded twice."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def torch_random_state() -> list[Tensor]:
    """The states of torch's generators: that of the CPU, then those of the GPUs in use."""
    # Without the question, asking would start CUDA in a process that uses the CPU alone.
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return [torch.get_rng_state(), *gpus]


def restore_torch_random_state(states: Sequence[Tensor]) -> None:
    """Set torch's generators as :func:`torch_random_state` read them; GPUs that are not here are left out."""
    torch.set_rng_state(states[0])
    if len(states) > 1:
        for number, state in zip(range(torch.cuda.device_count()), states[1:], strict=False):
            torch.cuda.set_rng_state(state, number)


def random_state() -> dict[str, Any]:
    """The state of the random generators of Python, numpy, torch and every GPU, as JSON can hold it."""
    kind, numbers, place, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, spare = random.getstate()
    cpu, *gpus = [base64.b64encode(state.cpu().numpy().tobytes()).decode("ascii") for state in torch_random_state()]
    return {
        "python": [version, list(words), spare],
        "numpy": [kind, np.asarray(numbers).tolist(), int(place), int(has_gauss), float(gauss)],
        "torch": cpu,
        "cuda": gpus,
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Set the random generators as :func:`random_state` read them."""
    version, words, spare = state["python"]
    random.setstate((version, tuple(words), spare))
    kind, numbers, place, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.asarray(numbers, dtype=np.uint32), place, has_gauss, gauss))
    packed = [base64.b64decode(text) for text in (state["torch"], *state["cuda"])]
    restore_torch_random_state([torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in packed])
