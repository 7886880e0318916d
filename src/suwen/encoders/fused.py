"""A Qwen decoder for inference on packed texts: fewer, larger matrix products, and what lies between them compiled.

Needs the ``train`` extra. Training goes through the model itself, in ``side.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from suwen.encoders import packed
from suwen.errors import SuwenError

if TYPE_CHECKING:
    import torch

KINDS = frozenset({"qwen2", "qwen3"})
#: A row this empty is run as it is: filling it up would cost more than uncompiled code does.
_LEAST_FILLED = 0.75


class FuseError(SuwenError):
    """A model whose layers are not those this module knows."""


class _Layer(NamedTuple):
    """The weights of one layer; those of a norm stand beside the matrix that reads it."""

    norm: torch.Tensor
    states: torch.Tensor
    states_bias: torch.Tensor | None
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class FusedDecoder:
    """The states of packed texts after a whole decoder, as its own ``forward`` gives them to rounding.

    The projections to queries, keys and values become one matrix product, and so do the two into the MLP. The model
    keeps working, in the same memory: its weights become views of the joined ones.

    Only what enters or leaves a matrix product is in the model's precision. The sum that layers add to, the norms and
    the rotation are in fp32, so that a bf16 model comes nearer to its fp32 vectors than by its own ``forward``.

    Args:
        model: A ``Qwen2Model`` or ``Qwen3Model`` without adapters, in evaluation mode.
        tokens: Compile for rows of exactly this many tokens; shorter ones are filled up, or run uncompiled. None
            compiles nothing.
        backend: What compiles, by torch's name for it.

    Raises:
        FuseError: The model is another, or has adapters in it.
    """

    def __init__(self, model: Any, *, tokens: int | None = None, backend: Any = "inductor") -> None:
        if not supports(model):
            raise FuseError(
                f"{type(model).__name__} cannot be fused: it must be a Qwen2Model or Qwen3Model of full attention "
                f"whose adapters were merged (merge_and_unload); leave compile off for others"
            )
        config = model.config
        self.tokens = tokens
        self._embed, self._rotary, self._norm = model.embed_tokens, model.rotary_emb, model.norm.weight.detach()
        self._layers = [_fuse_layer(layer) for layer in model.layers]
        self._scale, self._eps = float(model.layers[0].self_attn.scaling), float(config.rms_norm_eps)
        self._causal = bool(getattr(config, "is_causal", True))
        heads = (config.num_attention_heads, config.num_key_value_heads, int(model.layers[0].self_attn.head_dim))
        self._plain = (_before_attention(heads, self._eps), _after_attention(self._eps))
        self._compiled = tuple(_compiled(part, backend) for part in self._plain) if tokens else self._plain

    def fill(self, count: int) -> int | None:
        """To how many tokens a row of ``count`` is to be filled up, if it is to be."""
        fits = self.tokens is not None and _LEAST_FILLED * self.tokens <= count <= self.tokens
        return self.tokens if fits else None

    def __call__(self, row: packed.Pack) -> torch.Tensor:
        """The states after the last norm, ``[tokens, width]``."""
        import torch

        with torch.no_grad():
            # In fp32 from here on: rounded to bf16 twice a layer, the sum would cost a deep model most of its accuracy.
            hidden = self._embed(row.ids).float()
            cos, sin = (part[0] for part in self._rotary(hidden[None], row.positions[None]))
            before, after = self._compiled if len(row.ids) == self.tokens else self._plain
            for layer in self._layers:
                query, key, value = before(hidden, layer, cos, sin)
                attended = packed.attend(
                    query, key, value, row.bounds, row.longest, causal=self._causal, scale=self._scale
                )
                hidden = after(hidden, attended.flatten(1), layer)
            return _rms_norm(hidden, self._norm, self._eps).to(self._norm.dtype)


def supports(model: Any) -> bool:
    """Whether :class:`FusedDecoder` takes the model."""
    layers = getattr(model, "layers", None)
    if layers is None or not packed.supports(model) or model.config.model_type not in KINDS:
        return False
    return model.config.hidden_act == "silu" and all(_is_plain(layer) for layer in layers)


def _is_plain(layer: Any) -> bool:
    import torch

    attention, mlp = layer.self_attn, layer.mlp
    parts = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    return all(type(part) is torch.nn.Linear for part in (*parts, mlp.gate_proj, mlp.up_proj, mlp.down_proj))


def _fuse_layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    states, states_bias = _join([attention.q_proj, attention.k_proj, attention.v_proj])
    gate_up, _ = _join([mlp.gate_proj, mlp.up_proj])
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return _Layer(
        norm=layer.input_layernorm.weight.detach(),
        states=states,
        states_bias=states_bias,
        query_norm=None if query_norm is None else query_norm.weight.detach(),
        key_norm=None if key_norm is None else key_norm.weight.detach(),
        out=attention.o_proj.weight.detach(),
        out_bias=None if attention.o_proj.bias is None else attention.o_proj.bias.detach(),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=gate_up,
        down=mlp.down_proj.weight.detach(),
    )


def _join(linears: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One matrix of several, which become views of it: an 8B model does not fit twice on most devices."""
    import torch

    weight = torch.cat([linear.weight.detach() for linear in linears])
    parts = torch.split(weight, [linear.out_features for linear in linears])
    for linear, part in zip(linears, parts, strict=True):
        linear.weight = torch.nn.Parameter(part, requires_grad=False)
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return weight, torch.cat([bias.detach() for bias in biases]) if biases else None


def _before_attention(heads: tuple[int, int, int], eps: float) -> Callable[..., Any]:
    """From a layer's input to queries, keys and values, ``[tokens, heads, width]``."""
    import torch

    queries, keys, width = heads

    def before(hidden: torch.Tensor, layer: _Layer, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normed = _rms_norm(hidden, layer.norm, eps).to(layer.states.dtype)
        states = torch.nn.functional.linear(normed, layer.states, layer.states_bias)
        whole = states.view(-1, queries + 2 * keys, width)
        query, key, value = torch.split(whole, [queries, keys, keys], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = _rms_norm(query, layer.query_norm, eps), _rms_norm(key, layer.key_norm, eps)
        return _rotate(query, cos, sin).to(states.dtype), _rotate(key, cos, sin).to(states.dtype), value

    return before


def _after_attention(eps: float) -> Callable[..., Any]:
    """From what was attended to, to the layer's output."""
    import torch

    def after(hidden: torch.Tensor, attended: torch.Tensor, layer: _Layer) -> torch.Tensor:
        hidden = hidden + torch.nn.functional.linear(attended, layer.out, layer.out_bias)
        normed = _rms_norm(hidden, layer.mlp_norm, eps).to(layer.gate_up.dtype)
        gate, up = torch.nn.functional.linear(normed, layer.gate_up).chunk(2, dim=-1)
        return hidden + torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, layer.down)

    return after


def _compiled(part: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    """Compiled once and used by every layer: their weights are arguments of one shape.

    Attention stays outside: in the graph the bounds, of another length in every row, would compile it again.
    """
    import torch

    made: Callable[..., Any] = torch.compile(part, dynamic=False, fullgraph=True, backend=backend)
    return made


def _rms_norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """In fp32, for the caller to round once."""
    wide = hidden.float()
    return wide * (wide.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight.float()


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    left, right = states.chunk(2, dim=-1)
    return states * cos[:, None] + torch.cat([-right, left], dim=-1) * sin[:, None]
