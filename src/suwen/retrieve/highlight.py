"""Which sentences of a passage match a query, and where its words stand in them. Text in, offsets out."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from suwen.encoders.query import Encoder
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
    """The sentences that match best, in reading order.

    A sentence is scored by the query terms it holds, each counted once and longer ones more. When no sentence shares a
    term with the query, the encoder picks the one nearest in meaning.

    Args:
        query: The query as typed.
        text: The passage's text.
        encoder: Used only where no words match; without one, such a passage has no highlight.
        most: How many sentences at the most.
    """
    spans = sentences(text)
    terms = matching_terms(query)
    folded = fold(text)
    scored = [(_weight(terms, folded[span.start : span.end]), span) for span in spans]
    chosen = sorted((item for item in scored if item[0]), key=lambda item: -item[0])[:most]
    if chosen:
        # A sentence with a small part of the best one's matches is noise.
        kept = sorted(span for weight, span in chosen if weight >= chosen[0][0] / 3)
        return tuple(_highlight(text, folded, span, terms) for span in kept)
    if encoder is None or not spans:
        return ()
    return (_highlight(text, folded, _nearest(query, text, spans, encoder), []),)


def matching_terms(query: str) -> list[str]:
    """The terms of a query worth marking: its words and bigrams.

    Single characters and English words that only join others count where there is nothing else.
    """
    terms = list(dict.fromkeys([*words(query), *bigrams(query)]))[:256]
    return [term for term in terms if len(term) > 1 and term not in _JOINING] or terms


def _weight(terms: Sequence[str], sentence: str) -> int:
    return sum(len(term) for term in terms if _pattern(term).search(sentence))


def _pattern(term: str) -> re.Pattern[str]:
    # A Latin term must stand at the start of a word: "ph" is not in "morphine", but "stone" is in "stones", and
    # "hba1c" in 复查HbA1c, where no space parts the words. A short one must be the whole word: "af" is not in "after".
    if not (term[0].isascii() and term[0].isalnum()):
        return re.compile(re.escape(term))
    return re.compile("(?<![a-z0-9])" + re.escape(term) + ("(?![a-z0-9])" if len(term) < 4 else ""))


def _highlight(text: str, folded: str, span: Span, terms: Sequence[str]) -> Highlight:
    marked = np.zeros(span.end - span.start, dtype=bool)
    sentence = folded[span.start : span.end]
    for term in terms:
        for match in _pattern(term).finditer(sentence):
            marked[match.start() : match.end()] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(np.int8)))
    stretches = tuple((span.start + int(a), span.start + int(b)) for a, b in edges.reshape(-1, 2))
    return Highlight(span.start, span.end, text[span.start : span.end], stretches)


def _nearest(query: str, text: str, spans: Sequence[Span], encoder: Encoder) -> Span:
    vectors = encoder.encode_documents([text[span.start : span.end] for span in spans])
    return spans[int(np.argmax(vectors @ encoder.encode_queries([query])[0]))]
