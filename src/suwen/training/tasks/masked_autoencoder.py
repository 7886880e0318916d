"""RetroMAE: a masked encoder, and a light decoder that has little but the sentence vector to rebuild the text from.

Xiao et al., 2022 (arXiv 2205.12035). The modules and the masks live here; the loop is the ``retromae`` stage's.
Needs the ``train`` extra.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from suwen.errors import SuwenError

#: How many logits are held at once: 1 GiB of fp32.
_LOGITS = 1 << 28


class RetroMAEError(SuwenError):
    """A model that cannot be trained by masked auto-encoding."""


def mask_tokens(ordinary: Tensor, ratio: float, generator: torch.Generator) -> Tensor:
    """Choose the tokens to hide: the ratio of each text's ordinary ones, at least one where it has any.

    Args:
        ordinary: ``[texts, tokens]``, true where a token is neither special nor padding.
        ratio: The share to hide.
        generator: On the same device; decides alone: the same state, the same mask.
    """
    dice = torch.rand(ordinary.shape, generator=generator, device=generator.device)
    order = dice.masked_fill(~ordinary, 2.0).argsort(dim=1).argsort(dim=1)
    # Short texts would often hide nothing, and the mean of nothing is NaN.
    count = (ordinary.sum(dim=1, keepdim=True) * ratio).round().clamp_min(1).long()
    return (order < count) & ordinary


def visible_to_decoder(ordinary: Tensor, ratio: float, generator: torch.Generator) -> Tensor:
    """What each position may look at, ``[texts, tokens, tokens]``: others, drawn for each by itself, and place 0.

    Place 0 holds the sentence vector. No position sees itself.
    """
    texts, length = ordinary.shape
    dice = torch.rand((texts, length, length), generator=generator, device=generator.device)
    seen = (dice >= ratio) & ordinary[:, None, :] & ~torch.eye(length, dtype=torch.bool, device=ordinary.device)
    seen[:, :, 0] = True
    return seen


class DecoderLayer(nn.Module):
    """One layer whose questions are not what it reads: attention from one stream to another, then a feed-forward.

    Args:
        width: Of both streams.
        heads: Attention heads.
        intermediate: The width of the feed-forward.
    """

    def __init__(self, width: int, heads: int, intermediate: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.before_query, self.before_key, self.before_forward = (nn.LayerNorm(width) for _ in range(3))
        self.forward_in, self.forward_out = nn.Linear(width, intermediate), nn.Linear(intermediate, width)

    def forward(self, asked: Tensor, read: Tensor, visible: Tensor) -> Tensor:
        """Answer at each position of ``asked`` from what it may see of ``read``."""
        query = self._split(self.query(self.before_query(asked)))
        key, value = map(self._split, self.key_value(self.before_key(read)).chunk(2, dim=-1))
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible[:, None])
        asked = asked + self.output(attended.transpose(1, 2).flatten(2))
        answer: Tensor = asked + self.forward_out(functional.gelu(self.forward_in(self.before_forward(asked))))
        return answer

    def _split(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:-1], self.heads, -1).transpose(1, 2)


class VocabularyHead(nn.Module):
    """From hidden states to the loss over the vocabulary, by the encoder's own embedding table.

    Args:
        width: Of the states.
        vocabulary: The number of tokens.
    """

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def loss(self, states: Tensor, labels: Tensor, table: Tensor) -> Tensor:
        """The mean cross entropy of ``states [n, width]`` against ``labels [n]``; 0 where there are none."""
        states = self.norm(functional.gelu(self.dense(states)))
        step = max(1, _LOGITS // len(self.bias))
        total = states.sum() * 0.0  # keeps the graph where nothing is predicted
        for start in range(0, len(labels), step):
            part, label = states[start : start + step], labels[start : start + step]
            logits = functional.linear(part, table.to(part.dtype), self.bias.to(part.dtype))
            total = total + functional.cross_entropy(logits.float(), label, reduction="sum")
        return total / max(1, len(labels))


class RetroMAE(nn.Module):
    """Masked auto-encoding of a student's transformer, which stays itself: nothing is wrapped or added inside it.

    The encoder reads a text with some tokens hidden and predicts them. The decoder predicts *every* ordinary token from
    the sentence vector (the hidden state of ``[CLS]``, or the mean where the student pools so), its position, and a
    random half of the other tokens.

    Args:
        student: A ``SentenceTransformer`` that begins with a transformer.
        encoder_mask: The share of tokens hidden from the encoder.
        decoder_mask: The share of the other tokens hidden from each position of the decoder.
        seed: Of the decoder's weights.

    Raises:
        RetroMAEError: The student is no transformer encoder, or its tokenizer has no ``[MASK]``.
    """

    special: Tensor

    def __init__(self, student: Any, *, encoder_mask: float = 0.3, decoder_mask: float = 0.5, seed: int = 0) -> None:
        super().__init__()
        transformer = next(iter(student))
        if not hasattr(transformer, "model") or not hasattr(transformer.model, "embeddings"):
            raise RetroMAEError("masked auto-encoding needs a transformer encoder: a static student cannot be masked")
        tokenizer, config = transformer.tokenizer, transformer.model.config
        if tokenizer.mask_token_id is None:
            raise RetroMAEError("the student's tokenizer has no mask token: train one with train_tokenizer")
        self.encoder = transformer.model
        self.encoder_mask, self.decoder_mask = encoder_mask, decoder_mask
        self._mask_id = tokenizer.mask_token_id
        self._mean = any(getattr(module, "pooling_mode", "") == "mean" for module in student.modules())
        self.register_buffer("special", torch.tensor(sorted(set(tokenizer.all_special_ids))), persistent=False)
        width, vocabulary = config.hidden_size, config.vocab_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.positions = nn.Embedding(config.max_position_embeddings, width)
            self.layer = DecoderLayer(width, config.num_attention_heads, config.intermediate_size)
            self.last = nn.LayerNorm(width)
            self.encoder_head, self.decoder_head = (VocabularyHead(width, vocabulary) for _ in range(2))
        self.to(self.encoder.device)

    def loss(self, input_ids: Tensor, attention_mask: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """The loss of a padded batch, which is where the model is, as the generator is.

        Args:
            input_ids: ``[texts, tokens]``, ``[CLS]`` first.
            attention_mask: ``[texts, tokens]``, 0 where padded.
            generator: Decides every mask.

        Returns:
            ``loss`` = ``encoder`` + ``decoder``, each the mean over its predicted tokens.
        """
        ordinary = attention_mask.bool() & ~torch.isin(input_ids, self.special)
        masked = mask_tokens(ordinary, self.encoder_mask, generator)
        states = self.encode(input_ids.masked_fill(masked, self._mask_id), attention_mask)
        encoder = self._predicted(self.encoder_head, states, input_ids, masked)
        visible = visible_to_decoder(ordinary, self.decoder_mask, generator)
        decoded = self.decode(self._sentence(states, attention_mask), input_ids, visible)
        decoder = self._predicted(self.decoder_head, decoded, input_ids, ordinary)
        return {"loss": encoder + decoder, "encoder": encoder, "decoder": decoder}

    def _sentence(self, states: Tensor, attention: Tensor) -> Tensor:
        if not self._mean:
            return states[:, 0]
        seen = attention[..., None].to(states.dtype)
        mean: Tensor = (states * seen).sum(dim=1) / seen.sum(dim=1)
        return mean

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Hidden states of the last layer, ``[texts, tokens, width]``."""
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return states

    def decode(self, sentence: Tensor, input_ids: Tensor, visible: Tensor) -> Tensor:
        """What the decoder makes of the sentence vectors ``[texts, width]`` and the visible tokens."""
        tokens = self.encoder.embeddings(input_ids=input_ids)
        read = torch.cat([sentence[:, None].to(tokens.dtype), tokens[:, 1:]], dim=1)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        states: Tensor = self.last(self.layer(sentence[:, None] + self.positions(places)[None], read, visible))
        return states

    def _predicted(self, head: VocabularyHead, states: Tensor, ids: Tensor, wanted: Tensor) -> Tensor:
        return head.loss(states[wanted], ids[wanted], self.encoder.get_input_embeddings().weight)
