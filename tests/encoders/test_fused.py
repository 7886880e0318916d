"""A decoder with joined matrices is the decoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, Qwen2Config, Qwen2Model, Qwen3Config, Qwen3Model

from suwen.encoders import fused, packed
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.fused import FusedDecoder, FuseError
from suwen.encoders.probe import row_cosines
from suwen.encoders.side import cast

SHAPE = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.3,
}
LENGTHS = np.array([3, 1, 9, 4])
FLAT = np.random.default_rng(5).integers(0, 60, LENGTHS.sum())


def build(name: str) -> torch.nn.Module:
    torch.manual_seed(2)
    config, model = {
        "qwen2": (Qwen2Config(**SHAPE), Qwen2Model),
        "qwen3": (Qwen3Config(**SHAPE, head_dim=16), Qwen3Model),
        "qwen3 with biases": (Qwen3Config(**SHAPE, head_dim=16, attention_bias=True), Qwen3Model),
    }[name]
    made = model(config).eval()
    with torch.no_grad():  # fresh norms are all one and fresh biases all zero: a mix-up of them would not show
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


def states(model: torch.nn.Module) -> torch.Tensor:
    """Of each text by itself, through transformers' own code."""
    texts = torch.from_numpy(FLAT).split(LENGTHS.tolist())
    with torch.no_grad():
        return torch.cat([model(input_ids=text[None]).last_hidden_state[0] for text in texts])


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "qwen3 with biases"])
def test_it_gives_the_states_of_the_model(name):
    model = build(name)
    expected = states(model)
    found = FusedDecoder(model)(packed.pack(FLAT, LENGTHS, device="cpu"))
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(states(model), expected, atol=1e-5)  # the model still runs, on views of the joined weights
    attention = model.layers[0].self_attn
    assert attention.q_proj.weight.untyped_storage().data_ptr() == attention.v_proj.weight.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_compiled_and_filled_up_it_gives_the_same(name):
    model = build(name)
    expected = states(model)
    graphs: list[object] = []
    decoder = FusedDecoder(model, tokens=20, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    row = packed.pack(FLAT, LENGTHS, device="cpu", fill=decoder.fill(len(FLAT)))
    assert (len(row.ids), row.texts, row.tokens, row.longest) == (20, 4, 17, 9)
    with torch.inference_mode():
        found = decoder(row)
    assert len(graphs) == 2  # for all three layers
    assert torch.allclose(found[:17], expected, atol=1e-5)
    assert torch.allclose(packed.pool(found, row, "last"), expected[[2, 3, 12, 16]], atol=1e-5)
    means = torch.stack([part.mean(0) for part in expected.split(LENGTHS.tolist())])
    assert torch.allclose(packed.pool(found, row, "mean"), means, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
@pytest.mark.parametrize("tokens", [None, 64])
def test_in_bf16_it_is_nearer_to_fp32_than_the_model_itself(name, tokens):
    torch.manual_seed(6)
    config, kind = {"qwen2": (Qwen2Config, Qwen2Model), "qwen3": (Qwen3Config, Qwen3Model)}[name]
    heads = {"head_dim": 16} if name == "qwen3" else {}
    model = kind(config(**SHAPE | {"num_hidden_layers": 24, "hidden_size": 64, "initializer_range": 0.16}, **heads))
    cast(model.eval(), torch.bfloat16)
    lengths = np.array([30, 14, 20])
    flat = np.random.default_rng(7).integers(0, 60, 64)
    texts = torch.from_numpy(flat).split(lengths.tolist())

    def plain() -> torch.Tensor:
        with torch.no_grad():
            return torch.cat([model(input_ids=text[None]).last_hidden_state[0] for text in texts]).double()

    own = plain()
    cast(model, torch.float32)
    exact = plain()
    cast(model, torch.bfloat16)
    found = FusedDecoder(model, tokens=tokens, backend="eager")(packed.pack(flat, lengths, device="cpu"))
    assert found.dtype == torch.bfloat16
    off, own_off = ((1 - torch.cosine_similarity(states.double(), exact)).mean() for states in (found, own))
    assert 0 < off < 0.8 * own_off


def test_a_row_is_filled_up_only_when_little_is_missing():
    decoder = FusedDecoder(build("qwen3"), tokens=100)
    assert [decoder.fill(count) for count in (1, 74, 75, 100, 101)] == [None, None, 100, 100, None]
    assert FusedDecoder(build("qwen3")).fill(100) is None


def test_other_models_are_refused():
    bert = BertModel(BertConfig(**{key: value for key, value in SHAPE.items() if "key_value" not in key}))
    assert not fused.supports(bert)
    with pytest.raises(FuseError, match="cannot be fused"):
        FusedDecoder(bert)


def test_adapters_must_be_merged_first():
    from peft import LoraConfig, get_peft_model

    model = build("qwen3")
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    with pytest.raises(FuseError, match="merged"):
        FusedDecoder(model)
    merged = adapted.merge_and_unload()
    expected = states(merged)
    assert torch.allclose(FusedDecoder(merged)(packed.pack(FLAT, LENGTHS, device="cpu")), expected, atol=1e-5)


def test_a_document_encoder_runs_through_it(decoder_folder, models):
    texts = [*models.TEXTS, "", "长" * 400] * 3
    expected = DocumentEncoder.load(decoder_folder, device="cpu").encode(texts)
    encoder = DocumentEncoder.load(decoder_folder, device="cpu", compile=True)
    assert encoder._side.fused is None  # a CPU runs as it is
    encoder._side.packed = True
    encoder._side.fuse()
    assert row_cosines(encoder.encode(texts, token_budget=300), expected).min() > 0.99999
    encoder._side.fused = FusedDecoder(encoder._side.modules[0].model, tokens=300, backend="eager")
    assert row_cosines(encoder.encode(texts), expected).min() > 0.99999
