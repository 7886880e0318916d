from __future__ import annotations

from pathlib import Path

import pytest
import torch

from suwen.encoders.gguf_file import build_config, build_tokenizer, open_gguf, read_weights
from suwen.encoders.side import ModelError


@pytest.fixture(scope="module")
def bases(models, tmp_path_factory) -> dict[str, Path]:
    return {kind: models.build_base(tmp_path_factory.mktemp(kind), kind=kind) for kind in ("qwen2", "qwen3")}


@pytest.mark.parametrize(
    ("kind", "packing"), [("qwen2", "F32"), ("qwen2", "BF16"), ("qwen2", "Q8_0"), ("qwen3", "F16"), ("qwen3", "Q5_0")]
)
def test_the_weights_are_those_transformers_reads(kind, packing, bases, models, tmp_path):
    from transformers import AutoModel

    file = models.write_gguf(bases[kind], tmp_path / "tiny.gguf", packing=packing)
    theirs = AutoModel.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32)
    ours, expected = read_weights(open_gguf(file), torch.float32), dict(theirs.named_parameters())
    assert ours.keys() == expected.keys()
    for name, weight in ours.items():
        assert torch.equal(weight, expected[name].data), name


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_the_config_is_the_one_that_was_written(kind, bases, models, tmp_path):
    from transformers import AutoConfig

    found = build_config(open_gguf(models.write_gguf(bases[kind], tmp_path / "tiny.gguf")))
    expected = AutoConfig.from_pretrained(bases[kind])
    keys = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim"}
    for key in keys | {"num_key_value_heads", "max_position_embeddings", "rope_parameters", "model_type"}:
        assert getattr(found, key, None) == getattr(expected, key, None), key
    assert found.rms_norm_eps == pytest.approx(expected.rms_norm_eps)


def test_the_weights_are_those_that_were_written(bases, models, tmp_path):
    from safetensors.torch import load_file

    stored = load_file(bases["qwen2"] / "model.safetensors")
    file = open_gguf(models.write_gguf(bases["qwen2"], tmp_path / "tiny.gguf"))
    for name, weight in read_weights(file, torch.float32).items():
        assert torch.equal(weight, stored[f"model.{name}"]), name
    assert "lm_head.weight" in stored
    halves = read_weights(file, torch.bfloat16)
    assert torch.equal(halves["norm.weight"], stored["model.norm.weight"].bfloat16())


def test_large_tensors_are_unpacked_in_pieces(bases, models, tmp_path, monkeypatch):
    file = open_gguf(models.write_gguf(bases["qwen2"], tmp_path / "tiny.gguf", packing="Q8_0"))
    whole = read_weights(file, torch.float32)
    monkeypatch.setattr("suwen.encoders.gguf_file._PIECE", 1000)
    for name, weight in read_weights(file, torch.float32).items():
        assert torch.equal(weight, whole[name]), name


def test_the_tokenizer_is_the_one_that_was_written(bases, models, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = build_tokenizer(open_gguf(models.write_gguf(bases["qwen2"], tmp_path / "tiny.gguf")))
    expected = AutoTokenizer.from_pretrained(bases["qwen2"])
    texts = [*models.TEXTS, "", "HbA1c 7.5%，\n 空腹", "e\u0301<|end|>x", "🩺  two  spaces\r\n"]
    assert tokenizer(texts)["input_ids"] == expected(texts)["input_ids"]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|end|>", "<|pad|>")
    assert tokenizer.decode(tokenizer("高血压 <|end|>")["input_ids"], skip_special_tokens=True) == "高血压 "


def test_a_file_that_is_cut_short_or_no_gguf_is_refused(bases, models, tmp_path):
    whole = models.write_gguf(bases["qwen2"], tmp_path / "tiny.gguf").read_bytes()
    for size in (0, 3, 20, 200, 9000, len(whole) // 2):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(ModelError, match="download"):
            read_weights(open_gguf(tmp_path / "cut.gguf"), torch.float32)
    (tmp_path / "cut.gguf").write_bytes(b"GGML" + whole[4:])
    with pytest.raises(ModelError, match="GGML"):
        open_gguf(tmp_path / "cut.gguf")
    with pytest.raises(ModelError, match="download it again"):
        open_gguf(tmp_path / "none.gguf")


def test_another_architecture_or_tokenizer_is_refused_by_name(bases, models, tmp_path):
    data = models.write_gguf(bases["qwen2"], tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "other.gguf").write_bytes(data.replace(b"qwen2", b"gemma"))
    with pytest.raises(ModelError, match=r"'gemma'.*safetensors"):
        open_gguf(tmp_path / "other.gguf")
    pre = b"tokenizer.ggml.pre" + (8).to_bytes(4, "little") + (5).to_bytes(8, "little")
    (tmp_path / "other.gguf").write_bytes(data.replace(pre + b"qwen2", pre + b"llama"))
    with pytest.raises(ModelError, match="not Qwen's"):
        build_tokenizer(open_gguf(tmp_path / "other.gguf"))
