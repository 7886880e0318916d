"""Texts end to end give what texts with padding give: vectors, gradients, and models that still export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import (
    BertConfig,
    BertModel,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from suwen.encoders import packed
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.probe import row_cosines
from suwen.encoders.side import Side, cast
from suwen.training.ship.onnx_graph import write_graph

ROWS = [[5, 9, 3], [7], [4, 4, 8, 11, 20, 6, 13], [30, 12], list(range(2, 19))]
ENCODER = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": 1,
}
DECODER = {**ENCODER, "num_key_value_heads": 2}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS = {
    "qwen2": lambda: Qwen2Model(Qwen2Config(**DECODER)),
    "qwen3": lambda: Qwen3Model(Qwen3Config(**DECODER, head_dim=16)),
    "bert": lambda: BertModel(BertConfig(**ENCODER, **QUIET)),
    "roberta-prelayernorm": lambda: RobertaPreLayerNormModel(RobertaPreLayerNormConfig(**ENCODER, **QUIET)),
    "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(**ENCODER, **QUIET)),
}


@pytest.fixture(scope="module")
def folders(models, tmp_path_factory) -> dict[str, Path]:
    """Each architecture, tiny, in a folder of its own with a real tokenizer."""
    root = tmp_path_factory.mktemp("packed")
    torch.manual_seed(3)
    for name, build in MODELS.items():
        models._save_byte_bpe(root / name, end_token=True)
        build().save_pretrained(root / name)
    return {name: root / name for name in MODELS}


def side_of(folder: Path, pooling: str = "lasttoken") -> Side:
    torch.manual_seed(4)
    modules = [Transformer(str(folder)), Pooling(32, pooling), Dense(32, 12, activation_function=None), Normalize()]
    return Side(SentenceTransformer(modules=modules, device="cpu").eval(), "document")


def both(side: Side, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The vectors with padding, and the same end to end."""
    side.packed = False
    padded = side.embed(rows)
    side.packed = True
    return padded, side.embed(rows)


@pytest.mark.parametrize("pooling", ["lasttoken", "cls", "mean"])
@pytest.mark.parametrize("name", MODELS)
def test_packed_is_padded(folders, name, pooling):
    with torch.inference_mode():
        padded, found = both(side_of(folders[name], pooling), ROWS)
    assert torch.allclose(found, padded, atol=2e-6)
    assert row_cosines(found.numpy(), found.roll(1, 0).numpy()).max() < 0.999  # or the test would see nothing


@pytest.mark.parametrize("name", MODELS)
def test_padding_still_works_after_packing(folders, name):
    side = side_of(folders[name], "mean")
    with torch.inference_mode():
        before, _ = both(side, ROWS)
        after, _ = both(side, ROWS)
    assert torch.allclose(before, after, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.lists(st.integers(2, 399), min_size=1, max_size=12), min_size=1, max_size=6))
def test_a_text_does_not_see_its_neighbours(folders, rows):
    side = side_of(folders["qwen3"])
    side.packed = True
    with torch.inference_mode():
        alone = torch.cat([side.embed([row]) for row in rows])
        assert torch.allclose(side.embed(rows), alone, atol=2e-6)


def gradients(side: Side, packs: bool) -> dict[str, torch.Tensor]:
    side.packed = packs
    parts = torch.nn.ModuleList(side.modules).train()
    parts.zero_grad()
    found = side.embed(ROWS)
    (found @ torch.arange(12.0)).square().sum().backward()
    return {name: p.grad.clone() for name, p in parts.named_parameters() if p.grad is not None}


def largest_difference(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> float:
    """Over all gradients, as a share of the largest."""
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    return max(float((expected[key] - found[key]).abs().max()) for key in expected) / scale


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_padding(folders, name):
    side = side_of(folders[name], "mean")
    padded, found = gradients(side, False), gradients(side, True)
    assert padded.keys() == found.keys() and len(found) > 20
    assert largest_difference(padded, found) < 1e-5


@pytest.mark.parametrize("name", ["qwen3", "roberta-prelayernorm"])
def test_a_checkpointed_layer_runs_again_as_it_ran(folders, name):
    side = side_of(folders[name], "mean")
    plain = gradients(side, True)
    side.modules[0].model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    again = gradients(side, True)
    assert largest_difference(plain, again) < 1e-5


def test_adapters_of_peft_are_trained_end_to_end(folders):
    from peft import LoraConfig, get_peft_model

    side = side_of(folders["qwen3"])
    names = ["q_proj", "v_proj", "down_proj"]
    lora = LoraConfig(r=4, target_modules=names, init_lora_weights=False)
    side.modules[0].model = get_peft_model(side.modules[0].model, lora)
    padded, found = gradients(side, False), gradients(side, True)
    trained = [key for key in found if "lora_" in key]
    assert len(trained) == 2 * 2 * len(names)
    assert largest_difference(padded, found) < 1e-5
    assert all(found[key].abs().max() > 0 for key in trained)


def test_nothing_is_packed_on_a_cpu_unless_asked(folders):
    side = side_of(folders["qwen3"])
    assert side.packed is None and not side.packs
    side.embed(ROWS)
    assert side.modules[0].model.config._attn_implementation == "sdpa"


def test_a_model_exports_after_packing(folders, tmp_path):
    import onnxruntime

    side = side_of(folders["bert"], "mean")
    with torch.inference_mode():
        padded, _ = both(side, ROWS)
    write_graph(side, tmp_path / "graph.onnx", dimension=12, normalise=True)
    assert side.modules[0].model.config._attn_implementation == "eager"
    session = onnxruntime.InferenceSession(str(tmp_path / "graph.onnx"))
    ids = np.array([ROWS[2]], np.int64)
    found = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
    assert np.allclose(found[0], padded[2].numpy(), atol=1e-5)


def test_a_saved_model_knows_nothing_of_packing(folders, tmp_path):
    side = side_of(folders["qwen2"])
    both(side, ROWS)
    side.modules[0].model.save_pretrained(tmp_path)
    assert packed.NAME not in (tmp_path / "config.json").read_text(encoding="utf-8")


def test_a_sliding_window_is_left_to_padding():
    config = Qwen2Config(**DECODER, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    model = Qwen2Model(config)
    assert not packed.supports(model)
    with pytest.raises(packed.PackError, match="set packed=False"):
        packed.prepare(model)


def test_bounds_that_do_not_arrive_are_noticed(folders):
    model = side_of(folders["bert"]).modules[0].model
    packed.prepare(model)
    row = packed.pack(np.arange(2, 9), np.array([3, 4]), device="cpu")
    inputs = {key: value for key, value in row.features().items() if "cu_seq" not in key}
    with pytest.raises(packed.PackError, match="not handed the bounds"):
        model(**inputs)


def test_a_document_encoder_packs_too(decoder_folder, models):
    texts = [*models.TEXTS, "", "长" * 400, "头"]
    encoder = DocumentEncoder.load(decoder_folder, device="cpu")
    expected = encoder.encode(texts)
    encoder._side.packed = True
    for budget in (1, 60, 100_000):
        assert row_cosines(encoder.encode(texts, token_budget=budget), expected).min() > 0.99999


def test_a_cast_leaves_the_rotary_table_alone(folders):
    side = side_of(folders["qwen3"])
    model = side.modules[0].model
    table = model.rotary_emb.inv_freq.clone()
    cast(model, torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.rotary_emb.inv_freq.dtype == torch.float32 and torch.equal(model.rotary_emb.inv_freq, table)


def test_a_model_that_cannot_pack_is_padded_unless_packing_was_asked_for(folders, monkeypatch):
    side = side_of(folders["qwen3"])
    expected = side.embed(ROWS)
    monkeypatch.setattr(packed, "KINDS", frozenset())
    monkeypatch.setattr(Side, "packs", property(lambda self: self.packed is not False))  # as on a GPU
    assert torch.allclose(side.embed(ROWS), expected) and side.packed is False
    side.packed = True
    with pytest.raises(packed.PackError, match="set packed=False"):
        side.embed(ROWS)
