from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from suwen.encoders.base_model import base_hash, load_base
from suwen.encoders.side import ModelError, Side


@pytest.fixture(scope="module")
def base(base_folder: Path) -> Path:
    return base_folder


@pytest.fixture(scope="module")
def gguf(models, base, tmp_path_factory) -> Path:
    return models.write_gguf(base, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_a_gguf_file_and_its_folder_give_one_encoder(base, gguf, models):
    texts = [*models.TEXTS, "", "长" * 300]
    one, other = (load_base(source, device="cpu", max_length=32) for source in (base, gguf))
    assert np.allclose(one.encode(texts), other.encode(texts), atol=1e-5)


def test_a_text_is_no_turn_of_a_conversation(base: Path, models, tmp_path: Path) -> None:
    """A base that was taught to chat has a template for conversations, which is no part of an encoder."""
    shutil.copytree(base, chatting := tmp_path / "chatting")
    said = "{% for one in messages %}<|{{ one.role }}|>{{ one.content }}{% endfor %}"
    (chatting / "chat_template.jinja").write_text(said, encoding="utf-8")
    plain, model = (load_base(source, device="cpu", max_length=32) for source in (base, chatting))
    assert model.tokenizer.chat_template == said
    wanted = plain.encode(models.TEXTS)
    assert np.allclose(model.encode(models.TEXTS), wanted, atol=1e-6)
    # So does what is saved, where sentence-transformers opens it.
    model.save(str(tmp_path / "saved"))
    opened = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.allclose(opened.encode(models.TEXTS), wanted, atol=1e-5)


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_it_is_the_hidden_state_of_the_end_token(form, base, gguf, models):
    from transformers import AutoModel

    model = load_base(base if form == "folder" else gguf, device="cpu", max_length=16)
    side = Side(model, "document")
    bare = AutoModel.from_pretrained(base).eval()
    for text in (models.TEXTS[0], "", "高血压" * 50):
        (ids,) = side.ids([text])
        assert ids[-1] == side.tokenizer.convert_tokens_to_ids("<|end|>") and len(ids) <= 16
        with torch.inference_mode():
            hidden = bare(torch.tensor([ids])).last_hidden_state[0, -1]
        expected = torch.nn.functional.normalize(hidden, dim=-1).numpy()
        assert np.allclose(model.encode([text])[0], expected, atol=1e-5)
    assert len(side.ids(["高血压" * 50])[0]) == 16


def test_the_head_is_gone_and_the_shape_is_told(gguf):
    model = load_base(gguf, device="cpu", max_length=32)
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert type(model[0].model).__name__ == "Qwen2Model"
    assert not any("lm_head" in name for name, _ in model.named_parameters())
    side = Side(model, "document")
    assert (side.pooling, side.end_token, side.max_length) == ("last", "<|end|>", 32)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("auto", torch.float32), ("fp32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_weights_come_in_the_precision_asked_for(dtype, expected, base, gguf):
    for source in (base, gguf):
        model = load_base(source, device="cpu", dtype=dtype)
        assert {parameter.dtype for parameter in model.parameters()} == {expected}
        assert model[0].model.rotary_emb.inv_freq.dtype == torch.float32


def test_an_end_token_may_be_chosen_and_must_exist(base):
    assert Side(load_base(base, device="cpu", end_token="<|pad|>"), "document").end_token == "<|pad|>"
    with pytest.raises(ModelError, match="not in the tokenizer"):
        load_base(base, device="cpu", end_token="</s>")


def test_the_tokenizers_own_end_token_is_kept(decoder_folder):
    model = load_base(decoder_folder, device="cpu")
    ids = Side(model, "document").ids(["胃痛"])[0]
    assert Side(model, "document").end_token == "<|end|>" and ids.count(ids[-1]) == 1


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_saved_and_loaded_again_it_is_the_same(form, base, gguf, models, tmp_path):
    from sentence_transformers import SentenceTransformer

    model = load_base(base if form == "folder" else gguf, device="cpu", max_length=24)
    model.save(str(tmp_path / "saved"))
    texts = [*models.TEXTS, "高血压" * 50]
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert np.allclose(again.encode(texts), model.encode(texts), atol=1e-6)
    assert again.max_seq_length == 24 and Side(again, "document").end_token == "<|end|>"


def test_the_hash_is_of_the_file_or_of_weights_and_tokenizer(base, gguf, models, tmp_path):
    assert base_hash(gguf) == hashlib.sha256(gguf.read_bytes()).hexdigest()
    assert base_hash(base) == base_hash(models.build_base(tmp_path / "same"))
    assert base_hash(base) != base_hash(models.build_base(tmp_path / "other", seed=1))


def test_a_missing_weight_is_not_made_up(base, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(base, tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights, such as layers\.1\.mlp\.up_proj"):
        load_base(tmp_path / "base", device="cpu")


def test_loading_says_nothing(base, gguf, capfd, caplog):
    for source in (base, gguf):
        load_base(source, device="cpu")
    assert capfd.readouterr() == ("", "")
    # A server that other tests of this process share has lines of its own.
    assert not [record for record in caplog.records if not record.name.startswith("suwen.service")]


def test_what_is_not_there_is_said(tmp_path, base, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="neither a folder"):
        load_base("no/such-model", device="cpu")
    with pytest.raises(ModelError, match="download"):
        base_hash(tmp_path / "none.gguf")
    (tmp_path / "config.json").write_text((base / "config.json").read_text())
    with pytest.raises(ModelError, match="safetensors"):
        load_base(tmp_path, device="cpu")
    with pytest.raises(ModelError, match="choose auto"):
        load_base(base, device="cpu", dtype="int4")
