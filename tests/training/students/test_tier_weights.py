"""A tier that ships, as a torch model again: it encodes as the graph does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from suwen.encoders.pair import Pair
from suwen.encoders.query import OnnxEncoder
from suwen.encoders.side import Side
from suwen.training.students.student_models import StudentError, prune_layers
from suwen.training.students.tier_weights import open_tier

TEXTS = ["肾结石要多喝水吗", "高血压患者应低盐饮食并定期测量血压", "statins lower cholesterol in older adults"]


def test_the_default_pairs_layers_are_read_back() -> None:
    pair = Pair.load()
    tier = pair.manifest.tiers["l6"]
    graph = OnnxEncoder(pair.path / tier.path, tier, name="l6", dimension=pair.space.dimension)
    model = open_tier(pair, "l6").eval()
    side = Side(model, "query")
    with torch.inference_mode():
        vectors = torch.cat([side.embed(side.ids([f"[Q]{text}"])) for text in TEXTS]).numpy()
    # What is left is the graph's own rounding of activations to int8.
    assert ((vectors * graph.encode_queries(TEXTS)).sum(axis=1) > 0.999).all()
    assert np.isfinite(vectors).all() and prune_layers(model, 3)[0].model.config.num_hidden_layers == 3


def test_another_kind_of_tier_is_refused(light_pair: Path) -> None:
    with pytest.raises(StudentError, match="name one of kind onnx"):
        open_tier(Pair.load(), "static")
    with pytest.raises(StudentError, match="no student of this package"):
        open_tier(Pair.load(light_pair), "l2-fp32")
