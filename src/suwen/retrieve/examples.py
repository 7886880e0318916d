"""Things to ask of an index, drawn from what it holds: for a search page that has nothing to show yet."""

from __future__ import annotations

import re

from suwen.index.engine import StoredPassage
from suwen.retrieve.retriever import Index
from suwen.text.clean import clean
from suwen.text.split import sentences

#: Passages looked at, and how many examples of each writing are made of them.
_LOOKED_AT, _OF_EACH = 48, 4
#: A question fits on a line of a phone.
_SHORTEST, _LONGEST_HAN, _LONGEST_LATIN = 4, 24, 60
_HAN = re.compile("[\u4e00-\u9fff]")
_QUESTION = re.compile(
    r"[?？]$|^(?:what|how|when|why|which|who|can|should|is|are|do|does)\b|怎|什么|哪|吗|如何|为何|几|多[少高大久]", re.I
)


def drawn_examples(index: Index) -> list[str]:
    """Titles, or first sentences, of passages from all over the index: at most four in Chinese and four in other words.

    Questions come before the rest. The same index gives the same ones.
    """
    with index.engine.snapshot() as snapshot:
        rows, _ = snapshot.sample(_LOOKED_AT)
        texts = [text for item in snapshot.fetch(rows.tolist()) if (text := _asked(item))]
    chosen: list[str] = []
    for chinese in (True, False):
        alike = dict.fromkeys(text for text in texts if bool(_HAN.search(text)) is chinese)
        questions = [text for text in alike if _QUESTION.search(text)]
        rest = [text for text in alike if text not in questions]
        first = _spread(questions, _OF_EACH)
        chosen += first + _spread(rest, _OF_EACH - len(first))
    return chosen


def _spread(texts: list[str], count: int) -> list[str]:
    step = max(1, len(texts) // max(1, count))
    return texts[::step][:count]


def _asked(item: StoredPassage) -> str | None:
    """What one could ask to find a passage: its title if that is short, else its first sentence."""
    passage = item.passage
    first = sentences(passage.text)[:1]
    for text in (passage.title, *(passage.text[span.start : span.end] for span in first)):
        asked = clean(text).strip().rstrip("。.；;")
        longest = _LONGEST_HAN if _HAN.search(asked) else _LONGEST_LATIN
        if _SHORTEST <= len(asked) <= longest and "\n" not in asked:
            return asked
    return None
