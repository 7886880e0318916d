"""The vocabulary of query encoders that are trained from scratch: Chinese and English, one ``tokenizer.json``.

How text is cut for other purposes (words to index, passages) is in :mod:`suwen.text`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from functools import cache
from itertools import chain
from typing import Any

from suwen.encoders.tokens import well_formed
from suwen.errors import SuwenError
from suwen.text.fold import simplified
from suwen.training.students.charsmap import charsmap

#: What stands before a text, so that an encoder knows whether it reads a query or a document.
QUERY, DOCUMENT = "[Q]", "[D]"
#: Their ids are their places; 0 is padding, as every reader of a ``tokenizer.json`` expects unless it says otherwise.
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", QUERY, DOCUMENT)
#: 6 layers of 384 with it, and 256 positions, are an int8 graph of 16.68 MB: under 16 MiB, the most a shipped file has.
DEFAULT_SIZE = 14_000
_START = "▁"
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
#: Longer tokens would be stock phrases of the training texts, which say nothing of other texts.
_LONGEST_WORD = 4
_LONGEST_PIECE = 16


class TokenizerError(SuwenError):
    """A vocabulary that cannot be trained."""


def train_tokenizer(texts: Collection[str], *, size: int = DEFAULT_SIZE) -> Any:
    """Train a vocabulary. The same texts in the same order give the same file, byte for byte.

    Width, case and traditional characters are folded and accents dropped. A text becomes ``[CLS] text [SEP]``, and both
    stay when it is cut.

    Args:
        texts: The texts, read twice.
        size: The most tokens, special ones included.

    Returns:
        A ``tokenizers.Tokenizer``.

    Raises:
        TokenizerError: The texts are empty, or the size leaves no room for their characters.
    """
    from tokenizers import Tokenizer, models, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = _normaliser()
    tokenizer.pre_tokenizer = _pre_tokenizer()
    # Rare characters make way for words; those left out become [UNK].
    alphabet = _alphabet(texts, tokenizer.normalizer, max(64, size // 3))
    trainer = trainers.BpeTrainer(
        vocab_size=size + size // 4,  # phrases are dropped afterwards
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        max_token_length=_LONGEST_PIECE,
        show_progress=False,
    )
    tokenizer.train_from_iterator(map(well_formed, texts), trainer)
    tokenizer.model = _pruned(tokenizer, size)
    if tokenizer.get_vocab_size() <= len(SPECIAL):
        raise TokenizerError("the texts to train a tokenizer on hold no characters: give the training texts")
    return _framed(tokenizer)


def token_texts(tokenizer: Any) -> list[str]:
    """What each token says, by its id: without the mark of a word's start; a special token says nothing."""
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return ["" if token in SPECIAL else token.replace(_START, "") for token, _ in by_id]


def _normaliser() -> Any:
    from tokenizers import Regex
    from tokenizers.normalizers import NFKC, BertNormalizer, Precompiled, Replace, Sequence

    # NFKC folds width and look-alikes, but would turn 10⁹ into 109.
    powers = [Replace(power, f"^{digit}") for digit, power in enumerate(_SUPERSCRIPTS)]
    fold = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=True, lowercase=True)
    # Where a Latin word begins is marked; Chinese has no such place, and a mark would double its characters.
    start = Replace(Regex("(?<![a-z0-9])(?=[a-z])"), _START)
    return Sequence([*powers, NFKC(), Precompiled(_scripts()), fold, start])


@cache
def _scripts() -> bytes:
    return charsmap(simplified())


def _alphabet(texts: Collection[str], normaliser: Any, most: int) -> list[str]:
    """The most frequent characters; of some as frequent those with the lower numbers: the trainer would draw lots."""
    found = Counter[str]()
    for character, times in Counter(chain.from_iterable(map(well_formed, texts))).items():
        for one in set(normaliser.normalize_str(character)):
            found[one] += 0 if one.isspace() else times
    return sorted(+found, key=lambda one: (-found[one], one))[:most]


def _pre_tokenizer() -> Any:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Punctuation, Sequence, Split, WhitespaceSplit

    # Runs of Chinese characters, so that words become tokens. With them, 14,000 tokens read a Chinese text in 0.58 of
    # the tokens; a static table fitted to a small Chinese encoder has a held-out cosine of 0.917 (characters: 0.895)
    # and 0.6 to 0.9 points more of nDCG@10.
    return Sequence([WhitespaceSplit(), Punctuation(), Split(Regex(r"\p{Han}+"), "isolated")])


def _pruned(tokenizer: Any, size: int) -> Any:
    """The first tokens of a vocabulary that are no Chinese phrase, up to the size."""
    from tokenizers import models

    trained = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in trained["merges"]]
    made = {left + right for left, right in merges}
    kept = {token for token in trained["vocab"] if token not in made}
    order = sorted(kept, key=trained["vocab"].__getitem__)
    chosen = []
    for left, right in merges:
        if len(order) == size:
            break
        whole = left + right
        is_han = "\u2e80" <= whole[0] <= "\u9fff" or whole[0] >= "\U00020000"
        if left in kept and right in kept and not (len(whole) > _LONGEST_WORD and is_han):
            chosen.append((left, right))
            if whole not in kept:
                kept.add(whole)
                order.append(whole)
    return models.BPE({token: id_ for id_, token in enumerate(order)}, chosen, unk_token="[UNK]")


def _framed(tokenizer: Any) -> Any:
    from tokenizers import AddedToken, decoders
    from tokenizers.processors import TemplateProcessing

    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer
