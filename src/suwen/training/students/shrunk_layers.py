"""A narrow query encoder out of a wide decoder's first layers: its residual stream on fewer axes, its own vocabulary.

Six layers from scratch learn their texts by heart. These begin with what the base knows: of the directions in which its
states of real texts vary most, with some of its heads and of its inner neurons. Needs the ``train`` extra.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from suwen.encoders.side import Side
from suwen.training.students.student_models import PROMPTS, StudentError, assembled, student_transformer, vector_head
from suwen.training.students.student_tokenizer import token_texts

#: Tokens of a text that is looked at for the axes.
_LOOKED_AT = 64


class _Cut(NamedTuple):
    """What of an attention is kept: the places of queries and of keys, and how queries make up for the rest."""

    queries: Tensor
    keys: Tensor
    scale: float


def shrink_decoder(
    decoder: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    layers: int,
    width: int,
    heads: int,
    intermediate: int | None = None,
    dimension: int = 512,
    max_length: int = 256,
    pooling: Literal["cls", "mean"] = "mean",
    seed: int = 0,
) -> Any:
    """A query encoder of the first layers of a Qwen2 decoder, projected down.

    Args:
        decoder: A ``SentenceTransformer``; stays as it is.
        tokenizer: The student's own.
        texts: Some real texts: the axes that are kept are those in which the decoder's states of them vary most.
        layers: How many of its layers.
        width: Of the student; at most the decoder's.
        heads: Attention heads; at most the decoder's.
        intermediate: The width inside a layer; 8/3 x ``width`` by default, the cost of a plain layer of 4 x.
        dimension: The space's dimension.
        max_length: The most tokens of a text.
        pooling: Each token sees those before it alone: of [CLS] nothing is learnt, the mean is the one to take.
        seed: Of the linear layer behind it, the one thing that is drawn.

    Raises:
        StudentError: The decoder is of another kind, or smaller than what is asked for.
    """
    from sentence_transformers.sentence_transformer.modules import Pooling

    side = Side(decoder, "document")
    base = side.modules[0].model
    inner = intermediate or 8 * width // 3
    _check(base.config, layers, width, heads, inner)
    axes = main_axes(side, texts, layers, width)
    config = _config(base.config, tokenizer, layers, width, heads, inner, max_length)
    transformer = student_transformer(config, tokenizer, max_length)
    fill(transformer.model, base, axes, _token_rows(side, tokenizer))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = vector_head(width, dimension)
    return assembled([transformer, Pooling(width, pooling), *head], PROMPTS)


def _check(config: Any, layers: int, width: int, heads: int, inner: int) -> None:
    if config.model_type != "qwen2":
        raise StudentError(f"layers are projected down of Qwen2 decoders, not of {config.model_type}: say scratch")
    most = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.intermediate_size)
    if any(asked > there for asked, there in zip((layers, width, heads, inner), most, strict=True)):
        raise StudentError(
            f"{layers} layers of width {width} with {heads} heads and {inner} inside are more than the decoder has "
            f"({', '.join(map(str, most))}): ask for less"
        )


def main_axes(side: Side, texts: Sequence[str], layers: int, width: int) -> Tensor:
    """The axes ``[its width, width]`` in which the states of a decoder's first layers vary most, at right angles.

    Every state counts alike: the first token's, which are hundreds of times as long as others, are left out.
    """
    model = side.modules[0].model
    spread = torch.zeros(model.config.hidden_size, model.config.hidden_size, dtype=torch.float64)
    with torch.inference_mode():
        for ids in side.ids(list(texts), max_length=_LOOKED_AT):
            states = model(torch.tensor([ids], device=side.device), output_hidden_states=True).hidden_states
            found = torch.cat([state[0, 1:] for state in states[: layers + 1]]).double().cpu()
            found = torch.nn.functional.normalize(found, dim=-1)
            spread += found.T @ found
    _, axes = torch.linalg.eigh(spread)
    kept: Tensor = axes.flip(1)[:, :width].float().contiguous()
    return kept


def _config(theirs: Any, tokenizer: Any, layers: int, width: int, heads: int, inner: int, max_length: int) -> Any:
    from transformers import Qwen2Config

    groups = max(count for count in range(1, theirs.num_key_value_heads + 1) if heads % count == 0)
    wide = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    config = Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        intermediate_size=inner,
        max_position_embeddings=max_length,
        rms_norm_eps=theirs.rms_norm_eps,
        rope_parameters=dict(theirs.rope_parameters),
        pad_token_id=tokenizer.token_to_id("[PAD]"),
        bos_token_id=tokenizer.token_to_id("[CLS]"),
        eos_token_id=tokenizer.token_to_id("[SEP]"),
        use_cache=False,
    )
    config.head_dim = min(wide, max(2, width // heads // 2 * 2))
    return config


def _token_rows(side: Side, tokenizer: Any) -> Tensor:
    """The decoder's row of each token of the student: the mean of those that its words are made of for the decoder."""
    table = side.modules[0].model.get_input_embeddings().weight.detach().float().cpu()
    said = side.backend.encode_batch(token_texts(tokenizer), add_special_tokens=False)
    found = [table[torch.tensor(one.ids)].mean(dim=0) if one.ids else None for one in said]
    middle = torch.stack([row for row in found if row is not None]).mean(dim=0)
    return torch.stack([middle if row is None else row for row in found])


def fill(student: Any, base: Any, axes: Tensor, rows: Tensor) -> None:
    """Put a decoder's first layers, seen along some axes, into a narrower one of its kind, in place.

    A state ``h`` becomes ``axesᵀ h``. Norms divide by the mean of squares over another width, and their gains go into
    the matrices behind them; with all axes, heads and neurons kept, the narrow layers are the wide ones, turned.

    Args:
        student: A ``Qwen2Model``.
        base: The wider one.
        axes: ``[its width, the student's]``, at right angles and of length one.
        rows: The decoder's row of each token of the student.
    """
    into = axes * math.sqrt(axes.shape[0] / axes.shape[1])
    cut = _cut(student.config, base.config)
    with torch.no_grad():
        student.get_input_embeddings().weight.copy_(rows @ axes)
        for mine, theirs in zip(student.layers, base.layers[: len(student.layers)], strict=True):
            _attention(mine.self_attn, theirs.self_attn, theirs.input_layernorm.weight, into, axes, cut)
            _neurons(mine.mlp, theirs.mlp, theirs.post_attention_layernorm.weight, into, axes)


def _cut(mine: Any, theirs: Any) -> _Cut:
    """Which rows of queries and of keys are kept: some heads of each group, and of each the pairs of like pitch."""
    wide = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    narrow, groups = mine.head_dim, mine.num_key_value_heads
    # Pairs are turned at pitches that fall evenly: every n-th pair of a head n times as wide has the narrow one's.
    pairs = torch.arange(narrow // 2) * (wide // 2) // (narrow // 2)
    places = torch.cat([pairs, pairs + wide // 2])
    theirs_of, mine_of = (one.num_attention_heads // one.num_key_value_heads for one in (theirs, mine))
    if mine_of > theirs_of:
        raise StudentError(f"{mine_of} heads share a key, and {theirs_of} do in the decoder: choose fewer heads")
    heads = [group * theirs_of + number for group in range(groups) for number in range(mine_of)]
    queries = torch.cat([head * wide + places for head in heads])
    keys = torch.cat([group * wide + places for group in range(groups)])
    return _Cut(queries, keys, math.sqrt(wide / narrow))


def _attention(mine: Any, theirs: Any, gain: Tensor, into: Tensor, axes: Tensor, cut: _Cut) -> None:
    for name, kept, scale in (("q_proj", cut.queries, cut.scale), ("k_proj", cut.keys, 1.0), ("v_proj", cut.keys, 1.0)):
        layer, source = getattr(mine, name), getattr(theirs, name)
        layer.weight.copy_(scale * (_plain(source.weight)[kept] * _plain(gain)) @ into)
        layer.bias.copy_(scale * _plain(source.bias)[kept])
    # Values are kept at the places of keys, and the heads that read them follow.
    mine.o_proj.weight.copy_(axes.T @ _plain(theirs.o_proj.weight)[:, cut.queries])


def _neurons(mine: Any, theirs: Any, gain: Tensor, into: Tensor, axes: Tensor) -> None:
    gate, up, down = (_plain(getattr(theirs, name).weight) for name in ("gate_proj", "up_proj", "down_proj"))
    weight = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    kept = weight.topk(mine.gate_proj.weight.shape[0]).indices.sort().values
    mine.gate_proj.weight.copy_((gate[kept] * _plain(gain)) @ into)
    mine.up_proj.weight.copy_((up[kept] * _plain(gain)) @ into)
    mine.down_proj.weight.copy_(axes.T @ down[:, kept])


def _plain(weight: Tensor) -> Tensor:
    return weight.detach().float().cpu()
