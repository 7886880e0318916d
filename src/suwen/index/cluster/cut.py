"""Texts cut into terms, a write at a time, and what a term is worth by BM25. Knows no tables and no searchers.

The ranking is tantivy's, down to how it rounds the length of a text, so that an index that moves between engines
answers alike.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from suwen.index.cluster.truth import Meta
from suwen.index.engine import Ranking, Rows
from suwen.index.lexical_terms import Term, Wanted
from suwen.text.segment import bigrams, words

_K1, _B = 1.2, 0.75
#: A longer term is known by its hash: PostgreSQL's indexes hold no long ones.
_LONGEST = 64
_MOST_COUNTED = 65535

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def _lengths() -> list[int]:
    """The lengths that tantivy tells apart: each up to 40, then in steps that grow with it."""
    steps = [*range(24)]
    for number in range(256 - 24):
        bits, shift = number & 7, (number >> 3) - 1
        steps.append(24 + (bits if shift < 0 else (bits | 8) << shift))
    return steps


_LENGTHS = np.array(_lengths(), dtype=np.int64)


def key(field: int, term: str) -> str:
    """What a term is called: its field (0 for words, 1 for bigrams), and itself unless it is too long for an index."""
    if len(term) > _LONGEST or "\0" in term:
        term = hashlib.sha1(term.encode(errors="replace")).hexdigest()
    return "wb"[field] + term


def key_of(term: Term) -> str:
    """The same of a term of a query."""
    return key(int(term.field == "bigrams"), term.text)


def number_of(name: str) -> int:
    """A term's place in sparse vectors. Two terms of one passage share one in a case of some ten million."""
    return 1 + zlib.crc32(name.encode()) % (2**32 - 3)


def terms_in(text: str) -> list[str]:
    """Every term of a text."""
    return words(text) + bigrams(text)


class Cut:
    """The terms of several texts, flat: one entry for each term of each text, ordered by term and then by text.

    Attributes:
        keys: Every term, by its number.
        terms: Of each entry the term's number.
        texts: Of each entry which text it is of.
        counts: Of each entry how often the term is in the text.
        lengths: Of each text the steps of its number of words and of bigrams.
        totals: How many words and bigrams there are in all of them.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        fields = [([words(text) for text in texts], "w"), ([bigrams(text) for text in texts], "b")]
        sizes = np.array([[len(one) for one in found] for found, _ in fields], dtype=np.int64).reshape(2, -1)
        self.totals = int(sizes[0].sum()), int(sizes[1].sum())
        self.lengths = (np.searchsorted(_LENGTHS, sizes.T, side="right") - 1).astype(np.uint8)
        numbers: dict[str, int] = defaultdict(lambda: len(numbers))
        found: list[int] = []
        counts: list[int] = []
        of: list[Ints] = []
        self.keys: list[str] = []
        for field, (cut, _) in enumerate(fields):
            numbers.clear()
            before = len(self.keys)
            counted = [Counter(one) for one in cut]
            for one in counted:
                found.extend([before + numbers[term] for term in one])
                counts.extend(one.values())
            of.append(np.repeat(np.arange(len(texts)), [len(one) for one in counted]))
            self.keys += [key(field, term) for term in numbers]
        terms = np.array(found, dtype=np.int64)
        order = np.argsort(terms, kind="stable")
        self.terms, self.texts = terms[order], np.concatenate(of)[order]
        self.counts = np.minimum(np.array(counts, dtype=np.int64), _MOST_COUNTED)[order]

    def steps(self) -> npt.NDArray[np.uint8]:
        """Of each entry the step of its text's length, in the term's field."""
        field = np.array([name[0] == "b" for name in self.keys], dtype=np.int64)
        found: npt.NDArray[np.uint8] = self.lengths[self.texts, field[self.terms]]
        return found

    def by_term(self) -> Iterator[tuple[str, int, int]]:
        """Every term, with where its entries begin and end."""
        ends = np.cumsum(np.bincount(self.terms, minlength=len(self.keys))).tolist()
        return zip(self.keys, [0, *ends], ends, strict=False)

    def by_text(self) -> tuple[Ints, Ints]:
        """The entries in the order of the texts, and where each text's begin (with the end of the last)."""
        order = np.argsort(self.texts, kind="stable")
        begin = np.searchsorted(self.texts[order], np.arange(len(self.lengths) + 1))
        return order, begin


class Found:
    """Where the terms of a query were found, flat: one entry for each term of each row that has it.

    Args:
        terms: The keys that were asked for.
        which: Of each entry the place of its term among them.
        rows: Of each entry the row.
        counts: Of each entry how often the term is in it.
        steps: Of each entry the step of the row's length, in the term's field.
    """

    def __init__(self, terms: Sequence[str], which: Ints, rows: Rows, counts: Floats, steps: Ints) -> None:
        self._places = {name: place for place, name in enumerate(terms)}
        self._which, self._rows, self._counts, self._lengths = which, rows, counts, _LENGTHS[steps].astype(np.float64)

    def ranked(self, wanted: Wanted, meta: Meta, held: Mapping[str, int]) -> Ranking:
        """The rows, best first; equal scores by row.

        Args:
            wanted: What was looked up.
            meta: For the mean lengths, and how many rows there are.
            held: How many rows hold each term.
        """
        rows, places = _numbered(self._rows)
        if not len(rows):
            return Ranking(np.empty(0, np.int64), np.empty(0, np.float32), wanted.most)
        strengths = self._strengths(meta)

        def scores(terms: Sequence[Term]) -> Floats:
            worth = np.zeros(len(self._places))
            for term in terms:
                if (place := self._places.get(key_of(term))) is not None:
                    worth[place] += weight_of(term, held.get(key_of(term), 0), meta)
            summed = np.bincount(places, weights=worth[self._which] * strengths, minlength=len(rows))
            return summed.astype(np.float64)

        total = scores(wanted.terms)
        for choice in wanted.choices:
            if choice:
                total += np.maximum.reduce([scores(terms) for terms in choice])
        there = np.flatnonzero(total > 0)
        rounded = -np.round(total[there].astype(np.float32), 4)
        order = there[np.lexsort((rows[there], rounded))]
        return Ranking(rows[order], total[order].astype(np.float32), wanted.most)

    def _strengths(self, meta: Meta) -> Floats:
        """What share of its weight each entry has."""
        means = np.array([meta.words, meta.bigrams]) / max(1, meta.searched)
        field = np.array([name[0] == "b" for name in self._places], dtype=np.int64)[self._which]
        return strength(self._counts, self._lengths, means[field])


def _numbered(rows: Rows) -> tuple[Rows, Ints]:
    """The different rows, and of each entry which it is: counted where they lie close, sorted where they do not."""
    if not len(rows):
        return rows, rows
    first, span = int(rows.min()), int(rows.max() - rows.min()) + 1
    if span > 8 * len(rows):
        different, places = np.unique(rows, return_inverse=True)
        return different, places
    seen = np.zeros(span, dtype=bool)
    seen[rows - first] = True
    return np.flatnonzero(seen) + first, (np.cumsum(seen) - 1)[rows - first]


def weight_of(term: Term, held: int, meta: Meta) -> float:
    """The most that a term of a query can add to a score."""
    idf = float(np.log(1 + (meta.searched - held + 0.5) / (held + 0.5))) if held <= meta.searched else 0.0
    return term.weight * idf * (_K1 + 1)


def strength(counts: Floats, lengths: Floats, means: Floats) -> Floats:
    """What share of its weight a term has that a text of this length has so often."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return counts / (counts + _K1 * (1 - _B + _B * lengths / means))


def length_of(steps: npt.NDArray[np.uint8]) -> Floats:
    """The lengths that steps stand for."""
    return _LENGTHS[steps].astype(np.float64)
