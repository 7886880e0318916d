"""Texts that are nearly the same by their letters: MinHash finds the candidates, exact overlap decides. No meaning.

Two ways of asking one thing in other words are not found; that would take an encoder (see ``diversify``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suwen.curate import CurateError
from suwen.curate.leakage import comparable
from suwen.text.clean import clean
from suwen.text.fold import fold

_PERMUTATIONS = 128
_SHINGLE = 3
_HAN = re.compile("[\u3400-\u9fff]")
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_RUN, _KEYWORDS = 5, 10


def shingles(text: str) -> frozenset[str]:
    """The runs of three letters or digits in a text, folded; a shorter text is its own only one.

    >>> sorted(shingles("高血压 患者"))
    ['压患者', '血压患', '高血压']
    """
    compared = comparable(text)
    if len(compared) <= _SHINGLE:
        return frozenset([compared] if compared else [])
    return frozenset(compared[at : at + _SHINGLE] for at in range(len(compared) - _SHINGLE + 1))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard similarity: what two sets share, as a part of what either has.

    >>> similarity(frozenset("abc"), frozenset("bcd"))
    0.5
    """
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def copied_share(text: str, source: str) -> float:
    """How much of a text stands in another in runs of words; 0 of a text so short that it may be keywords.

    A word of letters weighs as much as two Chinese characters. Keywords are less than five words or ten characters:
    they stand in every passage that is about them. A run has three words or five characters: shorter ones ("in the
    treatment", 高血压) are in most long passages.

    >>> passage = "Metformin is the first drug that is given in type 2 diabetes."
    >>> copied_share("the first drug that is given", passage), copied_share("first drug in diabetes", passage)
    (1.0, 0.0)
    """
    own = _WORD.findall(fold(clean(text)))
    total = sum(map(_weight, own))
    if total < _KEYWORDS:
        return 0.0
    there = {run for _, run in _runs(_WORD.findall(fold(clean(source))))}
    covered = {place for start, run in _runs(own) if run in there for place in range(start, start + len(run))}
    return sum(_weight(own[place]) for place in covered) / total


def _runs(words: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """From every word the shortest run that is long enough, with its place."""
    for start in range(len(words)):
        end, weight = start, 0
        while weight < _RUN and end < len(words):
            weight, end = weight + _weight(words[end]), end + 1
        if weight >= _RUN:
            yield start, tuple(words[start:end])


def _weight(word: str) -> int:
    return 1 if _HAN.match(word) else 2


class Near:
    """Texts by key, to be looked up by what is nearly the same. Needs suwen[curate]."""

    def __init__(self, threshold: float = 0.7) -> None:
        """Start with nothing.

        Args:
            threshold: Jaccard similarity of three-character shingles from which two texts are nearly the same.
        """
        if not 0.3 <= threshold <= 1:
            raise CurateError(f"near-duplicates from a similarity of {threshold}: give 0.3 to 1")
        try:
            from datasketch import MinHash, MinHashLSH  # type: ignore[import-untyped]
        except ImportError:
            raise CurateError("finding near-duplicates needs datasketch: pip install 'suwen[curate]'") from None
        self.threshold = threshold
        self._hash = MinHash
        # Looked up well below the threshold and weighed for recall: what is found too much, the exact overlap removes.
        self._tables: Any = MinHashLSH(max(0.1, threshold - 0.3), _PERMUTATIONS, weights=(0.1, 0.9))
        self._shingles: dict[str, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._shingles)

    def add(self, key: str, text: str) -> None:
        """Take a text in; one without a letter is near to nothing."""
        if own := shingles(text):
            self._shingles[key] = own
            self._tables.insert(key, self._minhash(own))

    def find(self, text: str) -> list[str]:
        """The keys of the texts that ``text`` is nearly the same as, sorted."""
        own = shingles(text)
        if not own or not self._shingles:
            return []
        candidates = self._tables.query(self._minhash(own))
        return sorted(key for key in candidates if similarity(own, self._shingles[key]) >= self.threshold)

    def _minhash(self, own: frozenset[str]) -> Any:
        made = self._hash(num_perm=_PERMUTATIONS)
        made.update_batch([piece.encode("utf-8", "replace") for piece in own])
        return made


def groups(texts: Mapping[str, str], threshold: float = 0.7, links: Mapping[str, str] | None = None) -> list[list[str]]:
    """The keys, those together that are nearly the same, directly or by others in between.

    Args:
        texts: Texts by key.
        threshold: See :class:`Near`.
        links: Keys of one value belong together as well, whatever their texts.
    """
    from scipy.cluster.hierarchy import DisjointSet

    near, joined = Near(threshold), DisjointSet(texts)
    firsts: dict[str, str] = {}
    for key, text in texts.items():
        for other in near.find(text):
            joined.merge(key, other)
        near.add(key, text)
        if links is not None and key in links:
            joined.merge(key, firsts.setdefault(links[key], key))
    together: dict[str, list[str]] = {}
    for key in texts:
        together.setdefault(joined[key], []).append(key)
    return list(together.values())
