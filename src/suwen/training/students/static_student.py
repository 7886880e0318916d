"""The static query encoder while it learns: the shipped one's sum, with gradients. Its table is in ``static_table.py``.

Needs the ``train`` extra.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from suwen.training.students.student_tokenizer import DOCUMENT, QUERY


class StaticStudent(StaticEmbedding):
    """The mean of a text's rows plus the vector of its form, as :class:`~suwen.encoders.static.StaticEncoder` adds it.

    A text begins with ``[Q]`` or ``[D]``; that token chooses the form and is no part of the mean. One without either is
    a document.

    Args:
        tokenizer: A ``tokenizers.Tokenizer`` with both tokens.
        embedding_weights: The rows ``[vocabulary, dimension]``, where they are known.
        embedding_dim: The dimension, where they are not.
        form: The two forms' vectors ``[2, dimension]``, queries first; zeros by default.
    """

    form: nn.Parameter

    def __init__(
        self,
        tokenizer: Any,
        embedding_weights: Any | None = None,
        embedding_dim: int | None = None,
        *,
        form: Tensor | None = None,
    ) -> None:
        super().__init__(tokenizer, embedding_weights, embedding_dim)
        zeros = torch.zeros(2, self.embedding_dim)
        self.form = nn.Parameter(zeros if form is None else form.detach().clone().float())
        self._query, self._document, self._unknown = (
            int(tokenizer.token_to_id(token)) for token in (QUERY, DOCUMENT, "[UNK]")
        )

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        """Add ``sentence_embedding`` to ``input_ids`` (all texts end to end) and ``offsets`` (where each begins)."""
        ids, offsets = features["input_ids"], features["offsets"]
        first = ids[offsets]
        is_query = first == self._query
        marked = is_query | (first == self._document)
        lengths = torch.diff(offsets, append=offsets.new_tensor([len(ids)]))
        # An empty text is one unknown token, as the shipped encoder has it.
        empty = marked & (lengths == 1)
        left_out = marked & ~empty
        weights = self.embedding.weight.new_ones(len(ids)).index_put((offsets,), (~left_out).float())
        ids = ids.index_put((offsets,), torch.where(empty, self._unknown, first))
        sums = nn.functional.embedding_bag(ids, self.embedding.weight, offsets, mode="sum", per_sample_weights=weights)
        means = sums / (lengths - left_out.long())[:, None]
        features["sentence_embedding"] = means + self.form[1 - is_query.long()]
        return features

    @classmethod
    def load(cls, model_name_or_path: str, *where: Any, **settings: Any) -> StaticStudent:
        """Read what :meth:`save` wrote."""
        plain = StaticEmbedding.load(model_name_or_path, *where, **settings)
        known = {key: value for key, value in settings.items() if key in WHERE}
        form: Any = cls.load_torch_weights(model_name_or_path, *where, **known)["form"]
        return cls(plain.tokenizer, plain.embedding.weight.detach(), form=form)


#: What says where a file is; sentence-transformers hands over more.
WHERE = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
