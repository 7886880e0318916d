"""A reranker made in milliseconds: a real ONNX graph that adds up what each token is worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from suwen.durable import write_json
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.reranker import DESCRIPTION, GRAPH, TOKENIZER, RerankerManifest

TEMPLATE = "{query}|{document}"


def make_reranker(folder: Path, worth: Mapping[str, float], **said: Any) -> Path:
    """Write a reranker under which a character is worth so much, by its place among the characters after the bar.

    Args:
        folder: Where to.
        worth: What each character counts; any other counts nothing.
        said: Further keys of ``reranker.json``.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folder.mkdir(parents=True)
    vocabulary = {"[UNK]": 0} | {character: place for place, character in enumerate(worth, 1)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / TOKENIZER))
    table = np.array([[0.0], *([value] for value in worth.values())], np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["each"], axis=0),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["each", "column"], ["real"]),
        helper.make_node("ReduceSum", ["real", "middle"], ["sentence_embedding"], keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", 1])
    constants = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([2]), "last"),
        numpy_helper.from_array(np.array([1]), "middle"),
    ]
    graph = helper.make_graph(nodes, "worth", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / GRAPH))
    about: dict[str, Any] = {
        "name": "worth",
        "layers": 1,
        "width": 1,
        "precision": "fp32",
        "max_length": 512,
        "template": TEMPLATE,
        "query_characters": 8,
        "files": {name: sha256_of(folder / name) for name in (GRAPH, TOKENIZER)},
    }
    write_json(folder / DESCRIPTION, RerankerManifest(**about | said).model_dump())
    return folder
