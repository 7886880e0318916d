"""A light pair's ONNX tier as a torch model again: where training starts from what ships, and no full pair is at hand.

Only graphs of our own students are read (``build_student``): their int8 matrices are scaled back, off by half a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from suwen.encoders.pair import Pair
from suwen.training.students.student_models import StudentError, build_student

_PREFIX = "parts.0.model."


def open_tier(pair: Pair, tier: str) -> Any:
    """A tier as a ``SentenceTransformer`` of transformer, mean pooling, projection and normalisation, on the CPU.

    Raises:
        StudentError: The tier is none of our own transformers.
    """
    import torch
    from tokenizers import Tokenizer

    pair.need_tier(tier)
    described, folder = pair.manifest.tiers[tier], pair.path / pair.manifest.tiers[tier].path
    if described.kind != "onnx":
        raise StudentError(f"tier {tier!r} of {pair.name} is of kind {described.kind}: name one of kind onnx")
    weights, head = read_graph(folder / "model.onnx")
    transformer = {name.removeprefix(_PREFIX): array for name, array in weights.items() if name.startswith(_PREFIX)}
    try:
        table, inner = (
            transformer["embeddings.word_embeddings.weight"],
            transformer["encoder.layer.0.output.dense.weight"],
        )
        student = build_student(
            Tokenizer.from_file(str(folder / "tokenizer.json")),
            layers=int(described.layers or 0),
            width=table.shape[1],
            heads=table.shape[1] // head,
            intermediate=inner.shape[1],
            dimension=pair.space.dimension,
            max_length=described.max_length,
            pooling="mean",
        )
        found = {name: torch.from_numpy(array) for name, array in transformer.items()}
        left = student[0].model.load_state_dict(found, strict=False)
        # A pooler that no graph holds, and buffers that are made anew.
        if missing := [name for name in left.missing_keys if "pooler" not in name and not name.endswith("_ids")]:
            raise KeyError(missing[0])
        student[2].load_state_dict(
            {f"linear.{kind}": torch.from_numpy(weights[f"parts.2.linear.{kind}"]) for kind in ("weight", "bias")}
        )
    except (KeyError, RuntimeError, StudentError) as error:
        raise StudentError(
            f"tier {tier!r} of {pair.name} is no student of this package ({error}): start from a `base` instead"
        ) from error
    return student


def read_graph(file: Path) -> tuple[dict[str, Any], int]:
    """The parameters of an exported graph by their names in torch, fp32, and the width of an attention head."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(file)).graph
    stored = {tensor.name: tensor for tensor in graph.initializer}

    def array(name: str) -> Any:
        # A copy: torch wants one that may be written to.
        return np.array(numpy_helper.to_array(stored[name]))

    weights = {name: array(name) for name in stored if name.startswith("parts.")}
    for name in [name for name in weights if name.endswith("_int8")]:
        plain = name.removesuffix("_int8")
        weights[plain] = weights.pop(name).astype(np.float32) * weights.pop(f"{plain}_scales")
    for node in graph.node:
        if node.op_type not in ("MatMulInteger", "MatMul") or not node.name.startswith("/parts."):
            continue
        held = next((one for one in node.input if one in stored and not one.endswith("zero_point")), None)
        if held is not None:
            weights[_parameter(node.name)] = np.ascontiguousarray(_scaled(array, held).T)
    sizes = [
        int(numpy_helper.to_array(node.attribute[0].t)[0])
        for node in graph.node
        if node.op_type == "Constant" and "layer.0/attention/self/" in node.output[0] and _is_shape(node)
    ]
    return weights, next((size for size in sizes if size > 1), 64)


def _scaled(array: Any, held: str) -> Any:
    if not held.endswith("_quantized"):
        return array(held)
    plain = held.removesuffix("_quantized")
    zero = array(f"{plain}_zero_point").astype(np.float32)
    return (array(held).astype(np.float32) - zero) * array(f"{plain}_scale")


def _parameter(node: str) -> str:
    """The weight that a product of matrices is by: ``/parts.0/encoder/layer.0/output/dense/MatMul_quant``."""
    parts = node.strip("/").split("/")[:-1]
    return ".".join([*([parts[0], "model", *parts[1:]] if parts[0] == "parts.0" else parts), "weight"])


def _is_shape(node: Any) -> bool:
    value = node.attribute[0].t
    return list(value.dims) == [1] and value.data_type == 7  # one int64
