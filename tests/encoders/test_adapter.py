from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from suwen.encoders import adapter as module
from suwen.encoders.adapter import (
    Factors,
    adapter_sha256,
    apply_adapter,
    apply_lora,
    cut_rank,
    load_adapter,
    load_lora,
    read_factors,
    save_adapter,
)
from suwen.encoders.base_model import load_base
from suwen.encoders.probe import row_cosines
from suwen.encoders.side import ModelError
from suwen.encoders.space import DamagedPair


@pytest.fixture(scope="module")
def base(base_folder: Path) -> Path:
    return base_folder


@pytest.fixture(scope="module")
def trained(models, base):
    return models.train_lora(load_base(base, device="cpu", max_length=32))


@pytest.fixture(scope="module")
def vectors(trained, models) -> np.ndarray:
    return trained.encode(list(models.TEXTS))


def fresh(base: Path, **options):
    return load_base(base, device="cpu", max_length=32, **options)


def test_training_moved_the_vectors(base, vectors, models):
    assert row_cosines(fresh(base).encode(list(models.TEXTS)), vectors).mean() < 0.95


@pytest.mark.parametrize(("bits", "least"), [(8, 0.998), (16, 0.999999)])
def test_what_was_trained_comes_back(bits, least, base, trained, vectors, models, tmp_path):
    said = save_adapter(read_factors(trained), tmp_path / "adapter", bits=bits, base="org/base", base_sha256="0" * 64)
    assert (said["rank"], said["bits"], said["base"]) == (4, bits, "org/base")
    assert said["target_modules"] == sorted(
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    assert json.loads((tmp_path / "adapter" / "adapter.json").read_text()) == said
    for put in (apply_adapter, load_lora):
        model = put(fresh(base), tmp_path / "adapter")
        assert row_cosines(model.encode(list(models.TEXTS)), vectors).min() > least


def test_the_stored_form_is_exact_in_itself(base, trained, tmp_path):
    save_adapter(read_factors(trained), tmp_path / "one", bits=8)
    save_adapter(load_adapter(tmp_path / "one"), tmp_path / "two", bits=8)
    assert adapter_sha256(tmp_path / "one") == adapter_sha256(tmp_path / "two")
    save_adapter(read_factors(trained), tmp_path / "three", bits=16)
    assert adapter_sha256(tmp_path / "one") != adapter_sha256(tmp_path / "three")


def test_it_merges_into_half_precision_through_fp32(base, trained, tmp_path):
    save_adapter(read_factors(trained), tmp_path / "adapter")
    (name, found), *_ = load_adapter(tmp_path / "adapter").items()
    model = fresh(base, dtype="bf16")
    before = model[0].model.get_submodule(name).weight.clone()
    apply_adapter(model, tmp_path / "adapter")
    after = model[0].model.get_submodule(name).weight
    assert torch.equal(after, (before.float() + found.up @ found.down).bfloat16())


def test_files_stay_under_the_limit_and_nothing_is_lost(trained, tmp_path, monkeypatch):
    save_adapter(read_factors(trained), tmp_path / "one")
    monkeypatch.setattr(module, "LARGEST_FILE", (64 << 10) + 3000)
    said = save_adapter(read_factors(trained), tmp_path / "many")
    assert len(said["files"]) > 2 and said["files"][0] == f"adapter-01-of-{len(said['files']):02d}.safetensors"
    assert all((tmp_path / "many" / name).stat().st_size <= module.LARGEST_FILE for name in said["files"])
    one, many = load_adapter(tmp_path / "one"), load_adapter(tmp_path / "many")
    assert one.keys() == many.keys()
    assert all(torch.equal(a, b) for name in one for a, b in zip(one[name], many[name], strict=True))


@given(
    out=st.integers(1, 12),
    width=st.integers(1, 12),
    rank=st.integers(1, 6),
    kept=st.integers(1, 6),
    seed=st.integers(0, 999),
)
def test_the_cut_is_the_best_of_its_rank(out, width, rank, kept, seed):
    torch.manual_seed(seed)
    factors = Factors(torch.randn(rank, width), torch.randn(out, rank))
    product = (factors.up @ factors.down).double()
    cut = cut_rank(factors, kept)
    assert cut.rank <= kept or cut is factors
    left, values, right = torch.linalg.svd(product, full_matrices=False)
    best = left[:, :kept] * values[:kept] @ right[:kept]
    found = (cut.up @ cut.down).double()
    error = torch.linalg.norm(found - product) - torch.linalg.norm(best - product)
    assert abs(float(error)) < 1e-4 * (1 + float(values[0]))


def test_a_cut_adapter_is_smaller_and_near(base, trained, vectors, models, tmp_path):
    assert save_adapter(read_factors(trained), tmp_path / "cut", rank=2)["rank"] == 2
    assert {found.rank for found in load_adapter(tmp_path / "cut").values()} == {2}
    found = apply_adapter(fresh(base), tmp_path / "cut").encode(list(models.TEXTS))
    start = fresh(base).encode(list(models.TEXTS))
    assert row_cosines(found, vectors).mean() > row_cosines(start, vectors).mean()
    with pytest.raises(ModelError, match="at least 1"):
        save_adapter(read_factors(trained), tmp_path / "none", rank=0)


@pytest.mark.parametrize("options", [{}, {"use_rslora": True}])
def test_pefts_own_folder_is_read(options, base, models, tmp_path):
    from peft import LoraConfig, get_peft_model

    model = fresh(base)
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "down_proj"], init_lora_weights=False, **options)
    wrapped = get_peft_model(model[0].model, config)
    wrapped.save_pretrained(tmp_path / "peft")
    mine, theirs = read_factors(wrapped), load_adapter(tmp_path / "peft")
    assert mine.keys() == theirs.keys() and "layers.1.mlp.down_proj" in mine
    assert all(torch.allclose(mine[name].up, theirs[name].up) for name in mine)
    model[0].model = wrapped.merge_and_unload()
    expected = model.encode(list(models.TEXTS))
    assert np.allclose(apply_adapter(fresh(base), tmp_path / "peft").encode(list(models.TEXTS)), expected, atol=1e-5)


def test_dora_and_embeddings_are_refused(base, tmp_path):
    from peft import LoraConfig, get_peft_model

    wrapped = get_peft_model(fresh(base)[0].model, LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    wrapped.save_pretrained(tmp_path / "peft")
    with pytest.raises(ModelError, match="use_dora"):
        load_adapter(tmp_path / "peft")
    with pytest.raises(ModelError, match="DoRA"):
        read_factors(wrapped)


def test_a_merged_model_carries_no_adapter(base, trained, tmp_path):
    save_adapter(read_factors(trained), tmp_path / "adapter", bits=16)
    with pytest.raises(ModelError, match="no LoRA layer"):
        read_factors(apply_adapter(fresh(base), tmp_path / "adapter"))


def test_training_may_go_on_with_the_scale_it_began_with(base, trained, vectors, models, tmp_path):
    save_adapter(read_factors(trained), tmp_path / "adapter", bits=16)
    model = load_lora(fresh(base), tmp_path / "adapter", scale=2.0).eval()
    scales = {module.scaling["default"] for module in model.modules() if hasattr(module, "lora_A")}
    assert scales == {2.0}
    assert row_cosines(model.encode(list(models.TEXTS)), vectors).min() > 0.999999


def test_training_goes_on_from_a_stored_adapter(base, trained, vectors, models, tmp_path):
    save_adapter(read_factors(trained), tmp_path / "adapter", bits=16)
    model = load_lora(fresh(base), tmp_path / "adapter", dropout=0.1).eval()
    assert row_cosines(model.encode(list(models.TEXTS)), vectors).min() > 0.999999
    free = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert free and all("lora_" in name for name in free)
    still = load_lora(fresh(base), tmp_path / "adapter", trainable=False)
    assert not any(parameter.requires_grad for parameter in still.parameters())


def test_a_fresh_lora_changes_nothing_and_the_seed_fixes_it(base, models):
    def made():
        torch.manual_seed(3)
        return apply_lora(fresh(base), rank=2, alpha=4, dropout=0.5, modules=["q_proj"]).eval()

    model = made()
    assert np.allclose(model.encode(list(models.TEXTS)), fresh(base).encode(list(models.TEXTS)), atol=1e-6)
    one, two = read_factors(model), read_factors(made())
    assert len(one) == 2 and all(torch.equal(one[name].down, two[name].down) for name in one)
    with pytest.raises(ModelError, match="none of the modules query"):
        apply_lora(fresh(base), rank=2, alpha=4, modules=["query"])


def test_another_base_is_refused(trained, models, decoder_folder, tmp_path):
    save_adapter(read_factors(trained), tmp_path / "adapter")
    with pytest.raises(ModelError, match="another base"):
        apply_adapter(load_base(decoder_folder, device="cpu"), tmp_path / "adapter")
    with pytest.raises(ModelError, match="another base"):
        load_lora(load_base(decoder_folder, device="cpu"), tmp_path / "adapter")


def test_a_damaged_folder_is_told(trained, tmp_path):
    folder = tmp_path / "adapter"
    save_adapter(read_factors(trained), folder)
    with pytest.raises(ModelError, match="already"):
        save_adapter(read_factors(trained), folder)
    file = folder / "adapter-01-of-01.safetensors"
    tensors = load_file(file)
    del tensors["layers.0.mlp.up_proj.B.scale"]
    before = adapter_sha256(folder)
    save_file(tensors, file)
    assert adapter_sha256(folder) != before
    with pytest.raises(DamagedPair, match="lacks"):
        load_adapter(folder)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(DamagedPair, match="copy the adapter again"):
        load_adapter(folder)
    file.unlink()
    with pytest.raises(DamagedPair):
        load_adapter(folder)
    with pytest.raises(ModelError, match="no adapter"):
        adapter_sha256(folder)
    with pytest.raises(ModelError, match="adapter\\.json"):
        load_adapter(tmp_path)
