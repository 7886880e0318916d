"""From torch modules to one ONNX graph, fp32 and int8. What goes around the graph is in ``exporting.py``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from suwen.encoders.side import ModelError, Side

#: Tables smaller than this many numbers stay fp32: positions and token types would gain nothing.
_SMALL_TABLE = 1 << 16
_OPSET = 17


def write_graph(side: Side, file: Path, *, dimension: int, normalise: bool) -> None:
    """Write transformer, pooling, projections, cut and normalisation as one fp32 graph.

    Inputs are ``input_ids`` and ``attention_mask`` (batch and sequence are free), the output is
    ``sentence_embedding``.

    Raises:
        ModelError: torch cannot export the model.
    """
    import torch

    graph = _as_module(side, dimension, normalise).eval()
    for module in side.modules:
        module.eval().float().cpu()
    config = side.modules[0].model.config
    config.use_cache = False
    side.modules[0].model.set_attn_implementation("eager")
    ids = torch.tensor([side.ids(["a b c"])[0] * 3, side.ids(["a b c"])[0] * 3])
    mask = torch.ones_like(ids)
    mask[1, -2:] = 0  # a trace of a batch without padding may fold the mask away
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        try:
            _trace(graph, (ids, mask), file)
        except Exception as error:
            raise ModelError(
                f"torch cannot export this model ({type(error).__name__}: {error}): use an architecture of "
                f"transformers without custom code"
            ) from error


def _as_module(side: Side, dimension: int, normalise: bool) -> Any:
    import torch

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(side.modules)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            vectors = side.run({"input_ids": input_ids, "attention_mask": attention_mask})[:, :dimension]
            return torch.nn.functional.normalize(vectors, dim=-1) if normalise else vectors

    return Graph()


def _trace(graph: Any, example: tuple[Any, Any], file: Path) -> None:
    import torch

    names = ["input_ids", "attention_mask"]
    free = {0: "batch", 1: "sequence"}
    # The TorchScript exporter: the dynamo one gives the same numbers (1e-7 on BERT, XLM-R and Qwen3) in ten times the
    # time, and leaves value_info that the quantiser trips over.
    torch.onnx.export(
        graph,
        example,
        str(file),
        input_names=names,
        output_names=["sentence_embedding"],
        dynamic_axes={**dict.fromkeys(names, free), "sentence_embedding": {0: "batch"}},
        opset_version=_OPSET,
        dynamo=False,
    )


def quantise(source: Path, target: Path) -> None:
    """Write the int8 form of a graph: weights per channel, big lookup tables per row, activations at run time.

    What has one number for a result stays as it is. It costs next to nothing, and what stands before it may be of
    several sizes, all of which would be rounded by the largest: the products of a cosine, and what the words find.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load(str(source))
    add_pre_process_metadata(model)  # the session optimises the graph when it loads; unmarked, a warning is logged
    del model.graph.value_info[:]  # stale shapes make the quantiser fail or skip nodes
    _quantise_tables(model)
    quantize_dynamic(
        model,
        str(target),
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=_with_one_result(model),
    )


def _with_one_result(model: Any) -> list[str]:
    """The names that the quantiser knows the products by which have one number for a result."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    names = []
    for node in model.graph.node:
        turned = any(one.name == "transB" and one.i for one in node.attribute)
        shape = shapes.get(node.input[1], ()) if node.op_type in ("MatMul", "Gemm") else ()
        if len(shape) == 2 and shape[0 if turned else 1] == 1:
            # It makes a product and a sum of a Gemm first.
            names.append(f"{node.name}_MatMul" if node.op_type == "Gemm" else node.name)
    return names


def _quantise_tables(model: Any) -> None:
    """Replace each big embedding table by int8 rows with a scale a row, restored after the lookup.

    onnxruntime's own Gather quantisation has one scale for the whole table, set by its largest number. On m3e-small
    (55.9 MB to 23.5 MB either way) rows cost 0.00001 of mean cosine and that one scale 0.0005.
    """
    from onnx import helper, numpy_helper

    tables = {tensor.name: tensor for tensor in model.graph.initializer}
    uses = [node for node in model.graph.node if node.op_type == "Gather" and node.input[0] in tables]
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        if node not in uses or any(one.name == "axis" and one.i != 0 for one in node.attribute):
            continue
        rows = numpy_helper.to_array(tables[node.input[0]])
        if rows.ndim != 2 or rows.dtype != np.float32 or rows.size < _SMALL_TABLE:
            continue
        name, (small, scales) = node.input[0], quantise_rows(rows)
        if name + "_int8" not in {tensor.name for tensor in model.graph.initializer}:
            model.graph.initializer.append(numpy_helper.from_array(small, name + "_int8"))
            model.graph.initializer.append(numpy_helper.from_array(scales[:, None], name + "_scales"))
        output = node.output[0]
        node.input[0], node.output[0] = name + "_int8", output + "_int8"
        nodes += [
            helper.make_node("Gather", [name + "_scales", node.input[1]], [output + "_scale"], axis=0),
            helper.make_node("Cast", [output + "_int8"], [output + "_float"], to=1),
            helper.make_node("Mul", [output + "_float", output + "_scale"], [output]),
        ]
    _replace_nodes(model, nodes)


def _replace_nodes(model: Any, nodes: list[Any]) -> None:
    """Put the nodes in, and drop the tables nothing reads any more."""
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    read = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def quantise_rows(rows: np.ndarray[Any, np.dtype[np.float32]]) -> tuple[Any, Any]:
    """Rows as int8 with one float32 scale each: ``rows ≈ int8 * scale``, off by half a step at most."""
    scales = (np.abs(rows).max(axis=1) / 127).astype(np.float32)
    steps = np.divide(rows, scales[:, None], out=np.zeros_like(rows), where=scales[:, None] > 0)
    return np.rint(steps).clip(-127, 127).astype(np.int8), scales
