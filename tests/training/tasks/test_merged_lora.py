"""Merged once a step, LoRA has the loss, the gradients and the vectors it has when it stays apart."""

from __future__ import annotations

import pytest
import torch

from suwen.encoders.adapter import apply_lora, read_factors
from suwen.encoders.base_model import load_base
from suwen.encoders.side import Side
from suwen.training.tasks.merged_lora import MergedLora


@pytest.fixture
def apart(base_folder):
    model = load_base(base_folder, device="cpu", dtype="fp32", max_length=32)
    torch.manual_seed(0)
    apply_lora(model, rank=4, alpha=8)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero at the start, which would hide every error
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def vectors(model):
    side = Side(model, "document")
    return side.embed(side.ids(["高血压怎么办", "头晕", "the flu vaccine is safe"]))


def test_vectors_and_gradients_are_those_of_the_adapter_apart(apart):
    target = torch.randn(3, 1, generator=torch.Generator().manual_seed(1))
    expected = vectors(apart)
    (expected * target).sum().backward()
    names = [
        name for name, module in apart[0].model.named_modules() if hasattr(module, "lora_A") and len(module.lora_A)
    ]
    down = [apart[0].model.get_submodule(name).lora_A["default"].weight.grad.clone() for name in names]
    up = [apart[0].model.get_submodule(name).lora_B["default"].weight.grad.clone() for name in names]
    merged = MergedLora(apart)
    merged.merge()
    found = vectors(apart)
    (found * target).sum().backward()
    merged.split()
    assert torch.allclose(found, expected, atol=1e-5)
    for ours, theirs in zip([*merged.down, *merged.up], [*down, *up], strict=True):
        assert torch.allclose(ours.grad, theirs, rtol=1e-3, atol=1e-5)


def test_two_backward_passes_add_up(apart):
    merged = MergedLora(apart)
    merged.merge()
    vectors(apart).sum().backward()
    merged.split()
    once = [parameter.grad.clone() for parameter in merged.parameters()]
    for parameter in merged.parameters():
        parameter.grad = None
    merged.merge()
    vectors(apart).sum().backward()
    vectors(apart).sum().backward()
    merged.split()
    for parameter, single in zip(merged.parameters(), once, strict=True):
        assert torch.allclose(parameter.grad, 2 * single, rtol=1e-4, atol=1e-6)


def test_only_the_factors_are_parameters_and_they_come_out_as_they_went_in(apart):
    expected = read_factors(apart)
    merged = MergedLora(apart)
    assert sum(p.numel() for p in merged.parameters()) == sum(f.down.numel() + f.up.numel() for f in expected.values())
    assert not any(p.requires_grad for p in apart.parameters())
    for name, factors in merged.factors().items():
        assert torch.allclose(factors.up @ factors.down, expected[name].up @ expected[name].down, atol=1e-6)


def test_settled_weights_encode_and_take_no_gradient(apart):
    expected = vectors(apart).detach()
    merged = MergedLora(apart)
    merged.settle()
    found = vectors(apart)
    assert torch.allclose(found, expected, atol=1e-5) and not found.requires_grad


def test_the_base_comes_back_bit_for_bit(apart, base_folder):
    merged = MergedLora(apart)
    factors = merged.factors()
    merged.merge()
    merged.restore()
    loaded = load_base(base_folder, device="cpu", dtype="fp32", max_length=32)
    found, expected = apart.state_dict(), loaded.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not any(parameter.requires_grad for parameter in apart.parameters())
    assert all(torch.equal(merged.factors()[name].down, factors[name].down) for name in factors)
