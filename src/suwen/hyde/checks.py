"""What may be used of what a model wrote in place of a document, and what is wrong with the rest. Pure text."""

from __future__ import annotations

import re
from typing import Literal

from suwen.text.split import sentences

#: Why a text is of no use: nothing in it, another language than asked for, an echo of the prompt, a loop, no end.
Fault = Literal["empty", "language", "echo", "loop", "endless"]
_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")
_THOUGHT = re.compile(r"\A.*</think>", re.DOTALL)
#: Words that begin a reply and belong to no document.
_PREFACE = re.compile(
    r"\A\s*(?:(?:sure|certainly|of course|here (?:is|are)|passage|paragraph|answer|query|question|答案|回答|段落|问题)"
    r"[^\n:：]{0,40}[:：]|好的[，,。]|当然[，,。])\s*",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\s*\Z", re.DOTALL)
#: Least characters of a document, by language: less says nothing that the query does not.
_LEAST = {"zh": 8, "en": 20}
#: Share of Chinese letters from which a text is Chinese, and up to which it is not.
_MOSTLY, _HARDLY = 0.3, 0.1


def usable(text: str, *, prompt: str, language: str, cut: bool) -> tuple[str, Fault | None]:
    """A reply without what a model says around it, and what is wrong with it.

    Args:
        text: What the model wrote.
        prompt: What it was asked, with the query.
        language: What it was to write in.
        cut: Whether it was stopped at the most tokens: its last sentence is dropped.

    >>> usable("好的，高血压患者应当少吃盐，定期测量血压。", prompt="高血压怎么办", language="zh", cut=False)
    ('高血压患者应当少吃盐，定期测量血压。', None)
    >>> usable("Eat less salt and measure often.", prompt="高血压怎么办", language="zh", cut=False)[1]
    'language'
    """
    said = stripped(text)
    if cut and (whole := _whole(said)) is None:
        return said, "endless"
    said = whole if cut and whole else said
    if len(said) < _LEAST.get(language, 20):
        return said, "empty"
    if not speaks(said, language):
        return said, "language"
    if _echoes(said, prompt):
        return said, "echo"
    return said, "loop" if loops(said) else None


def stripped(text: str) -> str:
    """A reply without thoughts, fences and opening words."""
    said = _THOUGHT.sub("", text).strip()
    if fenced := _FENCE.match(said):
        said = fenced[1].strip()
    return _PREFACE.sub("", said, count=1).strip()


def _whole(text: str) -> str | None:
    """A text up to the end of its last whole sentence; None where it has none."""
    found = sentences(text)
    if len(found) < 2:
        return None
    return text[: found[-2].end].rstrip()


def speaks(text: str, language: str) -> bool:
    """Whether a text is in a language: Chinese by its share of Chinese letters, another by their absence."""
    letters = len(_LETTER.findall(text))
    share = len(_CHINESE.findall(text)) / max(letters, 1)
    return share >= _MOSTLY if language == "zh" else share <= _HARDLY and letters > 0


def _echoes(text: str, prompt: str) -> bool:
    """Whether most of a text is the prompt's own words in their order."""
    inside, asked = _bare(text), _bare(prompt)
    size = 12
    pieces = [inside[at : at + size] for at in range(0, max(len(inside) - size + 1, 1), size)]
    return sum(piece in asked for piece in pieces) > 0.6 * len(pieces)


def loops(text: str) -> bool:
    """Whether a text goes round in circles: few of its long pieces are new.

    >>> loops("高血压要吃药。" * 12)
    True
    """
    bare, size = _bare(text), 10
    pieces = [bare[at : at + size] for at in range(max(len(bare) - size + 1, 0))]
    return len(pieces) >= 40 and len(set(pieces)) < 0.5 * len(pieces)


def _bare(text: str) -> str:
    return re.sub(r"\W+", "", text).lower()
