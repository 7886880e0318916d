"""The sentences of a book's paragraphs, for training: no headings, captions, tables, references, citations.

Searching keeps all of these; see ``corpora.books``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from suwen.text.page_blocks import ITEM, Block, without_mark
from suwen.text.split import sentences

#: The fewest characters of a sentence: the paper's for English. Of Chinese ones of 8 and more with their mark, 0.74 are
#: whole statements however long, of shorter ones 0.54 (docs/results/books.md).
SHORTEST_ENGLISH, SHORTEST_CHINESE = 20, 8
_HAN = re.compile("[\u4e00-\u9fff]")
_NUMBERS = r"\d{1,3}(?:\s?[,，、;–—\-~～]\s?\d{1,3})*"
_YEAR = r"(?:19|20)\d\d[a-z]?"
_SURNAME = r"(?:(?:van|von|de|der|den|del|della|di|da|dos|du|la|le|ter|ten) )*[A-Z][\w'’-]+"
_NAME = rf"{_SURNAME}(?:, {_SURNAME})*(?:,? (?:and|&) {_SURNAME}|,? et al\.?,?|,)?"
_PAGES = r"(?:[,:] ?(?:pp?\. ?)?\d+(?:[-–]\d+)?)?"
_HAN_NAME = r"[\u4e00-\u9fff]{1,4}(?:[和与、][\u4e00-\u9fff]{1,4})?(?:等人?)?"
_CITATION = re.compile(
    rf"\s?\[{_NUMBERS}\]|［{_NUMBERS}］"
    rf"|\s?\((?:see |e\.g\.,? |cf\. )?{_NAME},? {_YEAR}{_PAGES}(?:; ?{_NAME},? {_YEAR}{_PAGES})*\)"
    # 王等，2019 and 王和李，2019; a comma is needed, for 国际指南2019 and the like belong to the text.
    rf"|[(（]{_HAN_NAME}[,，]\s?{_YEAR}(?:[;；]\s?{_HAN_NAME}[,，]\s?{_YEAR})*[)）]"
    rf"|\s?\((?:[Rr]efs?\.?|[Rr]eferences?) {_NUMBERS}\)|[(（]参?考?文献\s?{_NUMBERS}[)）]"
    # Numbers alone only where several are listed behind a word and the sentence ends: "(30-40)" is a range.
    r"|(?<=[a-z]) \(\d{1,3}(?:[–—-]\d{1,3})?(?:, ?\d{1,3}(?:[–—-]\d{1,3})?)+\)(?=[.;](?:\s|$))"
    # A raised number behind a mark or a closing one, as text layers give it: "mortality.12,13 The" and "in CHF.12".
    rf"|(?:(?<=[a-z)%][.,;])|(?<=[A-Z]{{2}}[.,;])){_NUMBERS}(?=\s|$)"
    rf"|[¹²³⁰⁴-⁹]+(?:[,，–-][¹²³⁰⁴-⁹]+)*(?=[\s.,;。，；]|$)(?<![m0-9][²³])"
)
_SPACE_BEFORE_MARK = re.compile(r"\s+(?=[.,;:。，；：](?:\s|$))")
_LETTERS = re.compile(r"[^\W\d_]")


class BookSentence(NamedTuple):
    """A sentence, the page it begins on and its place among the sentences of the book, from 0."""

    page: int
    position: int
    text: str


def sentences_of(blocks: Iterable[Block]) -> Iterator[BookSentence]:
    """The sentences of a book's paragraphs and lists that are long enough to say something."""
    position = 0
    for block in blocks:
        if block.kind not in ("text", "note"):
            continue
        text = _without_marker(without_citations(block.text if block.kind == "text" else without_mark(block.text)))
        for sentence in _whole(text):
            if is_sentence(sentence):
                yield BookSentence(block.page, position, sentence)
                position += 1


def _whole(text: str) -> Iterator[str]:
    """The sentences of a text; a semicolon, at which passages may be cut, ends none."""
    begun: int | None = None
    for start, end in sentences(text):
        begun = start if begun is None else begun
        if text[end - 1] != "；":
            yield text[begun:end]
            begun = None
    if begun is not None:
        yield text[begun:].strip()


def _without_marker(text: str) -> str:
    """An item of a list without its number or bullet."""
    found = ITEM.match(text)
    return text[found.end() :].lstrip() if found else text


def without_citations(text: str) -> str:
    """Text without the numbers and names of works that it cites.

    >>> without_citations("Mortality fell [3, 7–9]. It rose later (Wu et al., 2019) to a peak.12 See 图 [4]。")
    'Mortality fell. It rose later to a peak. See 图。'
    """
    return _SPACE_BEFORE_MARK.sub("", _CITATION.sub("", text))


def is_sentence(text: str) -> bool:
    """Whether it is long enough, and words for the larger part."""
    shortest = SHORTEST_CHINESE if _HAN.search(text) else SHORTEST_ENGLISH
    return len(text) >= shortest and 2 * len(_LETTERS.findall(text)) >= len(text.replace(" ", ""))
