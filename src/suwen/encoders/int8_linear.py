"""A linear layer whose matrix is held as int8 with a scale for each row: half the memory of bf16, and never trained.

What torchao calls int8 weight-only, without torchao: where that is installed, transformers and peft load it at every
start (a second and more), whether it is used or not. Activations keep their precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Int8Linear(nn.Linear):
    """The rounded form of a linear layer; gradients pass through it to what lies before.

    Args:
        linear: The layer; its matrix is rounded to the nearest of 255 steps of each row's largest number.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> rounded = Int8Linear(layer)
        >>> rounded.weight.dtype, bool((rounded(torch.eye(4)) - layer(torch.eye(4))).abs().max() < 0.01)
        (torch.int8, True)
    """

    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        scale = weight.float().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
        rounded = (weight.float() / scale).round().to(torch.int8)
        self.weight = nn.Parameter(rounded, requires_grad=False)
        self.register_buffer("scale", scale.to(weight.dtype))
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:
        """Multiply, in the precision of the input, or that of autocast."""
        kind = input.device.type
        if torch.is_autocast_enabled(kind):
            input = input.to(torch.get_autocast_dtype(kind))
        product: Tensor = _Multiply.apply(input, self.weight, self.scale)  # type: ignore[no-untyped-call]
        return product if self.bias is None else product + self.bias.to(product.dtype)


class _Multiply(torch.autograd.Function):
    """``x W^T``, which keeps the int8 matrix for the backward pass and not the one it multiplied with."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(weight, scale)
        return nn.functional.linear(given, weight.to(given.dtype)) * scale.to(given.dtype).T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        weight, scale = ctx.saved_tensors
        (gradient,) = gradients
        return (gradient * scale.to(gradient.dtype).T) @ weight.to(gradient.dtype), None, None


def round_linears(model: nn.Module) -> None:
    """Put the rounded form in the place of every linear layer of a model."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, Int8Linear(module))
