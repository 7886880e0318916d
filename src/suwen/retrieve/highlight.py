"""Which sentences of a passage match a query, and where its words stand in them. Text in, offsets out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from suwen.encoders.query import Encoder, Vectors
from suwen.retrieve.results import Highlight
from suwen.text.fold import fold
from suwen.text.segment import bigrams, words
from suwen.text.split import Span, sentences

#: How many sentences of a text at the most.
_MOST = 2
#: English words that join others: a mark on them tells the reader nothing.
_JOINING = frozenset(
    re.findall(
        "[a-z]+",
        "a an and are as at be by can do does for from has have how if in is it "
        "my of on or should so than that the this to was what when which who why will with you your",
    )
)


class Marker:
    """Finds the sentences that match one query, in any number of texts: what the query takes is done once.

    A sentence is scored by the query terms it holds, each counted once and longer ones more. When no sentence shares a
    term with the query, the encoder picks the one nearest in meaning.

    Args:
        query: The query as typed.
        encoder: Gives the encoder, which is used only where no words match; without it, such a text has no highlight.
    """

    def __init__(self, query: str, encoder: Callable[[], Encoder] | None = None) -> None:
        self._query, self._encoder = query, encoder

    @cached_property
    def _terms(self) -> list[str]:
        return matching_terms(self._query)

    @cached_property
    def _vector(self) -> Vectors:
        assert self._encoder is not None
        vector: Vectors = self._encoder().encode_queries([self._query])[0]
        return vector

    def marks(self, text: str) -> tuple[Highlight, ...]:
        """The sentences of a text that match best, in reading order."""
        spans, folded = sentences(text), fold(text)
        # Few of a query's terms are in any one text: only they are looked for in each of its sentences.
        terms = [term for term in self._terms if term in folded]
        scored = [(_weight(terms, folded[span.start : span.end]), span) for span in spans] if terms else []
        chosen = sorted((item for item in scored if item[0]), key=lambda item: -item[0])[:_MOST]
        if chosen:
            # A sentence with a small part of the best one's matches is noise.
            kept = sorted(span for weight, span in chosen if weight >= chosen[0][0] / 3)
            return tuple(_highlight(text, span, _stretches(terms, folded[span.start : span.end])) for span in kept)
        if self._encoder is None or not spans:
            return ()
        nearest = 0
        if len(spans) > 1:
            vectors = self._encoder().encode_documents([text[span.start : span.end] for span in spans])
            nearest = int(np.argmax(vectors @ self._vector))
        return (_highlight(text, spans[nearest], ()),)

    def terms(self, text: str) -> tuple[tuple[int, int], ...]:
        """Where the query's words stand in a text that is not cut into sentences, such as a title."""
        return tuple(_stretches(self._terms, fold(text)))


def matching_terms(query: str) -> list[str]:
    """The terms of a query worth marking: its words and bigrams.

    Single characters and English words that only join others count where there is nothing else.
    """
    terms = list(dict.fromkeys([*words(query), *bigrams(query)]))[:256]
    return [term for term in terms if len(term) > 1 and term not in _JOINING] or terms


def _weight(terms: Sequence[str], folded: str) -> int:
    return sum(len(term) for term in terms if term in folded and next(_places(term, folded), None) is not None)


def _stretches(terms: Sequence[str], folded: str) -> list[tuple[int, int]]:
    """Where terms stand, those that touch or overlap as one."""
    found = sorted((at, at + len(term)) for term in terms if term in folded for at in _places(term, folded))
    joined: list[tuple[int, int]] = []
    for start, end in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _places(term: str, folded: str) -> Iterator[int]:
    """Where a term stands. Looked for as it is: compiling patterns for a query cost more than finding its hits."""
    at = folded.find(term)
    while at >= 0:
        if _stands_alone(term, folded, at):
            yield at
        at = folded.find(term, at + 1)


def _stands_alone(term: str, folded: str, at: int) -> bool:
    # A Latin term must stand at the start of a word: "ph" is not in "morphine", but "stone" is in "stones", and
    # "hba1c" in 复查HbA1c, where no space parts the words. A short one must be the whole word: "af" is not in "after".
    if not (term[0].isascii() and term[0].isalnum()):
        return True
    end = at + len(term)
    if at and _is_latin(folded[at - 1]):
        return False
    return len(term) >= 4 or end == len(folded) or not _is_latin(folded[end])


def _is_latin(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _highlight(text: str, span: Span, terms: Iterable[tuple[int, int]]) -> Highlight:
    stretches = tuple((span.start + start, span.start + end) for start, end in terms)
    return Highlight(span.start, span.end, text[span.start : span.end], stretches)
