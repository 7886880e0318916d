"""From a trained cross-encoder to a reranker's folder: an int8 graph, a tokenizer, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.durable import write_json
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.query import open_session
from suwen.encoders.reranker import DESCRIPTION, GRAPH, TOKENIZER, RerankerManifest
from suwen.encoders.side import Side, load_model
from suwen.training.ship.exporting import ExportError, write_tokenizer
from suwen.training.ship.onnx_graph import quantise, write_graph

#: The furthest that a score of the fp32 graph may be from torch's; further off it is not the model.
_FURTHEST = 1e-3


class Contract(NamedTuple):
    """How a reranker was trained to be asked."""

    name: str
    template: str
    query_characters: int
    max_length: int
    licence: str = ""


def export_reranker(source: Path, out: Path, contract: Contract, texts: Sequence[str]) -> RerankerManifest:
    """Write a reranker.

    Args:
        source: The ``SentenceTransformer`` folder of a cross-encoder.
        out: An empty folder.
        contract: How it is asked.
        texts: Queries joined with passages, on which the graphs are held against torch.

    Raises:
        ExportError: The fp32 graph does not agree with torch.
    """
    model = load_model(source, device="cpu")[0].float()
    side = Side(model, "document")
    length = min(contract.max_length, side.max_length)
    rows = side.ids(texts, max_length=length)
    expected, config = _torch_scores(side, rows), side.modules[0].model.config
    plain = out / "fp32.onnx"
    write_graph(side, plain, dimension=1, normalise=False)
    furthest = float(np.abs(_scores(plain, rows) - expected).max())
    if not furthest <= _FURTHEST * max(1.0, float(np.abs(expected).max())):
        raise ExportError(
            f"the ONNX graph does not agree with torch: a score is off by {furthest:.5f}. Use an architecture of "
            "transformers without custom code"
        )
    quantise(plain, out / GRAPH)
    plain.unlink()
    write_tokenizer(out, side, length)
    small = _scores(out / GRAPH, rows)
    parity = {"torch_furthest": furthest, "int8_correlation": _correlation(small, expected), "texts": float(len(rows))}
    manifest = RerankerManifest(
        name=contract.name,
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        precision="int8",
        max_length=length,
        template=contract.template,
        query_characters=contract.query_characters,
        files={name: sha256_of(out / name) for name in (GRAPH, TOKENIZER)},
        parity={key: round(value, 6) for key, value in parity.items()},
        licence=contract.licence,
    )
    write_json(out / DESCRIPTION, manifest.model_dump())
    return manifest


def _torch_scores(side: Side, rows: Sequence[Sequence[int]]) -> Any:
    import torch

    with torch.inference_mode():
        return np.array([float(side.embed([row])[0, 0]) for row in rows])


def _scores(file: Path, rows: Sequence[Sequence[int]]) -> Any:
    session = open_session(file, 1)
    asked = [np.asarray([row], np.int64) for row in rows]
    return np.array(
        [float(session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0, 0]) for ids in asked]
    )


def _correlation(one: Any, other: Any) -> float:
    if min(np.std(one), np.std(other)) == 0:
        return 1.0
    return float(np.corrcoef(one, other)[0, 1])
