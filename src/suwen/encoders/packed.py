"""Texts end to end in one row, without padding: what a transformer of such a row attends to, and its pooling.

Needs the ``train`` extra. Nothing is loaded or batched here; which texts share a row is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from suwen.errors import SuwenError

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.integer[Any]]
#: The name under which transformers knows this attention.
NAME = "suwen_packed"
#: Architectures whose attention layers are handed the bounds, and have no other way for one text to see another.
KINDS = frozenset({"qwen2", "qwen3", "bert", "roberta", "xlm-roberta", "roberta-prelayernorm"})
#: Attention these architectures have by themselves where nobody asked for another; one that was asked for is kept.
_OWN = frozenset({None, "sdpa", NAME})


class PackError(SuwenError):
    """A model that cannot take texts end to end."""


@dataclass(frozen=True)
class Pack:
    """Texts end to end, on the device.

    Attributes:
        ids: Token ids, ``[tokens]``.
        positions: Each token's place in its text, ``[tokens]``.
        bounds: Where each text begins, and after them all the count of tokens, ``[texts + 1]``, int32.
        longest: The longest text: an int of the host, so that nothing waits for the device.
        texts: How many texts there are; what stands after them fills the row up.
        tokens: How many tokens they have.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    bounds: torch.Tensor
    longest: int
    texts: int
    tokens: int

    def features(self) -> dict[str, Any]:
        """The inputs of a transformer, by the names transformers has for them."""
        # A mask of four dimensions is passed on as it is: neither built nor, with a wait for the device, inspected.
        mask = self.ids.new_zeros((1, 1, 1, 1))
        return {
            "input_ids": self.ids[None],
            "position_ids": self.positions[None],
            "attention_mask": mask,
            "cu_seq_lens_q": self.bounds,
            "cu_seq_lens_k": self.bounds,
            "max_length_q": self.longest,
            "max_length_k": self.longest,
            "use_cache": False,
        }


def pack(flat: Ints, lengths: Ints, *, device: Any, first_position: int = 0, fill: int | None = None) -> Pack:
    """Lay texts end to end on a device.

    Args:
        flat: The token ids of all texts, one text after the other.
        lengths: How many each text has; none is empty.
        device: Where to.
        first_position: The position of a text's first token.
        fill: Fill the row up to this many tokens, with texts that mean nothing.
    """
    texts, tokens, longest = len(lengths), len(flat), int(lengths.max())
    if fill is not None and fill > tokens:
        whole, rest = divmod(fill - tokens, longest)
        lengths = np.concatenate([lengths, np.full(whole, longest), [rest] if rest else []]).astype(np.int64)
        flat = np.concatenate([flat, np.full(fill - tokens, flat[0])])
    ends = np.cumsum(lengths, dtype=np.int64)
    bounds = np.concatenate([[0], ends]).astype(np.int32)
    places = np.arange(len(flat), dtype=np.int64) - np.repeat(ends - lengths, lengths) + first_position
    both = to_device(np.stack([flat.astype(np.int64), places]), device)
    return Pack(both[0], both[1], to_device(bounds, device), longest, texts, tokens)


def to_device(array: npt.NDArray[Any], device: Any) -> torch.Tensor:
    """Copy an array; to a GPU without waiting for the work queued there, which a copy from plain memory would."""
    import torch

    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def supports(model: Any) -> bool:
    """Whether a transformer (of transformers, or with adapters of peft in it) takes texts end to end."""
    config = model.config
    if getattr(config, "model_type", None) not in KINDS or getattr(config, "is_decoder", False):
        return False
    return not any("sliding" in kind for kind in getattr(config, "layer_types", None) or ())


def pays(model: Any) -> bool:
    """Whether it also runs the fast way here: a GPU, half precision, and an attention nobody asked to be another."""
    import torch

    parameter = next(model.parameters())
    dtype = parameter.dtype
    if torch.is_autocast_enabled(parameter.device.type):
        dtype = torch.get_autocast_dtype(parameter.device.type)
    config = model.config
    heads = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return supports(model) and config._attn_implementation in _OWN and has_kernel(parameter.device.type, dtype, heads)


def has_kernel(device: str, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether torch's flash attention over unequal lengths takes such tensors."""
    import torch

    if device != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    return head_dim % 8 == 0 and head_dim <= 256 and _has_flash()


@cache
def _has_flash() -> bool:
    import torch

    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability() >= (8, 0)


def first_position(model: Any) -> int:
    """The position of a text's first token: RoBERTa and its kin count from after the padding id."""
    config = model.config
    return int(config.pad_token_id) + 1 if "roberta" in config.model_type else 0


def prepare(model: Any) -> None:
    """Switch a model to this attention. It stays: a checkpointed layer runs again in the backward pass.

    Batches with padding still work, as by ``sdpa``; ``model.set_attn_implementation`` puts another in its place.

    Raises:
        PackError: The architecture cannot take texts end to end.
    """
    if model.config._attn_implementation == NAME:
        return
    if not supports(model):
        raise PackError(
            f"{getattr(model.config, 'model_type', type(model).__name__)} does not take texts end to end (only "
            f"{', '.join(sorted(KINDS))}, without sliding windows): set packed=False"
        )
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attention_of_transformers)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def _attention_of_transformers(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it, on ``[batch, heads, tokens, width]``: packed where the bounds came along."""
    bounds = rest.get("cu_seq_lens_q")
    if bounds is None:
        return _padded(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest)
    causal = bool(getattr(module, "is_causal", True) and getattr(module.config, "is_causal", True))
    queries, keys, values = (states.transpose(1, 2)[0] for states in _one_dtype(query, key, value))
    longest = int(rest["max_length_q"])
    return attend(queries, keys, values, bounds, longest, causal=causal, dropout=dropout, scale=scaling)[None], None


def _padded(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, **rest: Any
) -> tuple[torch.Tensor, None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if mask is not None and tuple(mask.shape) == (1, 1, 1, 1) and query.shape[2] > 1:
        raise PackError(  # the texts would all see one another, and nobody would notice
            f"{type(module).__name__} was not handed the bounds of the texts by this transformers: set packed=False"
        )
    attended: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, mask, **rest)
    return attended


def _one_dtype(*states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Autocast leaves what a norm or a rotation touched in fp32; sdpa would cast it, and so must this."""
    import torch

    kind = states[0].device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states[-1].dtype
    return tuple(state.to(dtype) for state in states)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    longest: int,
    *,
    causal: bool,
    dropout: float = 0.0,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention of texts end to end, each within itself, on ``[tokens, heads, width]``; differentiable.

    Keys and values may have fewer heads than queries. ``longest`` may be any number no text exceeds.
    """
    import torch

    if has_kernel(query.device.type, query.dtype, query.shape[-1]):
        # The operator under torch.nn.attention.varlen, whose signature changed in each of torch 2.10, 2.11 and 2.13.
        attended: torch.Tensor = torch.ops.aten._flash_attention_forward(
            query, key, value, bounds, bounds, longest, longest, dropout, causal, False, scale=scale
        )[0]
        return attended
    spans = [slice(begin, end) for begin, end in pairwise(bounds.tolist()) if end > begin]
    return torch.cat([_alone(query[span], key[span], value[span], causal, dropout, scale) for span in spans])


def _alone(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool, dropout: float, scale: float | None
) -> torch.Tensor:
    import torch

    attended = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended[0].transpose(0, 1)


def pool(hidden: torch.Tensor, packed: Pack, how: Literal["cls", "mean", "last"]) -> torch.Tensor:
    """One vector per text from the states of its tokens, ``[tokens, width]`` to ``[texts, width]``."""
    import torch

    bounds, hidden = packed.bounds[: packed.texts + 1], hidden[: packed.tokens]
    if how == "last":
        return hidden.index_select(0, bounds[1:] - 1)
    if how == "cls":
        return hidden.index_select(0, bounds[:-1])
    lengths = bounds.diff()
    owner = torch.repeat_interleave(torch.arange(len(lengths), device=hidden.device), lengths, output_size=len(hidden))
    total = torch.zeros((len(lengths), hidden.shape[1]), device=hidden.device)
    return (total.index_add(0, owner, hidden.float()) / lengths[:, None]).to(hidden.dtype)
