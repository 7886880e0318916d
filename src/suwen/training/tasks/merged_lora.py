"""LoRA that is added into the weights once a step: the forward and backward pass see plain matrices.

peft keeps the adapter apart, at five small kernels a matrix; on a model of half a billion weights launching them takes
longer than computing. Needs no dropout. How an adapter is stored is in ``encoders/adapter.py``.
"""

from __future__ import annotations

from typing import Any

import torch

from suwen.encoders.adapter import Factors, transformer_of


class MergedLora(torch.nn.Module):
    """The factors of peft's LoRA layers, merged into their weights for the length of a step.

    Between :meth:`merge` and :meth:`split` the model's matrices are leaves with gradients of their own; ``split`` turns
    those into gradients of the factors: for ``W + s B A`` they are ``s B^T G`` and ``s G A^T``.

    Args:
        model: A ``SentenceTransformer`` (or a transformer) with LoRA layers of peft. They are taken out.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        from peft.tuners.lora import LoraLayer

        root = transformer_of(model)
        layers: dict[str, Any] = {
            name: module for name, module in root.named_modules() if isinstance(module, LoraLayer)
        }
        self._names = list(layers)
        self._linears: list[torch.nn.Linear] = []
        self._bases: list[torch.Tensor] = []
        self._scales: list[float] = []
        self.down, self.up = torch.nn.ParameterList(), torch.nn.ParameterList()
        for name, layer in layers.items():
            linear = layer.get_base_layer()
            parent, _, child = name.rpartition(".")
            setattr(root.get_submodule(parent), child, linear)
            self._linears.append(linear)
            self._bases.append(linear.weight.detach().clone())
            self._scales.append(float(layer.scaling["default"]))
            self.down.append(torch.nn.Parameter(layer.lora_A["default"].weight.detach().float()))
            self.up.append(torch.nn.Parameter(layer.lora_B["default"].weight.detach().float()))

    def merge(self) -> None:
        """Add the factors into the weights, which then collect gradients."""
        with torch.no_grad():
            for linear, base, down, up, scale in self._parts():
                linear.weight.copy_(torch.addmm(base.float(), up, down, alpha=scale))
                linear.weight.requires_grad_(True)

    def split(self) -> None:
        """Hand the weights' gradients on to the factors, and let go of them."""
        with torch.no_grad():
            for linear, _, down, up, scale in self._parts():
                if linear.weight.grad is not None:
                    gradient = linear.weight.grad.float()
                    _add(down, scale * (up.T @ gradient))
                    _add(up, scale * (gradient @ down.T))
                linear.weight.grad = None
                linear.weight.requires_grad_(False)

    def settle(self) -> None:
        """Leave the factors in the weights, without gradients: to encode, or to be saved."""
        self.merge()
        for linear in self._linears:
            linear.weight.requires_grad_(False)

    def restore(self) -> None:
        """Put the weights back as they were before there was an adapter, bit for bit; the factors stay."""
        with torch.no_grad():
            for linear, base in zip(self._linears, self._bases, strict=True):
                linear.weight.copy_(base)
                linear.weight.requires_grad_(False)

    def factors(self) -> dict[str, Factors]:
        """The factors by module name, the scale folded in, as ``save_adapter`` takes them."""
        return {
            name: Factors(down.detach().cpu().clone(), scale * up.detach().cpu())
            for name, (_, _, down, up, scale) in zip(self._names, self._parts(), strict=True)
        }

    def _parts(self) -> Any:
        return zip(self._linears, self._bases, self.down, self.up, self._scales, strict=True)


def _add(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
