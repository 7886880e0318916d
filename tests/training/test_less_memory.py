"""What makes a stage fit into less memory (pieces, recomputed layers, fp16) leaves alone what it learns."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

import suwen.training.run_context
from suwen.encoders.side import Side
from suwen.errors import SuwenError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe_runner import train
from suwen.training.students.student_models import build_student
from suwen.training.students.student_tokenizer import train_tokenizer
from suwen.training.tasks.towers import recompute_layers
from suwen.training.trained_student import StudentModel

TEXTS = ["头疼怎么办？", "高血压患者的饮食", "how is the flu treated", "咳嗽有痰吃什么药"] * 5
#: Each stage a few steps, so that one can be run again and again over the others.
SHORT = [
    "data.measure=null",
    "stages.document.training.steps=4",
    "stages.freeze.measure=false",
    "stages.retromae.training.steps=3",
    "stages.align.training.steps=4",
    "stages.joint.training.steps=3",
]
PIECES = "training.token_budget=90"
LAYERS = "training.gradient_checkpointing=true"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    done = ["document", "freeze", "vectors", "retromae", "align", "joint"]
    train(load_recipe("care-tiny", SHORT), folder, device="cpu", only=done)
    return folder


def again(runs: Path, to: Path, stage: str, *sets: str) -> Path:
    """Run one stage of a copy once more, with something set; its folder."""
    shutil.copytree(runs, to, symlinks=True)
    folder = to / "care-tiny" / "s0"
    shutil.rmtree(folder / stage)
    train(
        load_recipe("care-tiny", [*SHORT, *(f"stages.{stage}.{one}" for one in sets)]), to, device="cpu", only=[stage]
    )
    return folder / stage


def weights(stage: Path) -> dict[str, torch.Tensor]:
    return {
        f"{file.name}:{name}": value
        for file in sorted((stage / "model").rglob("*.safetensors"))
        for name, value in load_file(file).items()
    }


@pytest.mark.parametrize(
    ("stage", "sets"),
    [
        ("document", [PIECES, LAYERS]),
        ("retromae", [LAYERS]),
        ("align", [PIECES]),
        ("align", ["training.chunk=7", LAYERS]),
        ("joint", [PIECES, LAYERS]),
    ],
)
def test_pieces_and_recomputed_layers_learn_the_same(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, sets: list[str]
) -> None:
    recomputed: list[str] = []
    passes: list[tuple[int, bool]] = []
    enable, embed = PreTrainedModel.gradient_checkpointing_enable, Side.embed_flat
    monkeypatch.setattr(
        PreTrainedModel,
        "gradient_checkpointing_enable",
        lambda self, *given: recomputed.append(type(self).__name__) or enable(self, *given),
    )
    monkeypatch.setattr(
        Side,
        "embed_flat",
        lambda self, flat, lengths: passes.append((len(flat), torch.is_grad_enabled())) or embed(self, flat, lengths),
    )
    found = again(runs, tmp_path / "again", stage, *sets)
    assert len(recomputed) == (LAYERS in sets)
    if PIECES in sets:
        assert max(tokens for tokens, learning in passes if learning) <= 90
    before, after = weights(runs / "care-tiny" / "s0" / stage), weights(found)
    assert before.keys() == after.keys()
    for name, value in before.items():
        torch.testing.assert_close(
            after[name], value, rtol=1e-3, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_fp16_trains_with_a_scaled_loss(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    optimise = suwen.training.run_context.optimise
    monkeypatch.setattr(
        suwen.training.run_context,
        "optimise",
        lambda task, *given, **named: trained.append(task) or optimise(task, *given, **named),
    )
    found = again(runs, tmp_path / "again", "retromae", "training.precision=fp16", "training.batch=4")
    assert trained[0].scaler.get_scale() > 1
    start, end = weights(runs / "care-tiny" / "s0" / "retromae"), weights(found)
    assert all(bool(torch.isfinite(value).all()) for value in end.values())
    assert any(not torch.equal(start[name], value) for name, value in end.items())
    again(runs, tmp_path / "plain", "retromae", "training.batch=4")
    assert trained[1].scaler is None


def small(kind: str) -> StudentModel:
    tokenizer = train_tokenizer(TEXTS, size=200)
    return build_student(tokenizer, kind=kind, layers=2, width=32, heads=2, dimension=16, max_length=16, seed=0)


def test_recomputed_layers_run_twice_and_give_the_same_gradients() -> None:
    model = small("transformer").train()
    ran: list[int] = []
    model[0].model.encoder.layer[0].register_forward_pre_hook(lambda *_: ran.append(1))
    gradients = []
    for wanted in (False, True, False):
        recompute_layers(model, wanted)
        model.zero_grad()
        ran.clear()
        model(model.preprocess(TEXTS[:4]))["sentence_embedding"].square().sum().backward()
        gradients.append(np.concatenate([p.grad.flatten().numpy() for p in model.parameters() if p.grad is not None]))
        assert len(ran) == 1 + wanted
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(gradients[2], gradients[0])


def test_a_model_without_layers_is_refused() -> None:
    model = small("static")
    recompute_layers(model, False)
    with pytest.raises(SuwenError, match=r"StaticStudent cannot recompute .*take training.gradient_checkpointing out"):
        recompute_layers(model, True)
