"""The words and numbers that options take: one home for what commands and library share. Imports nothing of the house.

A command's arguments are checked, and its help is shown, before anything heavy is loaded.
"""

from __future__ import annotations

from typing import Literal

#: How an index is searched: by meaning, by words, or by both.
Mode = Literal["hybrid", "dense", "lexical"]
#: The deepest hit that can be asked for: ``offset + k``.
DEEPEST = 10_000
#: Passage size and overlap in tokens of the pair's query tokenizer.
SIZE, OVERLAP = 200, 40
#: What to do with an id that comes twice.
Duplicates = Literal["error", "first", "last"]
#: Of a model's weights.
NumberFormat = Literal["auto", "fp32", "bf16", "fp16"]
#: How a model's tokens become one vector.
Pooling = Literal["cls", "mean", "last"]
#: Share of a query's 8-grams that makes a training text near it.
LEAST_SHARED = 0.8
#: A selection of diverse texts is seeded with so many, as the paper's.
SEEDS = 5000
#: Characters of the longest text that is kept whole: in any language more than the 512 tokens a row is trained with.
LONGEST_TEXT = 4000
#: Estimated tokens of a passage that a query is written for.
WRITTEN_FOR = 400
#: Characters of a passage of an untitled text, at most.
PAIR_SIZE = 1200
#: Shares of training, validation and test, as the paper's: 106,386, 12,516 and 6,259 triplets.
SHARES = (0.85, 0.10, 0.05)
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
