"""A pair's transformer tier as a sentence-transformers model in fp32: what suwen's int8 graph is measured beside.

The weights are the graph's own, int8 times their scales. A node is named after the module it was exported from, which
says where each matrix belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx.numpy_helper import to_array
from tokenizers import Tokenizer

from suwen.encoders.pair import Pair
from suwen.training.students.student_models import build_student


def torch_of_tier(pair: Pair, name: str) -> Any:
    """The tier as it was before its export, without what it blends in; ``prompt_name="query"`` encodes queries."""
    tier = pair.manifest.tiers[name]
    folder = pair.path / tier.path
    shape = {"layers": tier.layers, "width": tier.width, "dimension": pair.space.dimension}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = build_student(tokenizer, **shape, max_length=tier.max_length, pooling="mean")
    model[0].model.pooler = None  # of no use behind a mean, and not in the graph
    weights = dict(_weights(onnx.load(folder / "model.onnx")))
    model.load_state_dict({key: torch.from_numpy(np.array(weights[key])) for key in model.state_dict()})
    return model


def _weights(model: onnx.ModelProto) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Parameters by their names in the model that was exported."""
    held = {item.name: to_array(item) for item in model.graph.initializer}
    for name, value in held.items():
        if name.endswith("_int8"):
            yield name.removeprefix("parts.").removesuffix("_int8"), value * held[name.replace("_int8", "_scales")]
        elif value.dtype == np.float32:
            yield name.removeprefix("parts."), value
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":
            stem = node.input[1].removesuffix("_quantized")
            weight = (held[f"{stem}_quantized"] - held[f"{stem}_zero_point"].astype(np.float32)) * held[f"{stem}_scale"]
            part, *path = node.name.removeprefix("/parts.").split("/")[:-1]
            yield ".".join([part, *(["model"] if part == "0" else []), *path, "weight"]), weight.T
