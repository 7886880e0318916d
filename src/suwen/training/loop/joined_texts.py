"""Token ids of many pairs of texts, of which each text is read once: a passage stands in the lists of many queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suwen.training.loop.batches import Ints, Ragged, spans


@dataclass(frozen=True)
class JoinedTexts:
    """Pairs of texts as one text each: the ids of the first, and behind them those of the second.

    Attributes:
        first: The ids of the first texts, special tokens and all.
        second: Those of the second ones.
        firsts: Of each pair, which is its first text.
        seconds: Its second text.
        most: Where a pair is cut; it keeps its last token, which ends a text.
    """

    first: Ragged
    second: Ragged
    firsts: Ints
    seconds: Ints
    most: int

    def __len__(self) -> int:
        return len(self.firsts)

    def lengths(self, rows: Ints) -> Ints:
        """How many tokens each of these pairs has."""
        return np.minimum(self._whole(rows), self.most)

    def full(self, rows: Ints) -> int:
        """How many of these pairs are as long as pairs may be: cut there, or just so long."""
        return int((self._whole(rows) >= self.most).sum())

    def take(self, rows: Ints) -> tuple[npt.NDArray[Any], Ints]:
        """The ids of these pairs, end to end, and their lengths."""
        before, asked = self.first.take(self.firsts[rows])
        behind, read = self.second.take(self.seconds[rows])
        whole = asked + read
        starts = np.cumsum(whole) - whole
        every = np.empty(int(whole.sum()), before.dtype)
        every[spans(starts, asked)], every[spans(starts + asked, read)] = before, behind
        lengths = np.minimum(whole, self.most)
        kept = every[spans(starts, lengths)]
        kept[np.cumsum(lengths) - 1] = every[starts + whole - 1]
        return kept, lengths

    def _whole(self, rows: Ints) -> Ints:
        return np.asarray(self.first.lengths(self.firsts[rows]) + self.second.lengths(self.seconds[rows]))
