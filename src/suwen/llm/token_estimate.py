"""How long a text is in tokens, estimated from its characters, and cutting it to fit. Knows no tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Hundredths of a token a character takes (whole, so that sums are exact): on the high side of common tokenizers,
#: since a prompt that is too long fails outright.
_CJK, _RARE, _DIGIT, _LETTER, _SPACE, _OTHER = 100, 300, 100, 30, 15, 100
_PER_MESSAGE = 6
_SENTENCE_END = re.compile(r"[。！？；!?;\n]|\.(?=\s)")


def _weight(character: str) -> int:
    if character >= "\u2e80":
        return _CJK if character <= "\uffff" else _RARE
    if character.isdigit():
        return _DIGIT
    if character.isalpha():
        return _LETTER
    return _SPACE if character.isspace() else _OTHER


def estimate_tokens(text: str) -> int:
    """About how many tokens a text takes, rather too many than too few.

    >>> estimate_tokens("布洛芬可以退烧"), estimate_tokens("ibuprofen lowers fever")
    (7, 7)
    """
    return -(-sum(map(_weight, text)) // 100)


def estimate_messages(contents: Iterable[str]) -> int:
    """About how many tokens the messages of a conversation take, with the marks around them."""
    return sum(estimate_tokens(content) + _PER_MESSAGE for content in contents) + _PER_MESSAGE


def fit(text: str, tokens: int, mark: str = "……") -> str:
    """The text if it takes at most so many tokens, else its beginning with a mark that it was cut.

    The cut falls behind a sentence where one ends in the last fifth of what fits.

    >>> fit("发热。头痛。", 20), fit("发热三天。头痛两天。咳嗽。", 8)
    ('发热。头痛。', '发热三天。……')
    """
    if estimate_tokens(text) <= tokens:
        return text
    room = tokens - estimate_tokens(mark)
    if room <= 0:
        return ""
    used, end = 0, 0
    for end, character in enumerate(text):  # noqa: B007
        used += _weight(character)
        if used > 100 * room:
            break
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, end)]
    cut = ends[-1] if ends and ends[-1] >= 0.8 * end else end
    return text[:cut].rstrip() + mark
