"""A tier that ships, as a torch model again: it encodes as the graph does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipes_on_the_spot import TRAINING, raw_recipe, write_recipe

from suwen.encoders.pair import Pair
from suwen.encoders.query import EncoderError, OnnxEncoder
from suwen.encoders.side import Side
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.stage_identity import _student
from suwen.training.run_context import RunContext
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


def test_a_student_may_start_from_a_tier_that_ships(tmp_path: Path) -> None:
    shape = {"layers": 6, "width": 384, "pooling": "mean", "train_table": False, "max_length": 64}
    raw = raw_recipe() | {"dimension": 512, "students": {"l6": shape | {"base": "pair:default#l6"}}}
    raw["stages"] = [stage for stage in raw["stages"] if stage["name"] in ("document", "freeze", "vectors")]
    align = {"stage": "align", "name": "align", "student": "l6", "vectors": "vectors", "training": TRAINING}
    raw |= {"stages": [*raw["stages"], align], "variants": {}}
    recipe = load_recipe(write_recipe(tmp_path, raw))
    student = RunContext(recipe, tmp_path).student("l6", None)
    wanted = open_tier(Pair.load(), "l6").state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in student.state_dict().items())
    assert not student[0].model.get_input_embeddings().weight.requires_grad
    assert _student(recipe, recipe.stage("align"), 0)["tier"], "another tier is other work"
    raw["students"]["l6"]["base"] = "pair:default#l7"
    with pytest.raises(EncoderError, match="has no tier 'l7': choose one of l6, static"):
        _student(load_recipe(write_recipe(tmp_path, raw)), recipe.stage("align"), 0)
    raw["students"]["l6"]["base"] = "pair:default"
    with pytest.raises(RecipeError, match="names no tier; say pair:FOLDER#TIER"):
        load_recipe(write_recipe(tmp_path, raw))
