"""Sampling from a decoder in bulk: thousands of rows at once, keys and values in one place, no chat and no files here.

Rows that have ended are dropped, so that a batch costs what its long rows cost. Decoders built like Qwen2 and Llama
take this loop; any other goes through transformers' own ``generate``. Needs the ``train`` extra.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from suwen.llm.requests import Sampling

#: Tokens read at once before the first new one: their states inside a layer are wide.
READ = 131_072
#: Decoders whose layers the loop below walks by itself: rotary positions, grouped keys, nothing slides.
WALKED = frozenset({"qwen2", "qwen3", "llama"})
#: Of a vocabulary, as many of the likeliest as mostly hold a share of the probability that is asked for.
_FIRST = 1024
#: Bytes of keys and values on a CPU; on a GPU, this share of what is free, and never more than so much: other work may
#: be on it.
_CPU_BYTES, _GPU_SHARE, _GPU_BYTES = 2 << 30, 0.5, 16 << 30


class Drawn(NamedTuple):
    """What a row said: its new tokens without the end, and whether it came to one."""

    ids: list[int]
    ended: bool


def sample(model: Any, prompts: Sequence[Sequence[int]], ends: Sequence[int], how: Sampling) -> list[Drawn]:
    """Continue every prompt, as many at once as there is memory for; the draws follow torch's seed.

    Args:
        model: A causal language model of transformers.
        prompts: Token ids, none empty.
        ends: The tokens that end a row.
        how: How tokens are drawn.
    """
    order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    found: dict[int, Drawn] = {}
    start = 0
    while start < len(order):
        some = _fitting(model, prompts, order[start:], how.room)
        rows = [prompts[at] for at in some]
        with torch.inference_mode():
            drawn = (_walk if _walkable(model) else _generate)(model, rows, ends, how)
        found |= dict(zip(some, drawn, strict=True))
        start += len(some)
    return [found[at] for at in range(len(prompts))]


def _walkable(model: Any) -> bool:
    return model.config.model_type in WALKED and not getattr(model.config, "use_sliding_window", False)


def _fitting(model: Any, prompts: Sequence[Sequence[int]], order: Sequence[int], room: int) -> list[int]:
    """The first rows, of sorted lengths, whose keys and values fit together; always at least one."""
    config = model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    token = 2 * config.num_hidden_layers * heads * width * model.dtype.itemsize
    free: float = _CPU_BYTES
    if model.device.type == "cuda":
        free = min(torch.cuda.mem_get_info(model.device)[0] * _GPU_SHARE, _GPU_BYTES)
    most = 1
    while most < len(order) and (most + 1) * (len(prompts[order[most]]) + room) * token <= free:
        most += 1
    return list(order[:most])


def _generate(model: Any, prompts: Sequence[Sequence[int]], ends: Sequence[int], how: Sampling) -> list[Drawn]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[ends[0]] * (longest - len(row)) + list(row) for row in prompts], device=model.device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in prompts], device=model.device)
    drawing = {
        "do_sample": how.temperature > 0,
        **({"temperature": how.temperature, "top_p": how.top_p, "top_k": how.top_k} if how.temperature > 0 else {}),
        **({"min_p": how.min_p} if how.temperature > 0 and how.min_p > 0 else {}),
    }
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=how.room, eos_token_id=list(ends), pad_token_id=ends[0], **drawing
    )
    return [_cut(row, set(ends)) for row in out[:, longest:].tolist()]


def _cut(row: Sequence[int], ends: set[int]) -> Drawn:
    at = next((place for place, id_ in enumerate(row) if id_ in ends), None)
    return Drawn(list(row), False) if at is None else Drawn(list(row[:at]), True)


def _walk(model: Any, prompts: Sequence[Sequence[int]], ends: Sequence[int], how: Sampling) -> list[Drawn]:
    stops = torch.tensor(list(ends), device=model.device)
    end = int(stops[0])
    replies: list[list[int]] = [[] for _ in prompts]
    going, kept = torch.arange(len(prompts), device=model.device), list[torch.Tensor]()
    states = _States(model, prompts, how.room)
    ids = _draw(states.read(), how)
    for at in range(how.room):
        kept.append(torch.where(torch.isin(ids, stops), end, ids))
        if at == how.room - 1:
            break
        # Looking costs a wait for the GPU: seldom, and rows move only when many have ended.
        if at % 8 == 7:
            alive = torch.nonzero((torch.stack(kept, 1) != end).all(1))[:, 0]
            if len(alive) < 0.6 * len(ids):
                _collect(replies, going, kept)
                if not len(alive):
                    kept = []
                    break
                states.keep(alive)
                going, ids, kept = going[alive], ids[alive], [column[alive] for column in kept]
        ids = _draw(states.step(ids), how)
    if kept:
        _collect(replies, going, kept)
    return [_cut(reply, {end}) for reply in replies]


def _collect(replies: list[list[int]], going: Any, kept: Sequence[Any]) -> None:
    for place, row in zip(going.tolist(), torch.stack(list(kept), 1).tolist(), strict=True):
        replies[place] = row


def _draw(logits: Any, how: Sampling) -> Any:
    """A token of each row."""
    if how.temperature <= 0:
        return logits.argmax(-1)
    scores = logits.float().div_(how.temperature)
    if how.min_p > 0:
        scores.masked_fill_(scores < scores.amax(-1, keepdim=True) + math.log(how.min_p), -math.inf)
    if how.top_k or how.top_p < 1:
        scores = _likeliest(scores, how)
    # The largest of scores plus Gumbel noise is a draw from their softmax; nothing is sorted for it.
    return scores.sub_(torch.empty_like(scores).exponential_().log_()).argmax(-1)


def _likeliest(scores: Any, how: Sampling) -> Any:
    """All but the likeliest tokens at minus infinity, by number and then by their share of the probability."""
    size = scores.shape[-1]
    if how.top_k:
        return _among(scores, min(how.top_k, size), how.top_p)[0]
    # To sort the whole vocabulary takes longer than the model: only where the first do not have top_p together.
    found, share = _among(scores, min(_FIRST, size), how.top_p, scores.logsumexp(-1, keepdim=True))
    rows = torch.nonzero(share < how.top_p)[:, 0] if size > _FIRST else share[:0]
    if len(rows):
        found[rows] = _among(scores[rows], size, how.top_p)[0]
    return found


def _among(scores: Any, count: int, top_p: float, whole: Any = None) -> tuple[Any, Any]:
    """Scores without all but the likeliest few that have top_p together, and what share the few have.

    ``whole`` is the logarithm of what shares are shares of: of the few themselves unless given.
    """
    top, places = scores.topk(count, -1)
    shares = (top - (top.logsumexp(-1, keepdim=True) if whole is None else whole)).exp()
    # A token stays while those before it have less than top_p together: the first always does.
    top = top.masked_fill(shares.cumsum(-1) - shares >= top_p, -math.inf)
    return torch.full_like(scores, -math.inf).scatter_(-1, places, top), shares.sum(-1)


class _States:
    """Keys and values of a batch of prompts, padded on the left, with room for what is written."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], room: int) -> None:
        self.model, config = model.model, model.config
        self.head = model.lm_head
        longest, self.device = max(map(len, prompts)), model.device
        self.at, self.length = longest, longest + room
        self.ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in prompts], device=self.device)
        self.before = torch.tensor([longest - len(row) for row in prompts], device=self.device)
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        shape = (len(prompts), self.groups, self.length, self.width)
        layers = range(config.num_hidden_layers)
        self.keys = [torch.empty(shape, device=self.device, dtype=model.dtype) for _ in layers]
        self.values = [torch.empty(shape, device=self.device, dtype=model.dtype) for _ in layers]

    def read(self) -> Any:
        """Read the prompts; the scores of the first new token."""
        rows = max(1, READ // self.at)
        pieces = [slice(start, start + rows) for start in range(0, len(self.ids), rows)]
        return torch.cat([self._forward(self.ids[piece], 0, piece) for piece in pieces])

    def step(self, ids: Any) -> Any:
        """Take one new token of every row; the scores of the next."""
        found = self._forward(ids[:, None], self.at, slice(None))
        self.at += 1
        return found

    def keep(self, rows: Any) -> None:
        """Go on with these rows alone."""
        self.before = self.before[rows]
        for place in range(len(self.keys)):
            self.keys[place], self.values[place] = self.keys[place][rows], self.values[place][rows]

    def _forward(self, ids: Any, at: int, piece: slice) -> Any:
        count, end = ids.shape[1], at + ids.shape[1]
        before = self.before[piece]
        places = torch.arange(at, end, device=self.device)
        positions = (places[None] - before[:, None]).clamp_min(0)
        seen = torch.arange(end, device=self.device)
        # A padded place sees itself, or its row would be divided by nothing.
        mask = (seen[None, None] <= places[None, :, None]) & (
            (seen[None, None] >= before[:, None, None]) | (seen[None, None] == places[None, :, None])
        )
        hidden = self.model.embed_tokens(ids)
        turns = self.model.rotary_emb(hidden, positions)
        for place, layer in enumerate(self.model.layers):
            part = layer.self_attn
            query, key, value = self._projected(part, layer.input_layernorm(hidden), turns)
            self.keys[place][piece, :, at:end] = key
            self.values[place][piece, :, at:end] = value
            keys, values = self.keys[place][piece, :, :end], self.values[place][piece, :, :end]
            mixed = self._attend(query, keys, values, mask)
            hidden = hidden + part.o_proj(mixed.transpose(1, 2).reshape(len(ids), count, -1))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.head(self.model.norm(hidden[:, -1]))

    def _projected(self, part: Any, normed: Any, turns: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

        shape = (*normed.shape[:2], -1, self.width)
        query, key = part.q_proj(normed).view(shape), part.k_proj(normed).view(shape)
        if hasattr(part, "q_norm"):  # Qwen3's
            query, key = part.q_norm(query), part.k_norm(key)
        query, key = apply_rotary_pos_emb(query.transpose(1, 2), key.transpose(1, 2), *turns)
        return query, key, part.v_proj(normed).view(shape).transpose(1, 2)

    def _attend(self, query: Any, keys: Any, values: Any, mask: Any) -> Any:
        """Attention of ``[rows, heads, tokens, width]``; the heads of a group share their keys."""
        rows, _, count, width = query.shape
        if count > 1:
            # A whole prompt: torch's own attention keeps no square of scores.
            keys, values = (some.repeat_interleave(self.heads // self.groups, 1) for some in (keys, values))
            return scaled_dot_product_attention(query, keys, values, attn_mask=mask[:, None])
        # One token: keys are read where they lie, and not copied for every head.
        query = query.reshape(rows, self.groups, -1, width)
        scores = torch.matmul(query, keys.transpose(2, 3)).mul_(width**-0.5)
        scores = scores.view(rows, self.groups, -1, count, keys.shape[2])
        scores.masked_fill_(~mask[:, None, None], -math.inf)
        shares = scores.softmax(-1).view(rows, self.groups, -1, keys.shape[2])
        return torch.matmul(shares, values).view(rows, self.heads, count, width)
