"""What a query asks about and what only makes it a question: 吃什么药, 怎么办, what should I. Cuts no words."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

from suwen.text.fold import fold

#: How much a term of a question phrase counts beside one of its subject. In a collection of articles such words are
#: rare, so BM25 takes them for telling: of 0, 0.1, 0.3 and 1 the third measured best (docs/results/search.md).
QUESTION_WEIGHT = 0.3

_PHRASES = Path(__file__).with_name("question_phrases.txt")


@lru_cache(maxsize=16)  # one search asks for it three times
def subject(text: str) -> str:
    r"""A query, folded, with a line break for each question phrase in it.

    >>> subject("孕妇感冒了能不能吃药")
    '孕妇感冒\n\n吃药'
    >>> subject("What should I do about gout").split()
    ['about', 'gout']
    """
    return _pattern().sub("\n", fold(text))


@cache
def _pattern() -> re.Pattern[str]:
    phrases = {fold(line.strip()) for line in _PHRASES.read_text(encoding="utf-8").splitlines() if line.strip()}
    longest_first = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
    # Latin words only as whole words; Chinese has no spaces to tell by. Apart, for the sake of speed: what begins with
    # one of a few characters is told from all else at once.
    latin = "|".join(re.escape(phrase) for phrase in longest_first if phrase.isascii())
    chinese = "|".join(re.escape(phrase) for phrase in longest_first if not phrase.isascii())
    begins = "".join({phrase[0] for phrase in longest_first if not phrase.isascii()})
    return re.compile(rf"(?=[a-z])\b(?:{latin})\b|(?=[{begins}])(?:{chinese})")
