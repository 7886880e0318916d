"""Which sentences of a passage match a query, and where its words stand in them. Text in, offsets out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from suwen.encoders.query import Encoder, Vectors
from suwen.retrieve.results import Highlight
from suwen.text.fold import fold
from suwen.text.segment import bigrams, words
from suwen.text.split import Span, sentences

#: English words that join others: a mark on them tells the reader nothing.
_JOINING = frozenset(
    re.findall(
        "[a-z]+",
        "a an and are as at be by can do does for from has have how if in is it "
        "my of on or should so than that the this to was what when which who why will with you your",
    )
)


def highlight(query: str, text: str, encoder: Encoder | None = None, most: int = 2) -> tuple[Highlight, ...]:
    """The sentences of one text that match a query best, in reading order: see :class:`Marker`."""
    return Marker(query, encoder, most).marks(text)


class Marker:
    """Finds the sentences that match one query, in any number of texts: what the query takes is done once.

    A sentence is scored by the query terms it holds, each counted once and longer ones more. When no sentence shares a
    term with the query, the encoder picks the one nearest in meaning.

    Args:
        query: The query as typed.
        encoder: Used only where no words match; without one, such a text has no highlight.
        most: How many sentences of a text at the most.
    """

    def __init__(self, query: str, encoder: Encoder | None = None, most: int = 2) -> None:
        self._query, self._encoder, self._most = query, encoder, most

    @cached_property
    def _terms(self) -> list[tuple[int, re.Pattern[str]]]:
        return [(len(term), _pattern(term)) for term in matching_terms(self._query)]

    @cached_property
    def _vector(self) -> Vectors:
        assert self._encoder is not None
        vector: Vectors = self._encoder.encode_queries([self._query])[0]
        return vector

    def marks(self, text: str) -> tuple[Highlight, ...]:
        """The sentences of a text that match best, in reading order."""
        spans, folded = sentences(text), fold(text)
        scored = [(self._weight(folded[span.start : span.end]), span) for span in spans]
        chosen = sorted((item for item in scored if item[0]), key=lambda item: -item[0])[: self._most]
        if chosen:
            # A sentence with a small part of the best one's matches is noise.
            kept = sorted(span for weight, span in chosen if weight >= chosen[0][0] / 3)
            patterns = [pattern for _, pattern in self._terms]
            return tuple(_highlight(text, folded, span, patterns) for span in kept)
        if self._encoder is None or not spans:
            return ()
        vectors = self._encoder.encode_documents([text[span.start : span.end] for span in spans])
        return (_highlight(text, folded, spans[int(np.argmax(vectors @ self._vector))], []),)

    def _weight(self, sentence: str) -> int:
        return sum(length for length, pattern in self._terms if pattern.search(sentence))


def matching_terms(query: str) -> list[str]:
    """The terms of a query worth marking: its words and bigrams.

    Single characters and English words that only join others count where there is nothing else.
    """
    terms = list(dict.fromkeys([*words(query), *bigrams(query)]))[:256]
    return [term for term in terms if len(term) > 1 and term not in _JOINING] or terms


def _pattern(term: str) -> re.Pattern[str]:
    # A Latin term must stand at the start of a word: "ph" is not in "morphine", but "stone" is in "stones", and
    # "hba1c" in 复查HbA1c, where no space parts the words. A short one must be the whole word: "af" is not in "after".
    if not (term[0].isascii() and term[0].isalnum()):
        return re.compile(re.escape(term))
    return re.compile("(?<![a-z0-9])" + re.escape(term) + ("(?![a-z0-9])" if len(term) < 4 else ""))


def _highlight(text: str, folded: str, span: Span, patterns: Sequence[re.Pattern[str]]) -> Highlight:
    marked = np.zeros(span.end - span.start, dtype=bool)
    sentence = folded[span.start : span.end]
    for pattern in patterns:
        for match in pattern.finditer(sentence):
            marked[match.start() : match.end()] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    stretches = tuple((span.start + int(a), span.start + int(b)) for a, b in edges.reshape(-1, 2))
    return Highlight(span.start, span.end, text[span.start : span.end], stretches)
