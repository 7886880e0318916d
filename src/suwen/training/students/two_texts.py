"""A cross-encoder that begins as the bi-encoder it is made of: in its first layers two texts do not see one another.

A student that is given a query and a passage at once, as a cross-encoder is, loses what it knows of either. Here each
text has its own positions and its own first layers; they meet in the last ones, and the score is a weighted cosine of
their means. Where they never meet it is the student's own cosine, times the weight. Word by word, it also counts how
near each word of the query comes to some word of the passage (Khattab and Zaharia, 2020). Needs the ``train`` extra.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn
from torch.nn import functional

from suwen.encoders.packed import first_position
from suwen.training.students.static_student import WHERE

#: Both as a student has them by themselves; the tokenizer puts what stands before and after it all.
TEMPLATE = "[Q]{query}[SEP][CLS][D]{document}"
#: What a cosine counts at the start: one over the temperature at which cosines of a document encoder are a teacher.
WEIGHT = 1 / 0.03
_NOT_SEEN = -1e4


class TwoTexts(Transformer):
    """A student's transformer over two texts; the first ``apart`` of its layers see one at a time."""

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``token_embeddings``, and of each token whether it is of the first or of the second text."""
        ids, real = features["input_ids"], features["attention_mask"].bool()
        model: Any = self.model
        tokenizer: Any = self.tokenizer
        ends = (ids == tokenizer.convert_tokens_to_ids("[SEP]")).long()
        second = ends.cumsum(1) - ends > 0
        places = torch.arange(ids.shape[1], device=ids.device)[None].expand_as(ids)
        begin = (~second).long().sum(1, keepdim=True)
        places = torch.where(second, places - begin, places) + first_position(model)
        every = real[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
        own = every & (second[:, None, :, None] == second[:, None, None, :])
        states = model.embeddings(input_ids=ids, position_ids=places)
        for number, layer in enumerate(model.encoder.layer):
            seen = self._mask(own if number < model.config.apart else every)
            made = layer(states, seen)
            states = made[0] if isinstance(made, tuple) else made
        features["token_embeddings"] = model.LayerNorm(states)
        features["texts"] = (real & ~second, real & second)
        return features

    def _mask(self, seen: Tensor) -> Tensor:
        if self.model.config._attn_implementation == "sdpa":
            return seen
        return torch.where(seen, 0.0, _NOT_SEEN)

    @classmethod
    def load(cls, model_name_or_path: str, *where: Any, **settings: Any) -> TwoTexts:
        """Read what was saved; no code comes with it."""
        return super().load(model_name_or_path, *where, **settings | {"trust_remote_code": False})


class TwoMeans(Module):
    """The product, number by number, of the two texts' vectors: a student's mean, projection and length of one.

    Args:
        width: Of the states.
        dimension: Of the vectors.
        words: With one more number behind it: what the words of the first text find in the second, word by word.
    """

    config_keys: list[str] = ["width", "dimension", "words"]  # noqa: RUF012 (declared so by sentence-transformers)

    def __init__(self, width: int, dimension: int, words: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.width, self.dimension, self.words = width, dimension, words
        self.linear = nn.Linear(width, dimension)
        if words:
            # All words count the same at first.
            self.worth = nn.Linear(width, 1)
            nn.init.zeros_(self.worth.weight)
            nn.init.zeros_(self.worth.bias)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``sentence_embedding``; the sum of its numbers is the cosine, and what the words find."""
        states, (asked, read) = features["token_embeddings"], features["texts"]
        shares = [text[..., None].to(states.dtype) for text in (asked, read)]
        # Projected once: the quantiser turns a matrix round each time that a graph uses it.
        if self.words:
            vectors = self.linear(states)
            first, second = (functional.normalize(_mean(vectors, share), dim=-1) for share in shares)
            found = _found(vectors, self.worth(states)[..., 0], asked, read)
            features["sentence_embedding"] = torch.cat([first * second, found], dim=-1)
        else:
            means = torch.cat([_mean(states, share) for share in shares])
            first, second = functional.normalize(self.linear(means), dim=-1).chunk(2)
            features["sentence_embedding"] = first * second
        return features

    def get_embedding_dimension(self) -> int:
        """How many numbers there are."""
        return self.dimension + self.words

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write the projection."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, *where: Any, **settings: Any) -> TwoMeans:
        """Read what :meth:`save` wrote."""
        known: dict[str, Any] = {key: value for key, value in settings.items() if key in WHERE}
        made = cls(**cls.load_config(model_name_or_path, *where, **known))
        made.load_state_dict(cls.load_torch_weights(model_name_or_path, *where, **known))
        return made


def _mean(states: Tensor, shares: Tensor) -> Tensor:
    return (states * shares).sum(1) / shares.sum(1).clamp(min=1)


def _found(vectors: Tensor, worth: Tensor, asked: Tensor, read: Tensor) -> Tensor:
    """The cosine of each word of the first text to its nearest of the second, and their mean by what each is worth."""
    vectors = functional.normalize(vectors, dim=-1)
    near = (vectors @ vectors.transpose(1, 2)).masked_fill(~read[:, None, :], -1.0).amax(-1)
    shares = worth.masked_fill(~asked, _NOT_SEEN).softmax(-1)
    return (near * shares.to(near.dtype)).sum(-1, keepdim=True)


def two_texts(student: Any, apart: int, words: bool = False) -> Any:
    """A student whose first layers see one text at a time; its last module gives the product of the two vectors.

    Args:
        student: A ``SentenceTransformer`` of transformer, mean pooling, projection and normalisation.
        apart: How many layers; all of them, and the texts never meet.
        words: Whether texts are held against one another word by word, too.
    """
    from sentence_transformers import SentenceTransformer

    transformer, projection = student[0], student[2].linear
    transformer.model.config.apart = apart
    transformer.__class__ = TwoTexts  # the same weights, passed another way
    means = TwoMeans(projection.in_features, projection.out_features, words)
    means.linear.load_state_dict(projection.state_dict())
    return SentenceTransformer(modules=[transformer, means], device=str(student.device))
