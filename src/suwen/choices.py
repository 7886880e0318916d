"""The words and numbers that options take: one home for what commands and library share. Imports nothing of the house.

A command's arguments are checked, and its help is shown, before anything heavy is loaded.
"""

from __future__ import annotations

from typing import Literal

#: How an index is searched: by meaning, by words, or by both.
Mode = Literal["hybrid", "dense", "lexical"]
#: Passage size and overlap in tokens of the pair's query tokenizer.
SIZE, OVERLAP = 200, 40
#: What to do with an id that comes twice.
Duplicates = Literal["error", "first", "last"]
#: Of a model's weights.
NumberFormat = Literal["auto", "fp32", "bf16", "fp16"]
#: How a model's tokens become one vector.
Pooling = Literal["cls", "mean", "last"]
#: What personal data is masked, by name; :data:`suwen.text.mask.KINDS` has the words for it.
MASKED = (
    "id_card",
    "passport",
    "bank_card",
    "email",
    "ssn",
    "insurance",
    "birth",
    "phone",
    "account",
    "record",
    "bed",
    "plate",
    "url",
    "ip",
    "address",
    "name",
)
