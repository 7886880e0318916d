"""Students out of a wider decoder: its first layers, turned, where nothing is cut; near them where something is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from suwen.encoders.base_model import load_base
from suwen.encoders.query import OnnxEncoder
from suwen.encoders.side import Side
from suwen.encoders.space import Tier
from suwen.training.ship.onnx_graph import write_graph
from suwen.training.students.shrunk_layers import fill, main_axes, shrink_decoder
from suwen.training.students.student_models import StudentError
from suwen.training.students.student_tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def decoder(base_folder: Path):
    model = load_base(base_folder, device="cpu", dtype="fp32", max_length=32)
    body = model[0].model
    with torch.no_grad():  # gains and biases of a fresh model are one and zero, and would hide a mistake
        for name, weight in body.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name))))
    return model


@pytest.fixture(scope="module")
def tokenizer(models):
    return train_tokenizer(models.TEXTS, size=300)


def turned(decoder, axes: torch.Tensor, **changes: int):
    """A decoder of the same kind along some axes, and the tokens' own rows."""
    import copy

    from transformers import AutoModel

    base = decoder[0].model
    config = copy.deepcopy(base.config)
    config.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for key, value in {"hidden_size": axes.shape[1], **changes}.items():
        setattr(config, key, value)
    student = AutoModel.from_config(config).eval()
    fill(student, base, axes, base.get_input_embeddings().weight.detach())
    return student


def states(model, ids: list[list[int]]) -> torch.Tensor:
    with torch.inference_mode():
        found = model(torch.tensor(ids), output_hidden_states=True).hidden_states
    # The last of them is behind the last norm, which a student learns anew.
    return torch.stack(found[:-1])


def test_with_nothing_cut_the_layers_are_the_decoders_turned(decoder, models) -> None:
    side = Side(decoder, "document")
    axes = main_axes(side, models.TEXTS, 2, decoder[0].model.config.hidden_size)
    assert torch.allclose(axes.T @ axes, torch.eye(axes.shape[1]), atol=1e-4)
    ids = [side.ids(["高血压的症状"])[0][:5], side.ids(["胃痛反酸怎么办"])[0][:5]]
    theirs, mine = states(decoder[0].model, ids), states(turned(decoder, axes), ids)
    assert len(theirs) >= 2, "at least one layer is between"
    assert torch.allclose(mine, theirs @ axes, atol=1e-3)
    assert not torch.allclose(mine[-1], theirs[0] @ axes, atol=0.1), "the layers do something"


def test_the_main_axes_keep_more_of_the_states_than_any_others(decoder, models) -> None:
    side = Side(decoder, "document")
    axes = main_axes(side, models.TEXTS, 2, 16)
    other = torch.linalg.qr(torch.randn(axes.shape, generator=torch.Generator().manual_seed(0)))[0]
    ids = side.ids(["糖尿病人可以吃水果吗"])
    found = torch.nn.functional.normalize(states(decoder[0].model, ids)[:, 0, 1:].reshape(-1, axes.shape[0]), dim=-1)
    kept, by_chance = ((found @ some).square().sum(dim=-1).mean() for some in (axes, other))
    assert kept > by_chance + 0.1


def test_a_student_of_fewer_axes_heads_and_neurons_runs_and_exports(decoder, tokenizer, models, tmp_path: Path) -> None:
    shape = {"layers": 1, "width": 32, "heads": 2, "intermediate": 48, "dimension": 24, "max_length": 40}
    student = shrink_decoder(decoder, tokenizer, models.TEXTS, **shape)
    again = shrink_decoder(decoder, tokenizer, models.TEXTS, **shape)
    config = student[0].model.config
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (32, 1, 2)
    assert all(torch.equal(*pair) for pair in zip(student.parameters(), again.parameters(), strict=True))
    texts = [f"[Q]{text}" for text in models.TEXTS]
    expected = student.encode(texts)
    assert expected.shape == (len(texts), 24) and np.allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    student.save(str(tmp_path / "student"))
    folder = tmp_path / "tier"
    folder.mkdir()
    side = Side(student, "query")
    write_graph(side, folder / "model.onnx", dimension=24, normalise=True)
    side.backend.save(str(folder / "tokenizer.json"))
    files = {"model.onnx": "0" * 64, "tokenizer.json": "0" * 64}
    said = {"path": "tier", "files": files, "max_length": 40, "precision": "fp32", "aligned_to": "sp"}
    encoder = OnnxEncoder(
        folder, Tier(kind="onnx", prompts={"query": "[Q]", "document": "[D]"}, **said), name="t", dimension=24
    )
    assert np.allclose(encoder.encode_queries(list(models.TEXTS)), expected, atol=1e-4)


def test_it_starts_nearer_to_the_decoder_than_chance(decoder, tokenizer, models) -> None:
    """Texts that are near for the decoder's first layers are near for the student, before it has learnt anything."""
    texts = [*models.TEXTS]
    shape = {"layers": 1, "width": 48, "heads": 4, "intermediate": 96, "dimension": 24, "max_length": 40}
    student = shrink_decoder(decoder, tokenizer, texts, **shape)

    def near(model) -> np.ndarray:
        side = Side(model, "document")
        with torch.inference_mode():
            means = [model[0].model(torch.tensor([ids])).last_hidden_state[0].mean(dim=0) for ids in side.ids(texts)]
        found = torch.nn.functional.normalize(torch.stack(means) - torch.stack(means).mean(dim=0), dim=-1)
        return (found @ found.T).numpy()[np.triu_indices(len(texts), 1)]

    assert np.corrcoef(near(decoder), near(student))[0, 1] > 0.3


def test_what_cannot_be_projected_down_is_told(decoder, tokenizer, models, decoder_folder: Path) -> None:
    shape = {"layers": 1, "width": 32, "heads": 2, "intermediate": 48}
    for wrong in ({"layers": 99}, {"width": 4096}, {"heads": 64}, {"intermediate": 10**6}):
        with pytest.raises(StudentError, match="more than the decoder has"):
            shrink_decoder(decoder, tokenizer, models.TEXTS, **shape | wrong)
    other = load_base(decoder_folder, device="cpu", dtype="fp32", max_length=32)
    with pytest.raises(StudentError, match="Qwen2"):
        shrink_decoder(other, tokenizer, models.TEXTS, **shape)
