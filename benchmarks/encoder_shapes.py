"""Transformers in the shapes of published encoders, with random weights, and random texts of published lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from suwen.encoders.side import cast

#: Of the lengths of documents, in tokens: see document_throughput.py for where they are from.
MEAN, SPREAD, LONGEST = 470.90, 0.7, 512
VOCABULARY = 4096
#: Every text ends with this id, as with an end token: its state then tells texts apart by attention alone.
END = 7


class Shape(NamedTuple):
    """A transformer, by the numbers that decide its cost."""

    hidden: int
    layers: int
    heads: int
    keys: int
    head_dim: int
    mlp: int
    decoder: bool = True

    @property
    def parameters(self) -> int:
        """Of the matrices, which do the work; norms and biases do next to none."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.keys)
        return self.layers * (attention + (3 if self.decoder else 2) * self.hidden * self.mlp)

    def work(self, lengths: np.ndarray) -> float:
        """Floating-point operations that these texts need."""
        squares = float((lengths.astype(np.float64) ** 2).sum())
        attention = (2 if self.decoder else 4) * squares * self.heads * self.head_dim * self.layers
        return 2.0 * self.parameters * float(lengths.sum()) + attention


SHAPES = {
    "0.3B": Shape(768, 12, 12, 12, 64, 3072, decoder=False),
    "0.6B": Shape(1024, 28, 16, 8, 128, 3072),
    "4B": Shape(2560, 36, 32, 8, 128, 9728),
    "8B": Shape(4096, 36, 32, 8, 128, 12288),
}
TINY = {"0.3B": Shape(64, 2, 4, 4, 16, 128, decoder=False), "0.6B": Shape(64, 2, 4, 2, 16, 128)}


class Texts(NamedTuple):
    """Token ids end to end."""

    flat: np.ndarray
    lengths: np.ndarray

    def take(self, rows: np.ndarray) -> Texts:
        """Some of them, in that order."""
        ends = np.cumsum(self.lengths)
        parts = [self.flat[ends[row] - self.lengths[row] : ends[row]] for row in rows]
        return Texts(np.concatenate(parts), self.lengths[rows])


def draw(count: int, rng: np.random.Generator, lengths: np.ndarray | None = None) -> Texts:
    """Random texts of the lengths the module's first lines tell of."""
    if lengths is None:
        drawn = rng.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, count).round()
        lengths = drawn.clip(2, LONGEST).astype(np.int64)
    flat = rng.integers(END + 1, VOCABULARY, int(lengths.sum()))
    flat[np.cumsum(lengths) - 1] = END
    return Texts(flat, lengths)


def build(shape: Shape, device: str, dtype: torch.dtype) -> Any:
    """The model with random weights, made where it will run."""
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.mlp,
        "max_position_embeddings": 1024,
        "attn_implementation": "sdpa",
    }
    with torch.device(device):
        torch.manual_seed(0)
        if shape.decoder:
            config = transformers.Qwen3Config(**common, num_key_value_heads=shape.keys, head_dim=shape.head_dim)
            model = transformers.Qwen3Model(config)
        else:
            model = transformers.BertModel(transformers.BertConfig(**common), add_pooling_layer=False)
    model.config.use_cache = False
    cast(model, dtype)
    return model.eval()


def groups(lengths: np.ndarray, budget: int) -> Iterator[np.ndarray]:
    """Texts in their order, as many as stay within the budget together."""
    start = used = 0
    for position, length in enumerate(lengths.tolist()):
        if position > start and used + length > budget:
            yield np.arange(start, position)
            start, used = position, 0
        used += length
    yield np.arange(start, len(lengths))


def whole_rows(texts: Texts, budget: int) -> Texts:
    """Without the texts of the last row, which is rarely full: among a million documents it would not be seen."""
    *_, last = groups(texts.lengths, budget)
    kept = int(last[0]) or len(texts.lengths)
    return Texts(texts.flat[: int(texts.lengths[:kept].sum())], texts.lengths[:kept])
